"""The field of a rule that decided: its path in the document, and its location."""

from pathlib import Path

import pytest

from rules_engine.model.json.patch import Json
from rules_engine.model.rules.decision import Step
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_files import read_rules
from tests.support.authoring import injection, ladder, validation, write
from tests.support.evaluation import GPU, MIG1, MIG2, asks, cluster, container, pod, request

LADDER = f"{{resource: {MIG2}}}", f"{{resource: {MIG1}, when: 'false'}}", f"{{resource: {GPU}, assume: true}}"


def last_step(folder: Path, rules: str, made: Json, namespace: str = "ml", operation: str = "CREATE") -> Step:
    """Return the step of the last rule of a file."""
    write(folder, {"rules.yaml": rules})
    files = read_rules([folder / "rules.yaml"])
    assert not files.failed, files.problems
    sent = request(made, namespace=namespace, operation=operation, old_object=made)
    decide = RuleSet.validate if "kind: Validation" in rules else RuleSet.mutate
    return decide(files.rule_set, sent, cluster({MIG1: 1})).trace[-1]


def deciding_fields(folder: Path, step: Step) -> dict[str, str]:
    """Return the text at the location of each field, by its path."""
    lines = (folder / "rules.yaml").read_text().splitlines()
    return {field.path: lines[field.location.line - 1][field.location.column - 1 :] for field in step.fields}


@pytest.mark.parametrize(
    ("match", "path"),
    [
        ("{namespaces: [other]}", "match.namespaces"),
        ("{excludeNamespaces: [ml]}", "match.excludeNamespaces"),
        ("{namespaceSelector: {matchLabels: {a: b}}}", "match.namespaceSelector"),
        ("{objectSelector: {matchLabels: {a: b}}}", "match.objectSelector"),
        ("{resources: [x.y/z]}", "match.resources"),
        ("{operations: [UPDATE]}", "match.operations"),
    ],
)
def test_a_mismatch_has_the_member_of_match(tmp_path: Path, match: str, path: str) -> None:
    step = last_step(tmp_path, validation("v", "has(object.spec)", match=match), asks({GPU: 1}))
    assert deciding_fields(tmp_path, step) == {path: f"{match[1:]}"}


def test_a_mismatch_with_a_default_has_no_field(tmp_path: Path) -> None:
    operations = "{operations: [UPDATE]}"
    rules = f"{validation('a', 'has(object.spec)', match=operations)}---\n{validation('b', 'has(object.spec)')}"
    step = last_step(tmp_path, rules, asks({GPU: 1}), operation="UPDATE")
    assert (step.reason, step.fields) == ("operation", ())


def test_a_false_match_condition_has_its_expression(tmp_path: Path) -> None:
    conditions = "[{name: one, expression: 'true'}, {name: two, expression: '1 > 2'}]"
    step = last_step(tmp_path, validation("v", "has(object.spec)", matchConditions=conditions), asks({GPU: 1}))
    assert deciding_fields(tmp_path, step) == {"matchConditions[1].expression": "1 > 2'}]"}


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_an_evaluation_error_has_its_place_in_the_expression(tmp_path: Path, policy: str) -> None:
    variables = "[{name: a, expression: '1'}, {name: b, expression: object.spec.priority}]"
    rules = validation("v", "variables.b == 1", variables=variables, failurePolicy=policy)
    step = last_step(tmp_path, rules, asks({GPU: 1}))
    assert deciding_fields(tmp_path, step) == {"variables[1].expression": "priority}]"}


def test_an_error_without_a_place_has_no_field(tmp_path: Path) -> None:
    step = last_step(tmp_path, ladder("l", *LADDER), pod(*[container(f"c{n}", {MIG2: 1}) for n in range(257)]))
    assert (step.reason, step.fields) == ("evaluation-error", ())


def test_a_failed_validation_has_each_expression_that_does_not_hold(tmp_path: Path) -> None:
    rules = validation("v", "1 > 2") + "    - expression: 1 < 2\n    - expression: 3 > 4\n"
    step = last_step(tmp_path, rules, asks({GPU: 1}))
    assert deciding_fields(tmp_path, step) == {
        "validations[0].expression": "1 > 2",
        "validations[2].expression": "3 > 4",
    }
    members = step.to_json()
    assert members["field"] == "validations[0].expression"
    assert members["source"] == f"{tmp_path}/rules.yaml:6:19"
    assert members["furtherFields"] == [{"source": f"{tmp_path}/rules.yaml:8:19", "field": "validations[2].expression"}]


def test_a_move_has_the_rung_that_the_pod_gets_and_a_rejection_its_condition(tmp_path: Path) -> None:
    step = last_step(tmp_path, ladder("l", *LADDER), asks({MIG2: 1}))
    assert deciding_fields(tmp_path, step) == {"rungs[2]": f"{GPU}, assume: true}}"}
    (decision,) = step.resources
    assert [attempt.field and attempt.field.path for attempt in decision.attempts] == [None, "rungs[1].when", None]
    assert decision.attempts[1].to_json() == {
        "resource": MIG1,
        "taken": False,
        "reason": "its condition is false",
        "source": f"{tmp_path}/rules.yaml:7:49",
        "field": "rungs[1].when",
    }


def test_a_request_that_stays_has_its_rung(tmp_path: Path) -> None:
    step = last_step(tmp_path, ladder("l", *LADDER), asks({MIG1: 1}))
    assert deciding_fields(tmp_path, step) == {"rungs[1]": f"{MIG1}, when: 'false'}}"}


def test_a_ladder_that_denies_has_when_exhausted(tmp_path: Path) -> None:
    step = last_step(tmp_path, ladder("l", MIG2, "x.y/z", whenExhausted="Deny"), asks({MIG2: 1}))
    assert deciding_fields(tmp_path, step) == {"whenExhausted": "whenExhausted: Deny"}


def test_a_ladder_without_a_request_has_its_rungs(tmp_path: Path) -> None:
    step = last_step(tmp_path, ladder("l", MIG2, "x.y/z"), asks({GPU: 1}))
    assert deciding_fields(tmp_path, step) == {"rungs": "rungs:"}


def test_a_resource_that_another_ladder_decided_has_its_rung(tmp_path: Path) -> None:
    rules = f"{ladder('a', *LADDER)}---\n{ladder('b', MIG1, GPU)}"
    step = last_step(tmp_path, rules, asks({MIG2: 1}))
    assert (step.reason, deciding_fields(tmp_path, step)) == ("already-decided", {"rungs[1]": f"{GPU}}}"})


NAMESPACES = "{team-a: {inherit: Merge, coefficients: {memory: 1Gi}}, team-b: {coefficients: {cpu: 8}}, team-c: {}}"


@pytest.mark.parametrize(
    ("namespace", "path", "text"),
    [
        ("team-a", "namespaces.team-a", "team-a: {inherit"),
        ("team-b", "namespaces.team-b", "team-b: {coeff"),
        ("team-c", "namespaces.team-c", "team-c: {}}"),
        ("ml", "coefficients", "coefficients: {cpu: 4}"),
    ],
)
def test_an_injection_has_the_entry_of_the_namespace(tmp_path: Path, namespace: str, path: str, text: str) -> None:
    step = last_step(tmp_path, injection("i", namespaces=NAMESPACES), asks({GPU: 1}), namespace)
    ((field, source_text),) = deciding_fields(tmp_path, step).items()
    assert (field, source_text[: len(text)]) == (path, text)


def test_an_inherited_amount_has_the_default_coefficient(tmp_path: Path) -> None:
    step = last_step(tmp_path, injection("i", namespaces=NAMESPACES), asks({GPU: 1}), "team-a")
    places = {amount.resource: amount.field and amount.field.path for amount in step.amounts}
    assert places == {"cpu": "coefficients.cpu", "memory": None}
    (inherited,) = [amount for amount in step.amounts if amount.resource == "cpu"]
    assert inherited.to_json() == {
        "container": "main",
        "resource": "cpu",
        "before": None,
        "after": "4",
        "source": f"{tmp_path}/rules.yaml:5:18",
        "field": "coefficients.cpu",
    }


@pytest.mark.parametrize(
    ("fields", "made", "path"),
    [
        ({"gpuType": "V100"}, asks({GPU: 1}), "gpuType"),
        ({"gpuResource": GPU}, asks({MIG1: 1}), "gpuResource"),
        ({"coefficients": "{cpu: 1}"}, pod(container("a", {GPU: 1}), container("b", {"cpu": 2})), "coefficients"),
        ({"initContainers": "Deny"}, pod(init=[container("a", {GPU: 1})]), "initContainers"),
        ({"initContainers": "Ignore"}, pod(init=[container("a", {GPU: 1})]), "initContainers"),
    ],
)
def test_an_injection_that_injects_nothing_has_the_reason(
    tmp_path: Path, fields: dict[str, str], made: Json, path: str
) -> None:
    step = last_step(tmp_path, injection("i", **fields), made)
    assert list(deciding_fields(tmp_path, step)) == [path]


def test_an_injection_without_a_default_has_no_field_for_it(tmp_path: Path) -> None:
    rules = injection("i", namespaces=NAMESPACES).replace("  coefficients: {cpu: 4}\n", "")
    step = last_step(tmp_path, rules.replace("inherit: Merge, ", ""), asks({GPU: 1}))
    assert (step.reason, step.fields) == ("empty-entry", ())
