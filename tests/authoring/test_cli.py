"""The commands as programs: terminals, pipes, interrupts, usage."""

import errno
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from rules_engine.authoring.output.terminal import MIN_TRACE
from rules_engine.cli import Command, Root
from rules_engine.documents import DOCUMENT_KINDS
from rules_engine.loading import schema
from server.cli import main as server_command
from tests.support.authoring import cli, ladder, validation, write
from tests.support.terminals import shown_on

PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rules_engine.cli import COMMANDS, Root; Root('gpu-rules', commands=list(COMMANDS))()"
)
"""A program that runs a command. It handles SIGINT even if a shell started the tests in the background."""

ROOT = Path(__file__).parents[2]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    pod = "kind: Pod\nspec: {containers: [{name: c}]}\n"
    return write(tmp_path, {"a.yaml": ladder("mig", "nvidia.com/gpu").replace("rungs", "rugns"), "pod.txt": pod})


EVALUATION = ["eval", "object", "-f", "pod.txt"]


def on_a_terminal(arguments: list[str], columns: int = 40, **more: str) -> str:
    """Return the output of a command on a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, columns))
    with subprocess.Popen(arguments, stdout=theirs, stderr=theirs, env=environment(**more)):
        os.close(theirs)
        written = shown_on(ours)
    os.close(ours)
    return written.decode()


def test_a_terminal_gets_colours(bad: Path) -> None:
    assert "\x1b[1;31merror: " in on_a_terminal(command("check", bad))


def test_no_color_is_respected(bad: Path) -> None:
    written = on_a_terminal(command("check", bad), NO_COLOR="1")
    assert "error: " in written
    assert "\x1b" not in written


@pytest.mark.no_cover
def test_no_color_overrides_force_color(bad: Path) -> None:
    for columns in ("", "60"):
        assert "\x1b" not in on_a_terminal(command("check", bad), NO_COLOR="1", FORCE_COLOR="1", COLUMNS=columns)


def test_an_empty_no_color_is_not_set(bad: Path) -> None:
    assert "\x1b[1;31merror: " in on_a_terminal(command("check", bad), NO_COLOR="")


@pytest.mark.no_cover
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


@pytest.mark.no_cover
@pytest.mark.parametrize("columns", [24, 40, 60, 80, 120])
def test_source_lines_fit_the_terminal_with_the_caret_below_the_mistake(tmp_path: Path, columns: int) -> None:
    condition = "object.spec.containers.exists(c, c.name == '中文') && object.spec.containers.all(c, c.nmae != '')"
    bad = validation("long", f'"{condition}"')
    written = on_a_terminal(command("check", write(tmp_path, {"a.yaml": bad})), columns=columns, NO_COLOR="1")
    shown, marks = frame(written)
    assert max(cell_len(shown), cell_len(marks)) <= columns
    assert cell_len(shown[: shown.index("nmae")]) == marks.index("^")
    assert marks.count("^") + marks.count("~") == len("nmae")


@pytest.mark.no_cover
def test_columns_overrides_the_width_of_a_terminal(tmp_path: Path) -> None:
    bad = write(tmp_path, {"a.yaml": validation("long", f'"{" " * 100}objct"')})
    for variable, shown in (("60", "…"), ("x", "…"), ("0", "…"), ("500", "    6 |     - expression")):
        assert shown in frame(on_a_terminal(command("check", bad), COLUMNS=variable, NO_COLOR="1"))[0]


def test_a_terminal_of_unknown_width_is_taken_as_wide(tmp_path: Path) -> None:
    bad = write(tmp_path, {"a.yaml": validation("long", f'"{" " * 100}objct"')})
    assert "…" not in on_a_terminal(command("check", bad), columns=0, NO_COLOR="1")


@pytest.mark.no_cover
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

    assert "+-- nvidia.com/mig-2g.20gb -> nvidia.com/gpu\n" in written("explain", "-f", tmp_path / "pod.yaml")
    shown, marks = frame(written("check", tmp_path / "bad.yaml"))
    assert shown.startswith("    6 | ...???")
    assert len(marks) <= len(shown)
    # What programs read is never replaced.
    found = json.loads(written("explain", "-f", tmp_path / "pod.yaml", "--output", "json", encoding="utf-8"))
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


def test_json_has_escapes_for_characters_that_a_terminal_interprets(tmp_path: Path) -> None:
    name = "\x1b[2J\x9b2J\u202ep\u2028\x7f"
    write(tmp_path, {"pod.json": json.dumps({"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}})})
    shown = cli("explain", "-f", tmp_path / "pod.json", "--output", "json").stdout

    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown)["pods"][0]["name"] == name


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
    "annotation gpu-webhook.k8s.io/fallback: 2g.20gb->gpu",
    "validate",
    "no rule was evaluated",
)


@pytest.mark.no_cover
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
    assert max(map(cell_len, written[first : last + 1])) <= max(columns, MIN_TRACE + 6)
    assert "".join(text for _, text in shown).replace(" ", "") == "".join(TRACE).replace(" ", "")
    assert (len(shown) == len(TRACE)) == (columns == 400)
    assert all(frame.endswith(("──", "│")) or not frame.strip() for frame, _ in shown)


NO_NODES = "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: none}\nspec: {nodes: []}\n"


def test_a_pipe_gets_no_colours_and_unbroken_lines(bad: Path) -> None:
    result = subprocess.run(command("check", bad), capture_output=True, text=True, env=environment(), check=False)
    assert "\x1b" not in result.stdout
    assert result.stdout.splitlines()[0].endswith("[unknown-field]")
    assert (result.returncode, result.stderr) == (1, "")


def test_characters_that_the_encoding_lacks_are_replaced(tmp_path: Path) -> None:
    write(tmp_path, {"pod.yaml": "kind: Pod\nmetadata: {name: é}\nspec: {containers: [{name: c}]}\n"})
    result = subprocess.run(
        command("explain", "-f", tmp_path / "pod.yaml"),
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"\n\nPod/? in namespace default\n" in result.stdout


def test_marks_that_the_encoding_lacks_become_words(tmp_path: Path) -> None:
    main = "{name: c, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}"
    write(tmp_path, {"pod.yaml": f"kind: Pod\nspec: {{containers: [{main}]}}\n"})
    result = subprocess.run(
        command("explain", "-f", tmp_path / "pod.yaml"),
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert b"not nvidia.com/mig-2g.20gb: requested, but no node offers 1\n" in result.stdout
    assert b"ok nvidia.com/gpu: assumed" in result.stdout
    assert b"nvidia.com/mig-2g.20gb -> nvidia.com/gpu" in result.stdout
    assert b"?" not in result.stdout
    with pytest.raises(UnicodeDecodeError):  # the handler is for encoding only
        b"\xff".decode("ascii", "gpu-rules")


def test_ctrl_c_ends_quietly_with_130(tmp_path: Path) -> None:
    fifo = tmp_path / "pod.yaml"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        command("explain", "-f", fifo), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    writer = os.open(fifo, os.O_WRONLY)  # returns once the command has opened it
    process.send_signal(signal.SIGINT)
    os.close(writer)  # ends a read that begins after the signal arrived
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize(
    "arguments", [["check", "a.yaml"], ["check", "a.yaml", "--output", "json"], ["schema"], EVALUATION]
)
def test_a_closed_pipe_causes_no_traceback(bad: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        command(*arguments), cwd=bad, stdout=writer, stderr=subprocess.PIPE, env=environment(), check=False
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, b"")


@pytest.mark.parametrize(
    "arguments", [["check", "a.yaml"], ["check", "a.yaml", "--output", "json"], ["--help"], EVALUATION]
)
def test_a_full_disk_is_reported_in_one_line(bad: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            command(*arguments), cwd=bad, stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    message = b"gpu-rules: cannot write the output: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, message)


def test_closed_output_is_no_error(bad: Path) -> None:
    line = f"{shlex.join(command('check', 'a.yaml'))} >&-"
    result = subprocess.run(["/bin/sh", "-c", line], cwd=bad, stderr=subprocess.PIPE, env=environment(), check=False)
    assert (result.returncode, result.stderr) == (1, b"")


def test_closed_standard_error_is_no_error(bad: Path) -> None:
    line = f"{shlex.join(command('explain', '-f', 'pod.txt'))} 2>&-"
    result = subprocess.run(["/bin/sh", "-c", line], cwd=bad, stdout=subprocess.PIPE, env=environment(), check=False)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, b"allowed, unchanged")


def test_an_error_about_another_file_is_not_a_full_disk() -> None:
    @click.command(cls=Command)
    def fails() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere.yaml")

    with pytest.raises(OSError, match=r"somewhere\.yaml"):
        Root("gpu-rules", commands=[fails]).main(["fails"], standalone_mode=False)


def test_a_missing_path_of_rules_is_reported_for_its_option(bad: Path) -> None:
    result = cli("explain", "-f", bad / "a.yaml", "--rules", bad / "a.yaml", "absent.yaml")
    assert result.exit_code == 2
    assert "Invalid value for '--rules': Path 'absent.yaml' does not exist." in result.stderr


NESTED = {
    f"{name} {inner}": command
    for name, group in server_command.commands.items()
    if isinstance(group, click.Group)
    for inner, command in group.commands.items()
}
EXAMPLES = [
    (name.partition(" ")[0], line)
    for name, command in {**server_command.commands, **NESTED}.items()
    for line in (command.epilog or "").splitlines()
]


def test_every_command_has_examples() -> None:
    assert {name for name, _ in EXAMPLES} == set(server_command.commands)
    assert server_command.epilog


@pytest.mark.parametrize("name", ["", *server_command.commands, *NESTED])
@pytest.mark.parametrize("columns", [60, 80])
def test_help_fits_a_narrow_terminal(name: str, columns: int) -> None:
    arguments = [*name.split(), "--help"]
    shown = CliRunner().invoke(server_command, arguments, prog_name="gpu-rules", terminal_width=columns).stdout
    assert max(map(len, shown.splitlines())) <= columns
    assert "\nExamples:\n  " in shown
    assert "..." not in shown.partition("Commands:")[2].partition("Examples:")[0]


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_examples_of_help_are_right(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is run, but those that need a cluster or start a server: these are only parsed."""
    site = ROOT / "rules" / "default"
    rules = {"rules/ladder.yaml": (site / "ladder.yaml").read_text()}
    test = (site / "default.test.yaml").read_text().partition("\n---\n")[0]
    pod = "kind: Pod\nmetadata: {name: p, namespace: ml}\nspec: {containers: [{name: c}]}\n"
    cluster = (ROOT / "examples" / "inventories" / "two-workers.yaml").read_text()
    spec = "spec: {cluster: {file: cluster.yaml}, arrivals: [{podFile: pod.yaml}]}"
    load = f"apiVersion: gpurules.io/v1\nkind: Simulation\nmetadata: {{name: load}}\n{spec}\n"
    files = {
        "load.yaml": load,
        "rules/ladder.test.yaml": test,
        "ladder.yaml": rules["rules/ladder.yaml"],
        "cluster.yaml": cluster,
    }
    injector = '{"resourceMap": {"V100": {"nvidia.com/gpu": {"annotations": {"a": "b"}}}}}'
    manifests = {"old.json": injector, "pod.yaml": pod, "job.yaml": pod.replace(", namespace: ml", "")}
    log = {"log.jsonl": '{"endpoint": "mutate", "namespace": "ml", "pod": "train", "outcome": "Allowed"}\n'}
    dumps = {"cluster.json": "{}", "a.json": "{}", "must-gather/nodes.json": "{}"}
    sources = {"a/rules.yaml": rules["rules/ladder.yaml"], "b/rules.yaml": "", "new-rules/rules.yaml": ""}
    monkeypatch.chdir(write(tmp_path, {**rules, **files, **manifests, **log, **dumps, **sources}))
    words = shlex.split(line[line.index("gpu-rules ") :])
    given = words[: words.index(">")] if ">" in words else words
    source = given[given.index("<") + 1] if "<" in given else "pod.yaml"
    given = given[: given.index("<")] if "<" in given else given
    assert given[:2] == ["gpu-rules", name]
    if name in ("serve", "capture", "demo", "diff", "doctor"):
        server_command.commands[name].make_context(name, given[2:])
        return
    result = cli(*given[1:], stdin=Path(source).read_text())
    assert result.exit_code == 0, result.output
    assert result.stdout


@pytest.mark.parametrize("package", ["rules_engine.cli", "server.cli"])
def test_help_imports_only_the_command_line(package: str) -> None:
    readers = ("yaml", "jsonschema", "lark")
    others = ("rules_engine.", "rich", "prompt_toolkit", *readers, "flask", "uvloop", "kubernetes", "cryptography")
    program = (
        f"import sys, {package}; found = [name for name in sys.modules if name.startswith({others})]; "
        "print([name for name in found if not name.startswith('rules_engine.cli')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True
    )
    names, defaults = ["rules_engine.model", "rules_engine.model.names"], ["rules_engine.webhooks.settings"]
    assert result.stdout == f"{[*names, 'rules_engine.webhooks', *defaults]}\n"


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_schema_prints_the_schema_of_a_kind_in_any_case(kind: str) -> None:
    for written in (kind, kind.lower()):
        assert json.loads(cli("schema", written).stdout) == schema(kind)


def test_an_unknown_kind_is_a_usage_error_with_a_suggestion() -> None:
    result = cli("schema", "FalbackLader")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown kind 'FalbackLader' (did you mean 'FallbackLadder'?)" in result.stderr


def test_the_combined_schema_accepts_each_kind_and_nothing_else() -> None:
    combined = json.loads(cli("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(combined)
    validator = jsonschema.Draft202012Validator(combined)
    for kind in DOCUMENT_KINDS:
        (example,) = schema(kind)["examples"]
        validator.validate(example)
        assert not validator.is_valid({**example, "kind": "Other"})
        assert not validator.is_valid({**example, "spec": {"x": 1}})
    assert "$id" not in json.dumps(combined)


def test_every_reference_in_the_combined_schema_resolves() -> None:
    combined = json.loads(cli("schema").stdout)
    references = json.dumps(combined).split('"$ref": "#/$defs/')[1:]
    assert {reference.partition('"')[0] for reference in references} <= combined["$defs"].keys()


@pytest.mark.no_cover
def test_the_bench_of_the_command_line_prints_figures_with_bounds() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bench.check", "--runs", "1", "--files", "50"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    help_text, files = result.stdout.splitlines()
    assert help_text.startswith("gpu-rules --help ")
    assert "(at most 0.2 s)" in help_text
    assert files.startswith("gpu-rules check of 50 files ")
    assert "(at most 0.5 s)" in files
