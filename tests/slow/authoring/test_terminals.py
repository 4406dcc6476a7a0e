"""The commands on terminals, on pipes and in other locales."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from rich.cells import cell_len

from rules_engine.report.text import MIN_WIDTH
from tests.support.authoring import ladder, validation, write
from tests.support.programs import broken_rules, command, environment, on_a_terminal


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return broken_rules(tmp_path)


def test_no_color_is_respected(bad: Path) -> None:
    written = on_a_terminal(command("check", bad), NO_COLOR="1")
    assert "error: " in written
    assert "\x1b" not in written


def test_no_color_overrides_force_color(bad: Path) -> None:
    for columns in ("", "60"):
        assert "\x1b" not in on_a_terminal(command("check", bad), NO_COLOR="1", FORCE_COLOR="1", COLUMNS=columns)


def test_an_empty_no_color_is_not_set(bad: Path) -> None:
    assert "\x1b[1;31merror: " in on_a_terminal(command("check", bad), NO_COLOR="")


def test_force_color_colours_a_pipe_unless_it_is_empty(bad: Path) -> None:
    def written(**variables: str) -> str:
        return subprocess.run(
            command("check", bad), capture_output=True, text=True, env=environment(**variables), check=False
        ).stdout

    assert "\x1b[1;31merror: " in written(FORCE_COLOR="1", TERM="dumb")
    assert "\x1b" not in written(FORCE_COLOR="")
    assert "\x1b" not in written(FORCE_COLOR="1", NO_COLOR="1")


def test_a_dumb_terminal_gets_no_colours(bad: Path) -> None:
    assert "\x1b" not in on_a_terminal(command("check", bad), TERM="dumb")


def frame(output: str) -> list[str]:
    """Return the source line and the marks of the problem in line 6, the last of the file."""
    lines = output.replace("\r", "").splitlines()
    (index,) = [index for index, line in enumerate(lines) if line.startswith("    6 | ")]
    return lines[index : index + 2]


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 120])
def test_source_lines_fit_the_terminal_with_the_caret_below_the_mistake(tmp_path: Path, columns: int) -> None:
    condition = "object.spec.containers.exists(c, c.name == '中文') && object.spec.containers.all(c, c.nmae != '')"
    bad = validation("long", f'"{condition}"')
    written = on_a_terminal(command("check", write(tmp_path, {"a.yaml": bad})), columns=columns, NO_COLOR="1")
    shown, marks = frame(written)
    assert max(cell_len(shown), cell_len(marks)) <= columns
    assert cell_len(shown[: shown.index("nmae")]) == marks.index("^")
    assert marks.count("^") + marks.count("~") == len("nmae")


def test_columns_overrides_the_width_of_a_terminal(tmp_path: Path) -> None:
    bad = write(tmp_path, {"a.yaml": validation("long", f'"{" " * 100}objct"')})
    for variable, shown in (("60", "…"), ("x", "…"), ("0", "…"), ("500", "    6 |     - expression")):
        assert shown in frame(on_a_terminal(command("check", bad), COLUMNS=variable, NO_COLOR="1"))[0]


def test_a_terminal_of_unknown_width_is_taken_as_wide(tmp_path: Path) -> None:
    bad = write(tmp_path, {"a.yaml": validation("long", f'"{" " * 100}objct"')})
    assert "…" not in on_a_terminal(command("check", bad), columns=0, NO_COLOR="1")


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX"},
        {"LANG": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=str,
)
def test_the_c_locale_gets_ascii(tmp_path: Path, locale: dict[str, str]) -> None:
    main = "{name: c, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}"
    rule = validation("long", f"\"'{'é' * 200}' == objct\"")
    write(
        tmp_path, {"pod.yaml": f"kind: Pod\nmetadata: {{name: é}}\nspec: {{containers: [{main}]}}\n", "bad.yaml": rule}
    )
    variables = {name: value for name, value in environment().items() if not name.startswith(("LC_", "LANG"))}

    def written(*arguments: str | Path, encoding: str = "ascii") -> str:
        done = subprocess.run(command(*arguments), capture_output=True, env={**variables, **locale}, check=False)
        assert done.stderr == b""
        return done.stdout.decode(encoding)

    explained = ("explain", "-f", tmp_path / "pod.yaml", "--rules", "set:gpu-allocation")
    assert "+-- nvidia.com/mig-2g.20gb > nvidia.com/gpu\n" in written(*explained)
    shown, marks = frame(written("check", tmp_path / "bad.yaml"))
    assert shown.startswith("    6 | ...???")
    assert len(marks) <= len(shown)
    # What programs read is never replaced.
    found = json.loads(written(*explained, "--output", "json", encoding="utf-8"))
    assert found["pods"][0]["name"] == "é"


def test_json_has_escapes_for_characters_that_the_encoding_lacks(tmp_path: Path) -> None:
    write(tmp_path, {"pod.yaml": "kind: Pod\nmetadata: {name: é}\nspec: {containers: [{name: c}]}\n"})
    result = subprocess.run(
        command("explain", "-f", tmp_path / "pod.yaml", "--output", "json"),
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=True,
    )
    assert b"\\u00e9" in result.stdout
    assert json.loads(result.stdout)["pods"][0]["name"] == "é"


TRACED_TEST = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: t}
spec:
  cases: [{name: case, podFile: pod.yaml, expect: {warnings: [none]}}]
"""


TRACED_POD = "kind: Pod\nspec: {containers: [{name: c, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}]}\n"


TRACE = (
    "mutate",
    "FallbackLadder/mig  changed: nvidia.com/mig-2g.20gb → nvidia.com/gpu  rules.yaml:7:18  rungs[1]",
    "c requests 1 of nvidia.com/mig-2g.20gb",
    "nvidia.com/mig-2g.20gb → nvidia.com/gpu",
    "✗ nvidia.com/mig-2g.20gb: requested, but no node offers 1",
    "✓ nvidia.com/gpu: assumed: nothing else is offered",
    "annotation gpurules.io/fallback: 2g.20gb->gpu",
    "validate",
    "no rule was evaluated",
)


@pytest.mark.parametrize("columns", [20, 60, 400])
@pytest.mark.parametrize("name", ["test", "explain"])
def test_a_trace_fits_the_terminal_and_loses_nothing(
    name: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = ladder("mig", "nvidia.com/mig-2g.20gb", "{resource: nvidia.com/gpu, assume: true}")
    write(tmp_path, {"rules.yaml": rules, "t.yaml": TRACED_TEST, "pod.yaml": TRACED_POD, "none.yaml": NO_NODES})
    monkeypatch.chdir(tmp_path)
    arguments = ["t.yaml"] if name == "test" else ["-f", "pod.yaml", "--rules", "rules.yaml", "--cluster", "none.yaml"]
    written = on_a_terminal(command(name, *arguments), columns, NO_COLOR="1").replace("\r", "").splitlines()
    (first,) = [index for index, line in enumerate(written) if line.endswith("├── mutate")]
    (last,) = [index for index, line in enumerate(written) if line.endswith("└── no rule was evaluated")]
    frames = [re.fullmatch(r"([ │├└─]*)(.*)", line) for line in written[first : last + 1]]
    shown = [(found[1].rstrip(), found[2].rstrip()) for found in frames if found is not None]
    assert max(map(cell_len, written[first : last + 1])) <= max(columns, MIN_WIDTH)
    assert "".join(text for _, text in shown).replace(" ", "") == "".join(TRACE).replace(" ", "")
    assert (len(shown) == len(TRACE)) == (columns == 400)
    assert all(frame.endswith(("──", "│")) or not frame.strip() for frame, _ in shown)


NO_NODES = "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: none}\nspec: {nodes: []}\n"


def test_characters_that_the_encoding_lacks_are_replaced(tmp_path: Path) -> None:
    write(tmp_path, {"pod.yaml": "kind: Pod\nmetadata: {name: é}\nspec: {containers: [{name: c}]}\n"})
    result = subprocess.run(
        command("explain", "-f", tmp_path / "pod.yaml"),
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"\n\nPod default/?\n" in result.stdout


def test_marks_that_the_encoding_lacks_become_signs_of_one_column(tmp_path: Path) -> None:
    main = "{name: c, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}"
    write(tmp_path, {"pod.yaml": f"kind: Pod\nspec: {{containers: [{main}]}}\n"})
    result = subprocess.run(
        command("explain", "-f", tmp_path / "pod.yaml", "--rules", "set:gpu-allocation"),
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert b"x nvidia.com/mig-2g.20gb: requested, but no node offers 1\n" in result.stdout
    assert b"+ nvidia.com/gpu: assumed" in result.stdout
    assert b"nvidia.com/mig-2g.20gb > nvidia.com/gpu" in result.stdout
    assert b"?" not in result.stdout
    with pytest.raises(UnicodeDecodeError):  # the handler is for encoding only
        b"\xff".decode("ascii", "gpu-rules")


def test_closed_output_is_no_error(bad: Path) -> None:
    line = f"{shlex.join(command('check', 'a.yaml'))} >&-"
    result = subprocess.run(["/bin/sh", "-c", line], cwd=bad, stderr=subprocess.PIPE, env=environment(), check=False)
    assert (result.returncode, result.stderr) == (1, b"")


def test_closed_standard_error_is_no_error(bad: Path) -> None:
    line = f"{shlex.join(command('explain', '-f', 'pod.txt'))} 2>&-"
    result = subprocess.run(["/bin/sh", "-c", line], cwd=bad, stdout=subprocess.PIPE, env=environment(), check=False)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, b"allowed, unchanged")
