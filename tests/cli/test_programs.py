"""The commands as programs: terminals, pipes, interrupts, usage."""

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner

from rules_engine.cli import Command, Root
from rules_engine.language.headers import DOCUMENT_KINDS
from rules_engine.language.schemas import schema
from rules_engine.server.commands import main as server_command
from tests.support.authoring import cli, write
from tests.support.programs import ROOT, broken_rules, command, environment, on_a_terminal


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return broken_rules(tmp_path)


def test_a_terminal_gets_colours(bad: Path) -> None:
    assert "\x1b[1;31merror: " in on_a_terminal(command("check", bad))


def test_json_has_escapes_for_characters_that_a_terminal_interprets(tmp_path: Path) -> None:
    name = "\x1b[2J\x9b2J\u202ep\u2028\x7f"
    write(tmp_path, {"pod.json": json.dumps({"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}})})
    shown = cli("explain", "-f", tmp_path / "pod.json", "--output", "json").stdout

    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown)["pods"][0]["name"] == name


def test_a_pipe_gets_no_colours_and_unbroken_lines(bad: Path) -> None:
    result = subprocess.run(command("check", bad), capture_output=True, text=True, env=environment(), check=False)
    assert "\x1b" not in result.stdout
    assert result.stdout.splitlines()[0].endswith("[unknown-field]")
    assert (result.returncode, result.stderr) == (1, "")


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


def test_an_error_about_another_file_is_not_a_full_disk() -> None:
    @click.command(cls=Command)
    def fails() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere.yaml")

    with pytest.raises(OSError, match=r"somewhere\.yaml"):
        Root("gpu-rules", commands=[fails]).main(["fails"], standalone_mode=False)


def test_a_missing_path_of_rules_is_reported_for_its_option(bad: Path) -> None:
    result = cli("explain", "-f", bad / "a.yaml", "--rules", bad / "a.yaml", "absent.yaml")
    assert result.exit_code == 2
    assert "Invalid value for '--rules': 'absent.yaml' is no file or folder" in result.stderr


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
    assert "..." not in shown.partition("Write rules:")[2].partition("Examples:")[0]


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_examples_of_help_are_right(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is run, but those that need a cluster or start a server: these are only parsed."""
    site = ROOT / "rules" / "gpu-allocation"
    rules = {"rules/ladder.yaml": (site / "ladder.yaml").read_text()}
    test = (site / "gpu-allocation.test.yaml").read_text().partition("\n---\n")[0]
    pod = "kind: Pod\nmetadata: {name: p, namespace: ml}\nspec: {containers: [{name: c}]}\n"
    cluster = (ROOT / "examples" / "inventories" / "two-workers.yaml").read_text()
    spec = "spec: {cluster: {file: cluster.yaml}, arrivals: [{podFile: gpu.yaml}]}"
    load = f"apiVersion: gpurules.io/v1\nkind: Simulation\nmetadata: {{name: load}}\n{spec}\n"
    files = {
        "load.yaml": load,
        "rules/ladder.test.yaml": test,
        "ladder.yaml": rules["rules/ladder.yaml"],
        "cluster.yaml": cluster,
    }
    gpu = "kind: Pod\nspec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}\n"
    injector = '{"resourceMap": {"V100": {"nvidia.com/gpu": {"annotations": {"a": "b"}}}}}'
    manifests = {"old.json": injector, "pod.yaml": pod, "gpu.yaml": gpu, "job.yaml": pod.replace(", namespace: ml", "")}
    manifests["a.yaml"] = pod
    pod_name = {"namespace": "ml", "pod": "train"}
    decision = {"time": "", "endpoint": "mutate", "dryRun": False, "outcome": "Allowed", **pod_name}
    log = {"log.jsonl": f"{json.dumps(decision)}\n"}
    dumps = {"cluster.json": "{}", "a.json": "{}", "must-gather/nodes.json": "{}"}
    sources = {"a/rules.yaml": rules["rules/ladder.yaml"], "b/rules.yaml": "", "new-rules/rules.yaml": ""}
    monkeypatch.chdir(write(tmp_path, {**rules, **files, **manifests, **log, **dumps, **sources}))
    words = shlex.split(line[line.index("gpu-rules ") :])
    arguments = words[: words.index(">")] if ">" in words else words
    source = arguments[arguments.index("<") + 1] if "<" in arguments else "pod.yaml"
    arguments = arguments[: arguments.index("<")] if "<" in arguments else arguments
    assert arguments[:2] == ["gpu-rules", name]
    live = name == "preflight" and "--cluster" not in line
    if name in ("serve", "capture", "demo", "diff", "doctor", "playground") or live or "kubeconfig" in line:
        server_command.commands[name].make_context(name, arguments[2:])
        return
    result = cli(*arguments[1:], stdin=Path(source).read_text())
    assert result.exit_code == 0, result.output
    assert result.stdout


@pytest.mark.parametrize("package", ["rules_engine.cli", "rules_engine.server.commands"])
def test_help_imports_only_the_command_line(package: str) -> None:
    readers = ("yaml", "jsonschema", "lark")
    others = ("rules_engine.", "rich", *readers, "flask", "uvloop", "kubernetes", "cryptography")
    program = (
        f"import sys, {package}; found = [name for name in sys.modules if name.startswith({others})]; "
        "print([name for name in sorted(found) if not name.startswith(('rules_engine.cli', 'rules_engine.server'))])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True
    )
    names = ["exports", "exports.settings", "model", "model.kubernetes", "model.kubernetes.names"]
    assert result.stdout == f"{[f'rules_engine.{name}' for name in names]}\n"


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_schema_prints_the_schema_of_a_kind_in_any_case(kind: str) -> None:
    for written in (kind, kind.lower()):
        assert json.loads(cli("schema", written).stdout) == schema(kind)


def test_an_unknown_kind_is_a_usage_error_with_a_suggestion() -> None:
    result = cli("schema", "FalbackLader")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown name 'FalbackLader' (did you mean 'FallbackLadder'?)" in result.stderr


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
