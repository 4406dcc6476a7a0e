"""Warnings of members that expressions read without a test of their presence."""

from pathlib import Path

import pytest

from rules_engine.authoring.check.check import check_files
from rules_engine.model.problems.problem import Severity
from tests.support.authoring import injection, ladder, validation, write
from tests.support.diagnostics import document

TEAM = "object.metadata.labels['team']"
LIMITS = "c.resources.limits"
NAME = "object.metadata.name == 'a'"


def absent(tmp_path: Path, *documents: str) -> list[str]:
    """Return the members that may be absent, by the warnings of documents."""
    problems = check_files([write(tmp_path, {"rules.yaml": "---\n".join(documents)})]).answer.problems
    assert {problem.severity for problem in problems} <= {Severity.WARNING}, problems
    return [p.message.removeprefix("fails if ").split(" is absent")[0] for p in problems if p.code == "cel-absent"]


def expression(text: str, **fields: str) -> str:
    """Return a Validation of one expression, with variables for the tests."""
    variables = [
        ("labels", "object.metadata.?labels.orValue({})"),
        ("team", TEAM),
        ("hasTeam", f"has(object.metadata.labels) && 'team' in object.metadata.labels && {TEAM} != ''"),
        ("limited", f"object.spec.containers.filter(c, has({LIMITS}) && 'a/b' in {LIMITS})"),
        ("inits", "has(object.spec.initContainers) ? object.spec.initContainers : []"),
    ]
    lines = "".join(f'\n    - {{name: {name}, expression: "{value}"}}' for name, value in variables)
    return validation("v", f'"{text}"', match="{resources: ['*/*']}", **{"variables": lines, **fields})


@pytest.mark.parametrize(
    ("text", "members"),
    [
        (f"{TEAM} != 'training'", [TEAM]),
        (f"has(object.metadata.labels) && {TEAM} != 'a'", [TEAM]),
        (f"has(object.metadata.labels) || {TEAM} != 'a'", [TEAM]),
        (f"!has(object.metadata.labels.team) && {TEAM} != 'a'", ["object.metadata.labels", TEAM]),
        (f"'team' in object.metadata.labels && {TEAM} != 'a'", ["object.metadata.labels"] * 2),
        (f"'team' in {TEAM.partition('[')[0]} ? true : {TEAM} != 'a'", ["object.metadata.labels", TEAM]),
        (f"(has(object.metadata.labels) || has(object.spec.priority)) && {TEAM} != 'a'", [TEAM]),
        (f"has(object.spec.hostIPC) ? {TEAM} == 'a' : object.spec.hostPID", [TEAM, "object.spec.hostPID"]),
        ("has(object.spec.affinity.nodeAffinity)", ["object.spec.affinity"]),
        ("object.spec.affinity == object.spec.?affinity.value()", ["object.spec.affinity"]),
        ("object.spec.volumes.exists(v, v.configMap.defaultMode == 1)", ["object.spec.volumes", "v.configMap"]),
        (f"object.spec.containers.all(c, {LIMITS}['a/b'] != '2')", [f"{LIMITS}['a/b']"]),
        (f"object.spec.containers.exists(c, has({LIMITS}) && {LIMITS}['a/b'] != '2')", [f"{LIMITS}['a/b']"]),
        (f"object.spec.containers.map(c, c.name != 'a', {LIMITS}['a/b']).size() > 0", [f"{LIMITS}['a/b']"]),
        ("object.spec.containers[0].resources.limits.cpu == '1'", ["object.spec.containers[0].resources.limits.cpu"]),
        ("variables.team == 'a' || variables.team == 'b'", [TEAM]),
        ("variables.labels['app'] == 'a'", ["variables.labels['app']"]),
        ("variables.inits.all(c, c.securityContext.privileged)", ["c.securityContext.privileged"]),
        ("object.metadata.labels[params.key] == 'a'", ["object.metadata.labels[params.key]"]),
        ("['a'].all(k, k in params && object.metadata.labels[k] == 'b')", ["object.metadata.labels"]),
        ("request.userInfo.extra['a'].size() > 0", ["request.userInfo.extra['a']"]),
    ],
)  # fmt: skip
def test_a_member_without_a_test_is_reported(tmp_path: Path, text: str, members: list[str]) -> None:
    assert absent(tmp_path, expression(text, params="{key: team}")) == members


@pytest.mark.parametrize(
    "text",
    [
        f"has(object.metadata.labels) && 'team' in object.metadata.labels && {TEAM} != 'a'",
        f"!has(object.metadata.labels) || !('team' in object.metadata.labels) || {TEAM} != 'a'",
        f"{TEAM} != 'a' || !(has(object.metadata.labels) && 'team' in object.metadata.labels)",
        f"has(object.metadata.labels) && has(object.metadata.labels.team) ? {TEAM} != 'a' : false",
        f"object.metadata.?labels.team.hasValue() && {TEAM} != 'a'",
        f"object.metadata.?labels[?'team'].orValue('') != '' && {TEAM} != 'a'",
        f"!variables.hasTeam || {TEAM} != 'a'",
        "variables.hasTeam && variables.team != 'a'",
        "'app' in variables.labels && variables.labels['app'] == 'a'",
        "variables.labels.all(k, variables.labels[k] != 'a')",
        f"object.spec.containers.all(c, !has({LIMITS}) || !('a/b' in {LIMITS}) || {LIMITS}['a/b'] != '2')",
        f"variables.limited.all(c, {LIMITS}['a/b'] != '2')",
        "variables.limited.size() == 0 || variables.limited[0].resources.limits['a/b'] != '2'",
        f"object.spec.containers.map(c, has({LIMITS}), {LIMITS}).all(l, l.all(k, k != 'a'))",
        f"object.spec.containers.all(c, ['a', 'b'].all(k, has({LIMITS}) && k in {LIMITS} && {LIMITS}['a'] != '1'))",
        "variables.inits.all(c, c.name != 'a')",
        "cel.bind(n, object.spec.priority, !has(object.spec.priority) || n > 0)",
        "cel.bind(found, has(object.spec.priority), found && object.spec.priority > 0)",
        "object.spec.?affinity.optMap(a, has(a.nodeAffinity) && a.nodeAffinity == a.nodeAffinity).orValue(true)",
        "object.spec.containers.all(c, c.image != 'a' && c.imagePullPolicy != 'Never' && c.resources != {})",
        "object.spec.restartPolicy != 'a' && object.metadata.namespace != 'a' && object.spec.containers[0].name != 'a'",
        "!has(object.spec.containers.first().value().stdin) || object.spec.containers.first().value().stdin",
        "'a' in namespaceObject.metadata.labels && namespaceObject.metadata.labels['a'] == 'b' && request.name != 'a'",
        "{'a': 1}['a'] == 1 && [{'a': 1}].all(m, m['a'] == 1) && params.key == 'a' && dyn(object).a.b == 1",
        NAME,
    ],
)
def test_a_tested_or_known_member_is_not_reported(tmp_path: Path, text: str) -> None:
    assert absent(tmp_path, expression(text, params="{key: team}")) == []


CONDITIONS = (
    '[{{name: a, expression: "{}"}}, {{name: b, expression: "\'team\' in object.metadata.?labels.orValue({{}})"}}]'
)


@pytest.mark.parametrize(
    "fields",
    [
        {"matchConditions": CONDITIONS.format("object.spec.enableServiceLinks")},
        # All conditions must hold, in any order: one that is false absorbs the errors of the others.
        {"matchConditions": CONDITIONS.format(f"{TEAM} != 'b'")},
        {"match": "{resources: ['*/*'], objectSelector: {matchLabels: {team: a}}}"},
        {"match": "{objectSelector: {matchExpressions: [{key: team, operator: Exists}]}}"},
    ],
)
def test_conditions_and_selectors_of_a_rule_are_tests(tmp_path: Path, fields: dict[str, str]) -> None:
    assert absent(tmp_path, validation("v", f"\"{TEAM} != 'a'\"", **fields)) == []


def test_a_message_falls_back_so_it_needs_no_test(tmp_path: Path) -> None:
    rule = validation("v", f'"{NAME}"', match="{resources: ['*/*']}")
    message = f'      messageExpression: "{TEAM}"\n'
    assert absent(tmp_path, rule.replace(f'"{NAME}"\n', f'"{NAME}"\n{message}')) == []


def test_a_new_pod_may_have_no_name_at_mutate(tmp_path: Path) -> None:
    """Controllers give it a generateName, which the API server uses after the mutating webhooks."""
    conditions = {"matchConditions": f'[{{name: a, expression: "{NAME}"}}]'}
    rules = [ladder("l", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", **conditions), injection("i", **conditions)]
    assert absent(tmp_path, *rules) == ["object.metadata.name"] * 2


def test_the_condition_of_a_diagnostic_is_a_test(tmp_path: Path) -> None:
    spec = (
        "forEach: Node\nwhen: WHEN\nseverity: Error\nreason: Example\ncause: Nobody knows.\n"
        "messageExpression: object.spec.taints[0].key\nremedies: [{text: Nothing.}]\n"
    )
    read = "object.spec.taints.exists(t, t.key == 'gpu' && t.value == 'a')"
    tested = read.replace("spec.taints", "spec.?taints.orValue([])")
    assert absent(tmp_path, document(spec.replace("WHEN", read))) == [
        "object.spec.taints", "t.value", "object.spec.taints"
    ]  # fmt: skip
    assert absent(tmp_path, document(spec.replace("WHEN", tested))) == ["t.value"]
