"""Each command takes each form of a cluster, and answers the same."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from server.cli import main
from tests.support.authoring import ladder, write
from tests.support.cluster_files import FORMS, OBJECTS, as_yaml, written
from tests.support.loading import rule

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"

FILES = {
    "old.yaml": ladder("fall", MIG, GPU),
    "new.yaml": ladder("fall", MIG, f"{{resource: {GPU}, when: 'false'}}"),
    "pod.yaml": "kind: Pod\nmetadata: {name: new, namespace: ml}\n"
    f"spec: {{containers: [{{name: main, resources: {{limits: {{{MIG}: 1}}}}}}]}}\n",
    "load.yaml": rule("Simulation", "{arrivals: [{count: 9, podFile: pod.yaml}]}"),
}

COMMANDS = {
    "check": "check old.yaml --cluster CLUSTER",
    "diff -f": "diff --old old.yaml --new new.yaml -f pod.yaml --cluster CLUSTER",
    "diff": "diff --old old.yaml --new new.yaml --cluster CLUSTER",
    "doctor": "doctor --rules old.yaml --cluster CLUSTER",
    "effective": "effective --rules old.yaml -n ml --cluster CLUSTER",
    "eval": f"eval cluster.available('{GPU}') -f pod.yaml --cluster CLUSTER",
    "explain": "explain -f pod.yaml --rules old.yaml --cluster CLUSTER",
    "plan": "plan -f load.yaml --rules old.yaml --cards 2xA30 --cluster CLUSTER",
    "preflight": "preflight -f pod.yaml --rules old.yaml --cluster CLUSTER",
    "sets suggest": "sets suggest --cluster CLUSTER",
    "simulate": "simulate -f load.yaml --rules old.yaml --cluster CLUSTER",
}
"""A use of each command that reads a cluster."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, FILES))
    return tmp_path


def run(command: str, cluster: Path | str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, command.replace("CLUSTER", str(cluster)).split(), input=stdin)


def answer(result: Result) -> tuple[int, str]:
    """Return the exit code and the output, in which standard input has the name of the files."""
    assert result.stderr == ""
    return result.exit_code, result.stdout.replace("<stdin>", "c")


EXPECTED = {
    "check": (0, "1 file checked"),
    "diff -f": (1, "ml/new"),
    "diff": (0, "2 pods"),
    "doctor": (0, "Node a"),
    "effective": (0, "fall"),
    "eval": (0, "6 : int"),
    "explain": (0, f"changed: {MIG} → {GPU}"),
    "plan": (0, "A30"),
    "preflight": (0, "starts"),
    "sets suggest": (0, "set"),
    "simulate": (0, "pods"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_answers_the_same_for_each_form(folder: Path, command: str, form: str) -> None:
    first = written(folder, "a list in JSON")
    expected = answer(run(COMMANDS[command], first))
    code, part = EXPECTED[command]
    assert (expected[0], part in expected[1]) == (code, True), expected
    other = written(folder, form)
    if command == "doctor" and "inventory" in form:  # which does not say what other objects there are
        assert run(COMMANDS[command], other).exit_code == 0
        return
    assert answer(run(COMMANDS[command], other)) == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_reads_standard_input_and_folders(folder: Path, command: str) -> None:
    first = written(folder, "a list in JSON")
    expected = answer(run(COMMANDS[command], first))
    assert answer(run(COMMANDS[command], "-", stdin=first.read_text())) == expected
    gathered = folder / "c"
    gathered.mkdir()
    for number, each in enumerate(OBJECTS):
        (gathered / f"{number}.yaml").write_text(as_yaml(each))
    assert answer(run(COMMANDS[command], "c")) == expected
