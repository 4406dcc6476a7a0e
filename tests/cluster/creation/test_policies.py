"""ValidatingAdmissionPolicies refuse pods as the API server does; what is not known is named."""

from typing import Any

import pytest

from rules_engine.cluster.creation import policies
from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.cluster.creation.policies import MUTATING, VALIDATING, validate
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.native_objects import RULES_ANNOTATION
from rules_engine.model.kubernetes.removed_values import remove_values

PODS: Any = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}
NAMESPACE: Any = {"metadata": {"name": "ml", "labels": {"team": "a"}, "annotations": {"cost": "1"}}}
POD: Any = {
    "metadata": {"generateName": "web-", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "x"}]},
}
DENIED = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "

ABSENT = "object.spec.nodeName == ''"
ABSENT_ERROR = (
    "expression 'object.spec.nodeName == ''' resulted in error: object.spec.nodeName: "
    "no such key (.? and [?…] read what may be absent)"
)


def policy(*validations: Any, name: str = "p", annotations: Any = None, rules: Any = (PODS,), **spec: Any) -> Any:
    """Return a policy for pods; a validation may be an expression."""
    items = [{"expression": each} if isinstance(each, str) else each for each in validations]
    constraints = {"resourceRules": [*rules], **spec.pop("matchConstraints", {})}
    spec = {"matchConstraints": constraints, "validations": items, **spec}
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


def denial(message_expression: str, message: str = "") -> Any:
    return {"expression": "false", "message": message, "messageExpression": message_expression}


def binding(policy: str = "p", *, name: str = "b", actions: Any = ("Deny",), **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": [*actions], **spec}}


def outcome(
    *items: Any, bindings: Any = None, pod: Any = None, kind: str = VALIDATING, absent: bool = False
) -> tuple[str, list[str]]:
    """Return why policies refuse a pod, and what is not known."""
    by_kind: Any = {kind: items, f"{kind}Binding": [binding()] if bindings is None else bindings}
    if not absent:
        by_kind["Namespace"] = [NAMESPACE]
    objects = ClusterObjects(by_kind, absent=frozenset({"Namespace"} if absent else ()))
    creation = PodCreation(pod=POD if pod is None else pod, namespace="ml", objects=objects)
    try:
        validate(creation)
    except RefusedError as error:
        return str(error), creation.unknown
    return "", creation.unknown


def message(*items: Any, **arguments: Any) -> str:
    """Return why policies refuse a pod, where all is known."""
    found, unknown = outcome(*items, **arguments)
    assert unknown == []
    return found.removeprefix(DENIED)


def doubts(*items: Any, **arguments: Any) -> list[str]:
    """Return what is not known of policies that may refuse a pod."""
    found, unknown = outcome(*items, **arguments)
    assert found == ""
    return [text.removeprefix(f"{VALIDATING} p, which ") for text in unknown]


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ("true", ""),
        ("object.spec.containers.all(c, c.image != '')", ""),
        (" has(object.spec.nodeName) ", "failed expression: has(object.spec.nodeName)"),
        ({"expression": "false", "message": " no \n"}, "no"),
        (denial("' not ' + object.metadata.name", "no"), "not web-xxxxx"),
        (denial("object.spec.nodeName", "no"), "no"),
        (denial("request.userInfo.uid", "no"), "no"),
        (denial("' '"), "failed expression: false"),
        ("oldObject == null && request.operation == 'CREATE' && request.namespace == 'ml'", ""),
        ("request.kind.kind == 'Pod' && request.resource.resource == 'pods' && request.name == 'web-xxxxx'", ""),
        ("object.kind == 'Pod' && object.apiVersion == 'v1' && object.metadata.namespace == 'ml'", ""),
        ("namespaceObject.metadata.labels.team == 'a' && namespaceObject.metadata.name == 'ml'", ""),
        ("namespaceObject.metadata.annotations.cost == '1'", ""),
        ("object.status.phase == 'Pending'", ""),
        ("'kubernetes.io/metadata.name' in namespaceObject.metadata.labels", ""),
        (ABSENT, ABSENT_ERROR),
    ],
)  # fmt: skip
def test_validations(validation: Any, expected: str) -> None:
    assert message(policy(validation)) == expected


def test_the_first_denial_counts() -> None:
    assert message(policy("true", {"expression": "false", "message": "one"}, "false")) == "one"
    found = message(policy("false", name="q"), policy("false"), bindings=[binding("q"), binding(), binding(name="a")])
    assert found == "ValidatingAdmissionPolicy 'p' with binding 'a' denied request: failed expression: false"


def test_errors_follow_the_failure_policy() -> None:
    assert message(policy(ABSENT)) == ABSENT_ERROR
    assert message(policy(ABSENT, failurePolicy="Ignore")) == ""
    assert message(policy(ABSENT, "false", failurePolicy="Ignore")) == "failed expression: false"


def test_match_conditions() -> None:
    def conditions(*expressions: str, **spec: Any) -> str:
        named = [{"name": f"c{number}", "expression": text} for number, text in enumerate(expressions)]
        return message(policy("false", matchConditions=named, **spec))

    assert conditions("true") == "failed expression: false"
    assert conditions("true", "false") == conditions(ABSENT, "false") == ""
    assert conditions(ABSENT, "true") == ABSENT_ERROR
    assert conditions(ABSENT, failurePolicy="Ignore") == ""
    assert "resulted in error" in conditions("namespaceObject.metadata.name == 'ml'")


def test_variables() -> None:
    variables = [
        {"name": "images", "expression": "object.spec.containers.map(c, c.image)"},
        {"name": "first", "expression": "variables.images[0]"},
        {"name": "failing", "expression": "object.spec.nodeName"},
    ]
    assert message(policy("variables.first == 'x' || variables.failing == ''", variables=variables)) == ""
    assert "resulted in error" in message(policy("variables.failing == ''", variables=variables))


NAME = "kubernetes.io/metadata.name"


@pytest.mark.parametrize(
    ("constraints", "matches"),
    [
        ({}, True),
        ({"resourceRules": []}, True),
        ({"resourceRules": [{**PODS, "operations": ["UPDATE"]}]}, False),
        ({"resourceRules": [{**PODS, "operations": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}, True),
        ({"resourceRules": [{**PODS, "resources": ["pods/*"]}]}, True),
        ({"resourceRules": [{**PODS, "resources": ["pods/status", "*/scale"]}]}, False),
        ({"resourceRules": [{**PODS, "apiGroups": ["apps"]}]}, False),
        ({"resourceRules": [{**PODS, "apiVersions": ["v2"]}]}, False),
        ({"resourceRules": [{**PODS, "scope": "Cluster"}]}, False),
        ({"resourceRules": [{**PODS, "scope": "Namespaced", "resourceNames": ["web-xxxxx"]}]}, True),
        ({"resourceRules": [{**PODS, "resourceNames": ["other"]}]}, False),
        ({"excludeResourceRules": [PODS]}, False),
        ({"excludeResourceRules": [{**PODS, "resourceNames": ["other"]}]}, True),
        ({"objectSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {}}, True),
        ({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "a", NAME: "ml"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["ml"]}]}}, False),
    ],
)
def test_matching(constraints: Any, matches: bool) -> None:
    expected = "failed expression: false" if matches else ""
    assert message(policy("false", matchConstraints=constraints)) == expected
    assert message(policy("false"), bindings=[binding(matchResources=constraints)]) == expected


def test_policies_that_deny_nothing() -> None:
    assert message(policy("false"), bindings=[]) == ""
    assert message(policy("false"), bindings=[binding("other"), binding(actions=["Warn", "Audit"])]) == ""


def test_policies_that_gpu_rules_exported_are_left_to_its_rules() -> None:
    assert message(policy("false", annotations={RULES_ANNOTATION: "1"})) == ""


def test_what_is_read_and_not_known() -> None:
    assert doubts(policy("request.userInfo.username == 'a'")) == ["reads request.userInfo"]
    assert doubts(policy("request.options.fieldManager == 'a'")) == ["reads request.options"]
    assert doubts(policy("namespaceObject.metadata.name == 'ml'"), absent=True) == [
        "reads namespace ml, which was not read"
    ]
    found = doubts(policy("authorizer.group('').resource('pods').check('create').allowed()"))
    assert found == [
        "is not evaluated: authorizer is not available: rules are evaluated without calls to the API server"
    ]
    assert doubts(policy("variables.a", variables=[{"name": "a", "expression": "?"}]))[0].startswith(
        "is not evaluated: "
    )
    assert doubts(policy(denial("nothing"))) == ["is not evaluated: undeclared reference to 'nothing'"]


def test_what_cannot_change_the_answer_is_not_named() -> None:
    user = "request.userInfo.username == 'a'"
    condition = [{"name": "c", "expression": user}, {"name": "d", "expression": "object.spec.containers.size() == 1"}]
    assert message(policy("true || request.userInfo.username == ''")) == ""
    assert message(policy(user, "false")) == "failed expression: false"
    assert message(policy("true", matchConditions=condition)) == ""
    assert message(policy(user, matchConditions=[*condition, {"name": "e", "expression": "false"}])) == ""
    assert doubts(policy("false", matchConditions=condition)) == ["reads request.userInfo"]
    assert (
        message(policy({"expression": "false", "message": "no", "messageExpression": "request.userInfo.uid"})) == "no"
    )


def test_selectors_of_namespaces_that_were_not_read() -> None:
    def selected(labels: Any) -> tuple[str, list[str]]:
        constraints = {"namespaceSelector": {"matchLabels": labels}}
        return outcome(policy("false", matchConstraints=constraints), absent=True)

    assert selected({"team": "a"}) == ("", [f"{VALIDATING} p, which reads namespace ml, which was not read"])
    assert selected({NAME: "ml"}) == (f"{DENIED}failed expression: false", [])
    assert selected({NAME: "other"}) == ("", [])


def test_parameters() -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    bound: Any = [binding(paramRef={"name": "a", "parameterNotFoundAction": "Allow"})]
    assert message(policy("params == null", paramKind=kind)) == ""
    assert message(policy("true"), bindings=bound) == ""
    assert doubts(policy("true", paramKind=kind), bindings=bound) == [f"{VALIDATING} p, whose parameters were not read"]


def test_values_that_are_never_kept() -> None:
    pod = remove_values({**POD, "spec": {"containers": [{"name": "main", "args": ["x"]}]}}, "Pod")
    variables = [{"name": "named", "expression": "object.spec.containers.filter(c, has(c.args))"}]
    assert doubts(policy("variables.named.size() == 0", variables=variables), pod=pod) == [
        "reads object.spec.containers.args, which is never kept"
    ]
    assert (
        message(policy("object.spec.containers.all(c, has(c.name)) && !has(object.metadata.annotations)"), pod=pod)
        == ""
    )


def test_policies_that_change_pods_are_not_evaluated() -> None:
    def found(**spec: Any) -> list[str]:
        return outcome(policy(**spec), kind=MUTATING)[1]

    unknown = ["MutatingAdmissionPolicy p, which is not evaluated"]
    assert found() == unknown
    assert found(matchConditions=[{"name": "c", "expression": "object.spec.nodeName == ''"}]) == unknown
    assert found(matchConditions=[{"name": "c", "expression": "has(object.spec.nodeName)"}]) == []
    assert found(rules=[{**PODS, "apiGroups": ["apps"]}]) == []


def test_policies_that_cost_too_much_are_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    expensive = "[1, 2, 3, 4, 5].all(a, [1, 2, 3, 4, 5].all(b, a + b > 0))"
    monkeypatch.setattr(policies, "POLICY_COST", 20)
    assert doubts(policy(expensive), policy("false", name="q"), bindings=[binding(), binding("q")]) == [
        "is not evaluated, nor those after it: policies cost more than 20 units"
    ]
    monkeypatch.setattr(policies, "POLICY_COST", 200)
    for _ in range(2):
        expensive = f"[1, 2, 3, 4, 5].all(c, {expensive})"
    assert doubts(policy(denial(f"{expensive} ? 'a' : 'b'"))) == [
        "is not evaluated, nor those after it: policies cost more than 200 units"
    ]


def test_expressions_with_too_many_levels_are_not_evaluated() -> None:
    variables = [{"name": "v0", "expression": "1"}]
    variables += [{"name": f"v{number}", "expression": f"variables.v{number - 1}"} for number in range(1, 300)]
    assert message(policy("variables.v20 == 1", variables=variables[:21])) == ""
    assert doubts(policy("variables.v299 == 1", variables=variables)) == [
        "is not evaluated: with the variables that it reads the expression is nested more than 150 levels deep"
    ]
    variables[0]["expression"] = "request.userInfo.username"
    assert doubts(policy("variables.v40 == ''", variables=variables[:41])) == ["reads request.userInfo"]


def test_policies_are_read_once_for_all_pods() -> None:
    objects = ClusterObjects({VALIDATING: [policy("object.metadata.name == 'a'")], f"{VALIDATING}Binding": [binding()]})
    creations = [PodCreation(pod={"metadata": {"name": name}}, namespace="ml", objects=objects) for name in "ab"]
    validate(creations[0])
    with pytest.raises(RefusedError, match="failed expression"):
        validate(creations[1])
