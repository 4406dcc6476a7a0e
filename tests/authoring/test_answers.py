"""Answers of the commands for authors as JSON: they agree with their schemas, which reject other documents."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rules_engine.cli.schema import load_schema
from tests.authoring.test_recorded import FALLS, logged, write_log
from tests.support.authoring import cli, injection, ladder, validation, write
from tests.support.evaluation import MIG2, asks

MIG = "nvidia.com/mig-2g.20gb"
FILES = {
    "rules.yaml": "---\n".join(
        (
            ladder("mig", MIG, "{resource: nvidia.com/mig-1g.10gb, when: 1 > 2}", "{resource: nvidia.com/gpu}"),
            injection("v100", namespaces="{ml: {inherit: Merge, coefficients: {memory: 1Gi}}}"),
            validation("never", "1 > 2", mode="Audit"),
            validation("named", "1 < 2", match="{namespaces: [web]}"),
        )
    ),
    "pod.yaml": "kind: Pod\nmetadata: {name: p, namespace: ml}\n"
    f"spec: {{containers: [{{name: c, resources: {{limits: {{{MIG}: 1}}}}}}]}}\n",
    "cluster.yaml": "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: c}\n"
    "spec: {nodes: [{name: a, allocatable: {nvidia.com/gpu: 4}}]}\n",
    "rules.test.yaml": "apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {name: t}\nspec:\n"
    "  rules: [rules.yaml]\n  cluster: {file: cluster.yaml}\n"
    "  cases: [{name: a, podFile: pod.yaml, expect: {allowed: true, containers: {c: {nvidia.com/gpu: 2}}}}]\n",
}
COMMANDS = {
    "check": "check rules.yaml",
    "test": "test rules.test.yaml --coverage",
    "explain": "explain -f pod.yaml --rules rules.yaml --cluster cluster.yaml",
    "explain-from-log": "explain --from-log log.jsonl --pod ml/job",
    "list": "list rules.yaml",
    "list -n": "list rules.yaml -n ml",
    "sets-suggest": "sets suggest --cluster cluster.yaml",
    "native": "native --rules rules.yaml",
    "webhook-config": "webhook-config --rules rules.yaml",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_log(write(tmp_path, FILES), logged("/mutate", asks({MIG2: 2}), FALLS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def validator(name: str) -> Draft202012Validator:
    schema = load_schema(name.partition(" ")[0])
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def document(name: str) -> Any:
    return json.loads(cli(*COMMANDS[name].split(), "-o", "json").stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_agrees_with_its_schema(name: str) -> None:
    assert [error.message for error in validator(name).iter_errors(document(name))] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_problems_alone_are_an_answer_of_each_command(name: str) -> None:
    problem = {"code": "no-rules", "severity": "error", "message": "m", "length": 1}
    place = {"file": "a", "line": 1, "column": 1}
    assert validator(name).is_valid({"problems": [{**problem, "source": place}]})
    assert not validator(name).is_valid({"problems": []})


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("explain", "verdict", None),
        ("explain", "pods.0.verdict", "allowed"),
        ("explain", "pods.0.mutation.trace.0.action", "other"),
        ("explain", "pods.0.mutation.trace.0.newer", 1),
        ("explain", "pods.0.validation", None),
        ("explain-from-log", "decisions.0.patch.0.op", "move"),
        ("explain-from-log", "decisions.0.outcome", None),
        ("check", "errors", "0"),
        ("test", "cases.0.passed", None),
        ("test", "coverage.uncovered.0.source.line", "1"),
        ("list -n", "rules.0.endpoint", "/mutate"),
        ("list -n", "rules.0.settings.0.newer", 1),
        ("sets-suggest", "cards.0.product", 1),
        ("native", "kind", "ConfigMap"),
    ],
)
def test_a_schema_rejects_a_missing_a_wrong_and_an_unknown_member(name: str, path: str, value: Any) -> None:
    """None: the member is missing."""
    changed = answer = document(name)
    *parents, last = path.split(".")
    for parent in parents:
        changed = changed[int(parent) if parent.isdigit() else parent]
    if value is None:
        del changed[last]
    else:
        changed[last] = value
    assert not validator(name).is_valid(answer)


@pytest.mark.parametrize("name", ["explain", "list", "list -n", "native", "webhook-config", "sets-suggest"])
def test_errors_leave_problems_alone(name: str, folder: Path) -> None:
    for file in ("rules.yaml", "cluster.yaml"):
        (folder / file).write_text("kind: [")
    result = cli(*COMMANDS[name].split(), "-o", "json")
    assert (result.exit_code, result.stderr) == (2, "")
    assert json.loads(result.stdout).keys() == {"problems"}
    assert validator(name).is_valid(json.loads(result.stdout))


def test_an_error_of_a_manifest_leaves_problems_alone_or_the_other_pods(folder: Path) -> None:
    (folder / "bad.yaml").write_text("kind: Service\n")
    alone = cli("explain", "-f", "bad.yaml", "-o", "json")
    assert (alone.exit_code, json.loads(alone.stdout).keys()) == (2, {"problems"})
    arguments = (*COMMANDS["explain"].split(), "-f", "bad.yaml")
    both = cli(*arguments, "-o", "json")
    answer = json.loads(both.stdout)
    assert (both.exit_code, answer["verdict"], [pod["verdict"] for pod in answer["pods"]]) == (
        2,
        "Unknown",
        ["Allowed"],
    )
    assert "\nallowed, changed\n" in cli(*arguments).stdout


def test_verdicts_and_counts_are_those_of_the_text() -> None:
    texts = {name: cli(*COMMANDS[name].split()).stdout for name in COMMANDS}
    explained, tested, checked, listed = map(document, ("explain", "test", "check", "list"))
    coverage = tested["coverage"]
    assert (explained["verdict"], texts["explain"].splitlines()[-1]) == ("Allowed", "allowed, changed")
    assert f"{tested['passed']} passed, {tested['failed']} failed\n" in texts["test"]
    share = f"coverage {coverage['percent']:g} %: {coverage['covered']} of {coverage['total']}"
    assert texts["test"].splitlines()[-1] == share
    assert texts["check"].splitlines()[-1] == f"1 file checked, {checked['warnings']} warnings"
    assert [line.split()[1] for line in texts["list"].splitlines()[1:-1]] == [rule["name"] for rule in listed["rules"]]
    names = [f"{rule['kind']}/{rule['name']}" for rule in document("list -n")["rules"]]
    assert re.findall(r"─ (\w+/\w+)  rules.yaml", texts["list -n"]) == names


def test_a_log_without_a_decision_for_the_pod_leaves_problems_alone() -> None:
    result = cli("explain", "--from-log", "log.jsonl", "--pod", "ml/other", "-o", "json")
    assert (result.exit_code, result.stderr) == (2, "")
    answer = json.loads(result.stdout)
    assert [(each["code"], each["source"]["file"]) for each in answer["problems"]] == [("no-answer", "log.jsonl")]
    assert answer.keys() == {"problems"}
