"""WorkloadKinds of users: checked with the rules, and used for the pods of manifests."""

import json
from pathlib import Path

import pytest

from rules_engine.authoring.check.check import check_files
from tests.support.authoring import cli, validation, write
from tests.support.loading import rule

RULES = validation("v", "'true'", match="{namespaces: [default]}")
TEMPLATE = "{spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
CLUSTER = rule("ClusterInventory", "{nodes: [{name: a, cards: 8}]}")
DIGITS = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
EXPENSIVE = DIGITS
for name in "abcdefg":
    EXPENSIVE = f"{DIGITS}.map({name}, {EXPENSIVE}.size())"
"""Ten million steps: many seconds."""


def kind(group: str, name: str, template: str, title: str = "own") -> str:
    return rule(
        "WorkloadKind", f"{{group: {group}, kind: {name}, templates: [{{path: spec.template, {template}}}]}}", title
    )


@pytest.mark.parametrize(
    ("api_version", "name", "pods", "count", "warning"),
    [
        ("x.y/v1", "Own", "object.spec.n + 1", 4, ""),
        ("batch/v1", "Job", "object.spec.n + 1", 4, ""),
        ("x.y/v2", "Other", "3", 1, "number of pods of Other/it unknown: 1 assumed (Other is no"),
        ("x.y/v1", "Own", "object.spec.m", 1, "its row in the table, own, fails: object.spec.m: no such key"),
        ("x.y/v1", "Own", "object.spec.template", 1, "its row in the table, own, fails: pods is not an int"),
        ("x.y/v1", "Own", f"{EXPENSIVE}.size()", 1, "the cost limit of 2000000 for the workload kinds of one input"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_commands_count_the_pods_of_own_kinds(
    api_version: str, name: str, pods: str, count: int, warning: str, tmp_path: Path
) -> None:
    own = kind(*(("batch", "Job") if name == "Job" else ("x.y", "Own")), f'pods: "{pods}"')
    manifest = (
        f"{{apiVersion: {api_version}, kind: {name}, metadata: {{name: it}}, spec: {{n: 3, template: {TEMPLATE}}}}}"
    )
    write(tmp_path, {"rules/v.yaml": RULES, "rules/own.yaml": own, "it.yaml": manifest, "c.yaml": CLUSTER})
    rules, options = tmp_path / "rules", ("-f", tmp_path / "it.yaml", "--cluster", tmp_path / "c.yaml", "-o", "json")
    preflight = json.loads(cli("preflight", "--rules", rules, *options).stdout)
    diff = json.loads(cli("diff", "--old", rules / "v.yaml", "--new", rules, *options).stdout)
    assert (preflight["workloads"][0]["pods"], diff["clusters"][0]["pods"]) == (count, count)
    for answer in (preflight, diff):
        messages = [problem["message"] for problem in answer["problems"] if problem["code"] == "unknown-pods"]
        assert [warning for message in messages if warning in message] == ([warning] if warning else []), messages


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (kind("x.y", "Own", "pods: '3'"), []),
        (kind("x.y", "Own", "pods: objct.n"), ["4:71: undeclared reference to 'objct' (did you mean 'object'?)"]),
        (
            kind("x.y", "Own", "pods: item.n, name: '3'"),
            ["4:86: the expression must be string, not int (write string(…))"],
        ),
        (kind("x.y", "Own", "pod: 'value', nme: a"), ["4:79: pod template has no field 'nme' (did you mean 'name'?)"]),
        (kind("x.y", "own", "pods: '3'"), ["4:26: 'own' is not a kind such as RayCluster"]),
        (
            rule("WorkloadKind", "{group: x, kind: A, references: {item: {kind: \"'B'\", name: \"'c'\"}}}"),
            ["4:40: 'item' has a meaning of its own here: choose another name"],
        ),
        (
            f"{kind('x.y', 'Own', 'pods: object.n')}---\n{kind('x.y', 'Own', 'pods: object.m', 'second')}",
            ["8:18: Own of the API group 'x.y' is already defined in kinds.yaml:3:18"],
        ),
    ],
)
def test_check_finds_mistakes_in_a_folder_of_kinds(
    text: str, problems: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path, {"kinds.yaml": text}))
    found = check_files(["kinds.yaml"]).answer.problems
    assert [f"{each.location.line}:{each.location.column}: {each.message}" for each in found] == problems
