"""Exported rules, evaluated as the API server would, decide as the engine does."""

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.creation.limit_range import LIMIT_RANGER_ANNOTATION
from rules_engine.exports.offers import build_offers
from rules_engine.exports.policies import NativeObjects
from rules_engine.exports.settings import Settings
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.model.rules.rule import ConditionKind, FailurePolicy, LabelRequirement, LabelSelector, Match, Rule
from rules_engine.rules.evaluation.admission import validation_request
from rules_engine.rules.ladder.value import FALLBACK_ANNOTATION, WEBHOOK_ANNOTATION, Direction
from rules_engine.rules.native.policy import translate_rules
from tests.models.generated import injections, ladders
from tests.support.evaluation import (
    GPU,
    HCA,
    MIG1,
    MIG2,
    MIG3,
    cluster,
    common,
    compiled,
    container,
    injection,
    ladder,
    pod,
    request,
    rung,
    validation,
)
from tests.support.native import admitted, comparable, defaulted, is_left
from tests.support.native_rules import MUTATIONS, VALIDATIONS


def check(rules: Sequence[Rule], on: Cluster, submitted: Any, namespace: str = "ml") -> None:
    """Compare the outcome of the exported rules with the engine's decisions by the same rules."""
    namespace = submitted["metadata"].get("namespace", namespace)  # the API server refuses other requests
    native = translate_rules(compiled(*rules))
    exported = [rule for rule in rules if rule.id in native.exported_ids]
    if not exported:
        return
    documents = [*NativeObjects(native, "digest", Settings()).policies()]
    outcome = admitted(documents, submitted, offers=build_offers(native, on), namespace=namespace)
    made = request(defaulted(submitted), namespace=namespace)
    every = compiled(*rules)
    rule_set = every.without({rule.id for rule in rules} - native.exported_ids)
    # As for the webhook, the API server evaluates the policy only for pods that name a resource of its rules.
    named = Pod.parse(made.object).named
    sent = any((each.rule.interests.resources or set()) & named for each in native.mutations)
    mutation = rule_set.mutate(made, on) if sent else Decision(object=made.object)
    decision = rule_set.validate(validation_request(made, mutation.result), on) if mutation.allowed else mutation
    if is_left(outcome, mutation):
        return
    assert bool(outcome.denied) == (not decision.allowed), (outcome, decision.trace)
    if decision.allowed:
        expected: Any = copy.deepcopy(mutation.result)
        assert comparable(outcome.pod) == comparable(expected), (outcome.pod, expected)
    elif decision.status is not None and not outcome.denied[0].startswith("error"):
        denials = [step for step in decision.trace if step.action is Action.DENY and not step.audit]
        if any(step.reason == "evaluation-error" for step in denials):
            return  # the API server reports the first check that fails
        texts = [step.message for step in denials]
        message = re.sub("^Validation/[^:]+: ", "", outcome.denied[0])
        assert any(message in text for text in texts), (outcome.denied, texts)


PODS = (
    pod(container("c0", {MIG3: 1}), annotations={WEBHOOK_ANNOTATION: "x->3g.40gb"}),
    pod(container("c0", {MIG3: 1}), annotations={WEBHOOK_ANNOTATION: "x->3g.40gb", FALLBACK_ANNOTATION: "y->x"}),
    pod(container("c0", {MIG3: 1}), container("c1", {MIG2: 2}), annotations={"a/b": "c"}),
    pod(container("c0", {GPU: 2, "cpu": 1}), container("c1", requests={"cpu": "10m", "memory": "100m"})),
    pod(
        container("c0", {GPU: 1}),
        container("c1", requests={GPU: 1}),
        init=[container("i0", {GPU: 2}), container("i1", {GPU: 1}, sidecar=True)],
        annotations={injections.TYPE: "V100"},
        resources={"limits": {"cpu": "1500m"}, "requests": {"cpu": "1"}},
    ),
    pod(container("c0", {GPU: 1}), annotations={injections.TYPE: "V100", "gpurules.io/skip": "true"}),
    pod(container("c0"), labels={"app": "b"}, hostIPC=True),
    *(
        pod(
            container("c0", {GPU: 1}, limits={"cpu": "3"}, requests={"cpu": "500m", "memory": "1Gi"}),
            init=[container("i0", {GPU: 1, "memory": "9Gi"})],
            annotations={injections.TYPE: "V100", LIMIT_RANGER_ANNOTATION: f"LimitRanger plugin set: {text}"},
        )
        for text in (
            "cpu, memory request for container c0; cpu limit for container c0",
            "memory request for container c0; memory limit for init container i0",
            "cpu limit for container c0; memory request for init container i0; memory limit for init container i0",
            "x",
        )
    ),
)


@pytest.mark.parametrize("made", PODS)
def test_chosen_rules_agree(made: Any) -> None:
    on = cluster({MIG1: 7, GPU: 1}, {MIG2: 1})
    for rules in (*MUTATIONS, *([rule] for rule in VALIDATIONS)):
        for namespace in ("ml", "other", "another"):
            check(rules, on, made, namespace)


def test_a_rung_that_another_request_moved_away_from_is_free() -> None:
    rule = ladder(GPU, MIG2, "a.b/c", name="l")
    made = pod(container("c", {MIG2: 2, GPU: 1}))
    check([rule], cluster({MIG2: 1, "a.b/c": 2}), made)


def test_a_pod_falls_to_a_rung_that_an_earlier_ladder_lacks() -> None:
    rules = ladder(GPU, MIG1, name="a"), ladder(MIG3, GPU, MIG2, name="b")
    check(rules, cluster({MIG2: 1}), pod(container("c", {MIG3: 1})))


def test_requests_that_stay_must_be_offered_together() -> None:
    for direction in Direction:
        rule = ladder(MIG3, MIG2, MIG1, rung(GPU, assume=True), name="l", direction=direction)
        made = pod(container("c", {MIG3: 1, MIG1: 1, GPU: 1}))
        for on in (cluster({MIG3: 2}, {MIG1: 7}), cluster({MIG3: 1, MIG1: 1}), cluster({MIG3: 1}, {MIG1: 1})):
            check([rule], on, made)


def test_other_resources_count_unless_rules_give_them_in_the_namespace() -> None:
    given = injection({HCA: 1}, gpu_type=None, match=Match(namespaces=("ml",), exclude_namespaces=("x-*",)))
    rules = compiled(ladder(MIG3, GPU, name="l"), given)
    native, made = translate_rules(rules), pod(container("c", {MIG3: 1, HCA: 1}))
    documents = [*NativeObjects(native, "digest", Settings()).policies()]
    offers = build_offers(native, cluster({GPU: 1}))
    for namespace, limits in (("ml", {GPU: "1", HCA: "1"}), ("other", {MIG3: "1", HCA: "1"})):
        outcome = admitted(documents, made, offers=offers, namespace=namespace)
        assert outcome.pod["spec"]["containers"][0]["resources"]["limits"] == limits
        assert bool(outcome.warned) == (namespace == "other")
        check([ladder(MIG3, GPU, name="l"), given], cluster({GPU: 1}), made, namespace)


@pytest.mark.parametrize("nodes", [{}, {MIG2: 4}])
@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_condition_of_a_rung_that_fails_is_an_error_of_the_rule(policy: FailurePolicy, nodes: Any) -> None:
    rule = ladder(GPU, rung(MIG2, "int(object.metadata.annotations['a/b']) > 1"), name="l", failure_policy=policy)
    for value in ("1", "2", "x"):
        check([rule], cluster({GPU: 0, **nodes}), pod(container("c", {GPU: 1}), annotations={"a/b": value}))


@pytest.mark.parametrize("condition", ["namespaceObject", "object"])
@pytest.mark.parametrize("containers", [1, 17])
@pytest.mark.parametrize("expression", ["true", "object.spec.hostIPC"])
def test_a_match_condition_that_fails_is_an_error_of_the_rule(condition: str, containers: int, expression: str) -> None:
    made = pod(*(container(f"c{index}") for index in range(containers)), labels={"app": "b"})
    conditions = {"c": f"{condition}.metadata.labels['x'] == 'y'"}
    for policy in FailurePolicy:
        rule = validation("true", expression, match_conditions=conditions, failure_policy=policy)
        check([rule], cluster(), made)


TEAM = LabelRequirement("team", ConditionKind.EXISTS, ())


def test_a_rule_of_gpus_denies_no_pod_without_them_beside_a_rule_of_all_pods() -> None:
    conditions = {"c": "object.metadata.labels['x'] == 'y'"}
    of_teams = Match(namespace_selector=LabelSelector((TEAM,)))
    rules = injection({"cpu": 1}, gpu_type=None, match_conditions=conditions), validation("true", match=of_teams)
    for containers in (1, 17):
        check(rules, cluster(), pod(*(container(f"c{index}") for index in range(containers))))
    check(rules, cluster(), pod(container("c", {GPU: 1})))


@given(ladders.cases() | ladders.shared_cases())
def test_ladders_agree(case: Any) -> None:
    on = UNKNOWN_CLUSTER if case["nodes"] is None else Cluster(nodes=tuple(map(ladders.node_of, case["nodes"])))
    check([*map(ladders.rule_of, case["rules"])], on, case["pod"])


@given(injections.cases())
def test_injections_agree(case: Any) -> None:
    check([*map(injections.rule_of, case["rules"])], Cluster(), rounded_up(case["pod"]), case["namespace"])


CONDITIONS = (
    "true",
    "object.spec.containers.size() > 1",
    "'x' in object.metadata.?labels.orValue({})",
    # These fail for some pods.
    "has(object.metadata.labels)",
    "object.metadata.labels['x'] == 'y'",
    "int(object.metadata.labels['x']) > 1",
    "namespaceObject.metadata.labels['x'] == 'y'",
)


@st.composite
def failing_cases(draw: st.DrawFn) -> Any:
    """Return rules whose conditions may fail, nodes, a pod, and its namespace."""
    conditions = st.lists(st.sampled_from(CONDITIONS), max_size=2)
    usual = draw(st.sampled_from(FailurePolicy))

    def fields() -> dict[str, Any]:
        policy = usual if draw(st.integers(0, 5)) else draw(st.sampled_from(FailurePolicy))
        return common({"match_conditions": dict(zip("cd", draw(conditions), strict=False)), "failure_policy": policy})

    injected, moved = draw(injections.cases()), draw(ladders.shared_cases())
    rules: list[Rule] = []
    if draw(st.booleans()):
        rules += [replace(injections.rule_of({**each, "mode": "Enforce"}), **fields()) for each in injected["rules"]]
    if draw(st.booleans()):
        rules += [replace(ladders.rule_of({**each, "matchConditions": []}), **fields()) for each in moved["rules"]]
    for name in "vw"[draw(st.integers(0, 2)) :]:
        checks = draw(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2))
        match = draw(st.sampled_from([Match(), Match(namespace_selector=LabelSelector((TEAM,)))]))
        rules.append(replace(validation(*checks, name=name), match=match, **fields()))
    made = copy.deepcopy(draw(st.sampled_from([injected["pod"], moved["pod"]])))
    labels = draw(st.sampled_from([None, {"x": "y"}, {"x": "2"}, {"z": "1"}]))
    if labels is not None:
        made["metadata"]["labels"] = labels
    return rules, moved["nodes"], made, injected["namespace"]


@given(failing_cases())
def test_rules_whose_conditions_fail_agree(case: Any) -> None:
    rules, nodes, made, namespace = case
    check(rules, Cluster(nodes=tuple(map(ladders.node_of, nodes))), rounded_up(made), namespace)


def rounded_up(submitted: Any) -> Any:
    """Return a pod without fractions of bytes: policies count them as whole ones."""
    made = copy.deepcopy(submitted)
    spec = made["spec"]
    for owner in (*spec["containers"], *spec.get("initContainers", ()), spec):
        for amounts in owner.get("resources", {}).values():
            for name in amounts.keys() - {"cpu", *injections.GPUS}:
                amounts[name] = str(Quantity.parse(amounts[name]).whole)
    return made
