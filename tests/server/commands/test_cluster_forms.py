"""Each command takes each form of a cluster, and answers the same."""

import json
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rules_engine.server.commands import main
from rules_engine.server.commands.playground.answer import CLUSTER_FILE, POD_FILE, RULES_FILE, answer_parts
from rules_engine.server.rules.sources import prepare_sources
from tests.support.authoring import ladder, validation, write
from tests.support.cluster_files import FORMS, OBJECTS, as_yaml, written
from tests.support.loading import rule

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.6gb"
TEAM = "{namespaceSelector: {matchLabels: {team: ml}}}"

FILES = {
    "base.yaml": ladder("fall", MIG, GPU, match=TEAM),
    "old.yaml": ladder("fall", MIG, f"{{resource: {GPU}, when: cluster.available('{GPU}') == 6}}", match=TEAM),
    "new.yaml": validation("full", f"cluster.available('{GPU}') != 8", match=TEAM),
    "pod.yaml": "kind: Pod\nmetadata: {name: new, namespace: ml}\n"
    f"spec: {{containers: [{{name: main, resources: {{limits: {{{MIG}: 1}}}}}}]}}\n",
    "load.yaml": rule("Simulation", "{arrivals: [{count: 9, podFile: pod.yaml}]}"),
}

COMMANDS = {
    "check": ("old.yaml", 0, f"old.yaml:6:18: warning: no node offers {MIG}"),
    "diff -f pod.yaml": ("--old old.yaml --new new.yaml", 1, f"given for {MIG}: {GPU} → {MIG}"),
    "diff": ("--old old.yaml --new new.yaml", 1, "2 of 2 pods changed"),  # 8 are free on the node of each
    "doctor": ("--rules old.yaml", 0, "Info  FeatureDiscoveryMissing  Node a, Node b\n"),
    "list": ("old.yaml -n ml", 0, "namespace ml, namespace labels team=ml"),
    "eval": (f"cluster.available('{GPU}') -f pod.yaml", 0, "6 : int"),
    "explain": ("-f pod.yaml --rules old.yaml", 0, f"changed: {MIG} → {GPU}"),
    "native": ("--rules base.yaml", 0, f"ladders:\n    fall:\n      - {GPU}: 8\n"),
    "plan": (
        "-f load.yaml --rules base.yaml --cards 2xA30",
        0,
        "pods with GPUs on planned nodes, which are left out: 2",
    ),
    "preflight": ("-f pod.yaml --rules old.yaml", 0, "starts: b (or equal nodes: a)"),
    "sets suggest": ("", 0, "NVIDIA-A30      1  mig-a30"),
    "simulate": ("-f load.yaml --rules old.yaml", 0, "Pods  11: 5 pending, 6 running"),
}
"""Each command that reads a cluster: its other arguments, its exit code, and what it answers of this cluster."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("files"), FILES)
    written(folder, "a list in JSON")
    return folder


@pytest.fixture(autouse=True)
def in_folder(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)


def run(command: str, cluster: Path | str, stdin: str | None = None) -> Result:
    arguments = [*command.split(), *COMMANDS[command][0].split(), "--cluster", str(cluster)]
    return CliRunner().invoke(main, arguments, input=stdin)


def answer(result: Result) -> tuple[int, str]:
    """Return the exit code and the output, in which standard input has the name of the files."""
    assert result.stderr == ""
    return result.exit_code, result.stdout.replace("<stdin>", "c")


@cache
def expected(command: str) -> tuple[int, str]:
    _, code, part = COMMANDS[command]
    found = answer(run(command, "c.json"))
    assert (found[0], part in found[1]) == (code, True), found
    return found


def findings(output: str) -> str:
    """Return a diagnosis without what was read: an inventory does not say which other objects there are."""
    return output[output.index("\nFindings") : output.index("\n  not read:")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_answers_the_same_for_each_form(tmp_path: Path, command: str, form: str) -> None:
    code, output = answer(run(command, written(tmp_path, form)))
    if command == "doctor" and "inventory" in form:
        assert (code, findings(output)) == (expected(command)[0], findings(expected(command)[1]))
    else:
        assert (code, output) == expected(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_reads_standard_input_and_folders(tmp_path: Path, command: str) -> None:
    assert answer(run(command, "-", stdin=Path("c.json").read_text())) == expected(command)
    gathered = tmp_path / "c"
    gathered.mkdir()
    for number, each in enumerate(OBJECTS):
        (gathered / f"{number}.yaml").write_text(as_yaml(each))
    assert answer(run(command, gathered)) == expected(command)


def test_each_command_with_a_cluster_is_tested() -> None:
    commands = {
        f"{name} {inner}".strip(): command
        for name, outer in main.commands.items()
        for inner, command in (outer.commands if isinstance(outer, click.Group) else {"": outer}).items()
    }
    reading = {name for name, each in commands.items() if any("--cluster" in option.opts for option in each.params)}
    assert reading == {command.partition(" -f")[0] for command in COMMANDS} | {"playground", "serve"}


@pytest.mark.parametrize("form", FORMS)
def test_the_server_reads_each_form(tmp_path: Path, form: str) -> None:
    prepared, _ = prepare_sources([Path("old.yaml")], written(tmp_path, form))
    assert [str(node.available(GPU)) for node in prepared.cluster.nodes] == ["5", "6"]
    assert prepared.cluster.namespaces == {"ml": {"team": "ml"}}


@pytest.mark.parametrize("form", FORMS)
def test_the_playground_reads_each_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    text = written(tmp_path, form).read_text(encoding="utf-8")
    texts = {RULES_FILE: FILES["old.yaml"], POD_FILE: FILES["pod.yaml"], CLUSTER_FILE: text}
    monkeypatch.chdir(write(tmp_path, texts))
    assert f'"requested": "{MIG}", "given": "{GPU}"' in json.dumps([*answer_parts()])
