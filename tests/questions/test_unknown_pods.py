"""Input with pods that are not known: exit codes and texts of the commands, by the kinds of the input."""

import json
from pathlib import Path

import pytest

from tests.support.authoring import cli, validation, write
from tests.support.loading import rule
from tests.support.workload_objects import OWN_KIND

TEMPLATE = "{spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
KNOWN = f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{template: {TEMPLATE}}}}}"
FOO = f"{{apiVersion: x.y/v1, kind: Foo, metadata: {{name: one}}, spec: {{template: {TEMPLATE}}}}}"
BAR = "{apiVersion: x.y/v1, kind: Bar, metadata: {name: llm}, spec: {executor: {gpu: nvidia.com/gpu}}}"
OWN = f"{{apiVersion: x.y/v1, kind: Own, metadata: {{name: one}}, spec: {{workers: [{{template: {TEMPLATE}}}]}}}}"
NUMBER = "number of pods of Foo/one unknown: 1 assumed (Foo is no known kind of workload)"
NAMED = "pods of Bar/llm unknown: it names nvidia.com/gpu, and Bar is no known kind of workload"
OF_OWN = "number of pods of Own/one unknown: 1 assumed (Own is no known kind of workload)"

LOAD = "{cluster: {file: cluster.yaml}, arrivals: [{workloadFile: input.yaml, runFor: 1s}]}"
FILES = {
    "keep.yaml": validation("keep", "'true'"),
    "rules/keep.yaml": validation("keep", "'true'"),
    "deny.yaml": validation("deny", "'false'"),
    "rules/own.yaml": OWN_KIND,
    "cluster.yaml": rule("ClusterInventory", "{nodes: [{name: a, allocatable: {cpu: 8, nvidia.com/gpu: 8}}]}"),
    "load.yaml": rule("Simulation", LOAD),
}
COMMANDS = {
    "explain": "explain -f input.yaml --cluster cluster.yaml --rules keep.yaml",
    "diff": "diff -f input.yaml --cluster cluster.yaml --old keep.yaml --new keep.yaml",
    "preflight": "preflight -f input.yaml --cluster cluster.yaml --rules keep.yaml",
    "simulate": "simulate -f load.yaml --rules keep.yaml",
    "plan": "plan -f load.yaml --cards 8xA100-40GB --rules keep.yaml",
    "check": "check load.yaml keep.yaml",
}
WORSE = {
    "explain": COMMANDS["explain"].replace("keep", "deny"),
    "diff": COMMANDS["diff"].replace("new keep", "new deny"),
}
"""Commands whose exit code is 1: a pod is denied, an outcome changed."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, FILES))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("objects", "warning"),
    [([KNOWN], ""), ([FOO], NUMBER), ([KNOWN, BAR], NAMED), ([BAR], NAMED), ([OWN], OF_OWN)],
    ids=["known", "template", "beside", "alone", "own"],
)
def test_pods_that_are_not_known_are_exit_code_3(folder: Path, command: str, objects: list[str], warning: str) -> None:
    write(folder, {"input.yaml": "\n---\n".join(objects)})
    nothing_to_plan = command == "plan" and objects == [BAR]
    code = 2 if nothing_to_plan else 3 if warning and command != "check" else 0
    text, answer = cli(*COMMANDS[command].split()), cli(*COMMANDS[command].split(), "-o", "json")
    assert (text.exit_code, answer.exit_code) == (code, code), text.output
    shown = json.loads(answer.stdout)
    messages = [each["message"] for each in shown["problems"] if each["code"] == "unknown-pods"]
    assert messages == ([warning] if warning else [])
    assert warning in (text.stdout if command == "check" else text.stderr)
    if command in ("explain", "diff", "preflight"):
        assert (shown["verdict"] == "Unknown") == bool(warning)
    if command in ("explain", "diff", "simulate", "plan") and not nothing_to_plan:
        assert (f"this answer may be wrong: {warning}\n" in text.stdout) == bool(warning)


@pytest.mark.parametrize("format", ["markdown", "html"])
def test_each_report_of_a_diff_says_it_in_one_line(folder: Path, format: str) -> None:
    write(folder, {"input.yaml": "\n---\n".join([FOO, BAR])})
    lines = cli(*COMMANDS["diff"].split(), "-o", format).stdout.splitlines()
    assert sum("this answer may be wrong: number of pods of Foo/one unknown" in line for line in lines) == 1
    assert any("(and 1 more such warning)" in line for line in lines)


@pytest.mark.parametrize("command", WORSE)
@pytest.mark.parametrize(("text", "code"), [(FOO, 1), (f"{FOO}\n---\n{BAR}", 1), (f"{FOO}\n---\n{{a: [}}", 2)])
def test_an_error_and_a_finding_are_worse(folder: Path, command: str, text: str, code: int) -> None:
    write(folder, {"input.yaml": text})
    assert cli(*WORSE[command].split()).exit_code == code


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kind_of_the_user_is_known(folder: Path, command: str) -> None:
    write(folder, {"input.yaml": OWN})
    result = cli(*COMMANDS[command].replace("keep.yaml", "rules").split())
    assert (result.exit_code, result.stderr) == (0, "")


def test_objects_to_which_an_arrival_refers_are_found_in_its_file(folder: Path) -> None:
    jobs = f"[{{name: node, template: {{spec: {{template: {TEMPLATE}}}}}}}]"
    template = f"{{metadata: {{}}, spec: {{replicatedJobs: {jobs}}}}}"
    head = "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: "
    runtime = f"{head}TrainingRuntime, metadata: {{name: torch}}, spec: {{template: {template}}}}}"
    reference = "{name: torch, kind: TrainingRuntime}"
    job = f"{head}TrainJob, metadata: {{name: train}}, spec: {{runtimeRef: {reference}, trainer: {{numNodes: 3}}}}}}"
    write(folder, {"input.yaml": f"{runtime}\n---\n{job}"})
    result = cli(*COMMANDS["simulate"].split(), "-o", "json")
    assert json.loads(result.stdout)["results"][0]["totals"]["pods"] == 1
    write(folder, {"input.yaml": job})
    missing = cli(*COMMANDS["simulate"].split())
    assert missing.exit_code == 3
    assert "TrainingRuntime torch is not in the input" in missing.stdout
