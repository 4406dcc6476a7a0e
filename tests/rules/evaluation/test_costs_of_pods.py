"""Costs of expensive pods, counted in steps: bounded by the size of the pod, not by the cluster."""

import sys
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given

from rules_engine.cluster.nodes import Capacity, NodeFilter, NodeRequirement, node_index
from rules_engine.cluster.nodes.offers import AMOUNTS_PER_UNIT
from rules_engine.cluster.nodes.reach import STRIDE
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Node, Taint
from rules_engine.model.kubernetes.placement import MAX_REQUIREMENTS, MAX_TERMS, MAX_TOLERATIONS
from rules_engine.model.rules.decision import Action, Decision
from rules_engine.model.rules.rule import FailurePolicy, Mode, Rule
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.applicability import MAX_CONTAINERS
from rules_engine.rules.ladder.value import FallbackLadder
from tests.support.budgets import units_spent
from tests.support.evaluation import (
    GPU,
    MIG1,
    MIG2,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    mutated,
    node,
    pod,
    request,
    rung,
    validation,
)
from tests.support.expensive import TYPED, expensive_pods
from tests.support.placing import expression, lookups, requiring

MATCHES_POD = NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD}))


def falls(**fields: Any) -> FallbackLadder:
    """A ladder that reads the placement of a pod for each of its rungs."""
    return ladder(MIG2, MIG1, rung(GPU, assume=True), nodes=MATCHES_POD, **fields)


def stocked(count: int, distinct: int = 20) -> Cluster:
    """Nodes with at most `distinct` values of a label, and few devices."""
    made = []
    for number in range(count):
        kind = number % distinct
        labels = {"zone": "ab"[kind % 2], "host": f"h{kind}", "stamp": str(1000 + kind)}
        taints = (Taint(key="gpu", effect="NoSchedule"),) if kind % 4 == 0 else ()
        made.append(node(f"n{number}", {MIG1: kind % 3}, labels=labels, taints=taints))
    return cluster(*made)


def decided(made: Json, on: Cluster, *rules: Rule, budget: Budget | None = None) -> Decision:
    spent = budget or Budget()
    return compiled(*rules).mutate(request(made), on, budget=lambda: spent)


def items(value: Json) -> int:
    """Number of values in a JSON value."""
    if isinstance(value, dict):
        return 1 + sum(map(items, value.values()))
    return 1 + sum(map(items, value)) if isinstance(value, list) else 1


def requirements(spec: Any) -> int:
    """Number of requirements of a pod, as MAX_REQUIREMENTS counts them."""
    found = len(spec["nodeSelector"])
    affinity = spec.get("affinity", {"nodeAffinity": {}})["nodeAffinity"]
    for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})[
        "nodeSelectorTerms"
    ]:
        found += sum(1 + len(one["values"]) for name in ("matchExpressions", "matchFields") for one in term[name])
    return found


def terms(spec: Any) -> int:
    if "affinity" not in spec:
        return 0
    return len(spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"])


SMALL, LARGE = stocked(20), stocked(400)


@given(expensive_pods())
def test_the_cost_of_a_pod_is_bounded_by_its_size_not_the_nodes(made: dict[str, Json]) -> None:
    rules = (falls(failure_policy=FailurePolicy.IGNORE), injection({"cpu": 1}, failure_policy=FailurePolicy.IGNORE))
    spent = []
    for on in (SMALL, LARGE):
        decided(pod(container("warm", {MIG2: 1})), on, *rules)
        budget = Budget()
        with lookups() as counted:
            decided(made, on, *rules, budget=budget)
        assert counted[0] <= units_spent(budget) <= STRIDE * items(made) + 100
        spent.append((units_spent(budget), counted[0]))
    # Names alone are as many as nodes.
    if "metadata.name" not in str(made):
        assert spent[0] == spent[1]


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({"nodeSelector": {f"l{number}": "x" for number in range(900)}}, 900),
        (requiring(expression("host", "In", *map(str, range(900)))), 900),
        (requiring(*(expression("stamp", "Gt", str(number)) for number in range(900))), 900 * STRIDE),
        ({"tolerations": [{"key": str(number), "operator": "Exists"} for number in range(900)]}, 900),
    ],
    ids=["selector", "values", "numbers", "tolerations"],
)
def test_each_part_of_a_placement_has_a_cost(spec: dict[str, Any], least: int) -> None:
    budget = Budget()
    decided(pod(container("main", {MIG2: 1}), **spec), SMALL, falls(), budget=budget)
    assert least <= units_spent(budget) <= 2 * least + 100


@given(expensive_pods())
def test_a_pod_is_too_large_for_a_rule_exactly_beyond_a_bound(made: dict[str, Any]) -> None:
    spec = made["spec"]
    asks = any("resources" in one for one in spec["containers"])
    crowded = len(spec["containers"]) + len(spec.get("initContainers", [])) > MAX_CONTAINERS
    large = (
        len(spec["tolerations"]) > MAX_TOLERATIONS or terms(spec) > MAX_TERMS or requirements(spec) > MAX_REQUIREMENTS
    )
    [step] = decided(made, SMALL, falls()).trace
    assert (step.reason == "evaluation-error") == (asks and (crowded or large)), step.message


@given(expensive_pods())
def test_a_pod_that_no_rule_matches_is_never_denied_for_its_size(made: dict[str, Json]) -> None:
    other = "example.com/other"
    rules = (ladder(other, nodes=MATCHES_POD), injection({"cpu": 1}, gpu_type=None, gpu_resource=other))
    assert [step.action for step in decided(made, SMALL, *rules).trace] == [Action.SKIP, Action.SKIP]


TERMS = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            requiring(expression("host", "In", "h1"), *[{}] * 20_000),
            f"{TERMS}: 20001 terms of required node affinity, more than 1000",
        ),
        ({"tolerations": [{"operator": "Exists"}] * 98_000}, "/spec/tolerations: 98000 tolerations, more than 1000"),
    ],
    ids=["terms", "tolerations"],
)
class TestTooLargeAPlacement:
    """An evaluation error of the rules that read it, and of no others."""

    def test_the_failure_policy_of_the_rule_decides(self, spec: dict[str, Any], message: str) -> None:
        made = pod(container("main", {MIG2: 1}), **spec)
        denied = mutated(made, falls())
        assert denied.status is not None
        assert (denied.status.code, denied.allowed) == (500, False)
        assert denied.status.message.endswith(f"could not be evaluated: {message}")
        ignored = mutated(made, falls(failure_policy=FailurePolicy.IGNORE))
        assert (ignored.allowed, ignored.patch) == (True, ())
        assert ignored.warnings == (f"FallbackLadder/ladder was ignored: {message}",)
        audited = mutated(made, falls(mode=Mode.AUDIT))
        assert (audited.allowed, audited.patch) == (True, ())

    def test_each_rule_that_reads_it_fails(self, spec: dict[str, Any], message: str) -> None:
        made = pod(container("main", {MIG2: 1}), **spec)
        policy = FailurePolicy.IGNORE
        steps = mutated(made, falls(name="a", failure_policy=policy), falls(name="b", failure_policy=policy)).trace
        assert [step.message for step in steps] == [message, message]

    def test_what_does_not_read_it_is_decided(self, spec: dict[str, Any], message: str) -> None:
        on = cluster({MIG1: 1})
        assert mutated(pod(container("main", {MIG2: 1}), **spec), ladder(MIG2, MIG1), on=on).patch
        assert mutated(pod(container("main", {GPU: 1}), **spec), falls()).trace[0].reason == "assumed"
        assert mutated(pod(container("main"), **spec), falls()).trace[0].reason == "no-request"


class TestTooManyContainers:
    """An evaluation error of the rules that would change them."""

    MESSAGE = f"/spec/containers: {MAX_CONTAINERS + 1} containers and init containers, more than {MAX_CONTAINERS}"

    def crowd(self, both: dict[str, Any], count: int = MAX_CONTAINERS + 1) -> Any:
        containers = [container(f"c{number}", both) for number in range(count - 1)]
        return pod(*containers, init=[container("i", both)], annotations=TYPED)

    @pytest.mark.parametrize("rule", [ladder(MIG2, MIG1, GPU), injection({"cpu": 1})], ids=["ladder", "injection"])
    def test_the_failure_policy_of_the_rule_decides(self, rule: Rule) -> None:
        denied = mutated(self.crowd({GPU: 1}), rule)
        assert denied.status is not None
        assert (denied.status.code, denied.allowed) == (500, False)
        assert denied.status.message.endswith(self.MESSAGE)
        ignored = mutated(self.crowd({GPU: 1}), replace(rule, failure_policy=FailurePolicy.IGNORE))
        assert (ignored.allowed, ignored.patch) == (True, ())
        assert ignored.warnings == (f"{rule.id} was ignored: {self.MESSAGE}",)
        audited = mutated(self.crowd({GPU: 1}), replace(rule, mode=Mode.AUDIT))
        assert (audited.allowed, audited.patch) == (True, ())
        assert mutated(self.crowd({GPU: 1}, MAX_CONTAINERS), rule, on=cluster({GPU: 1000})).allowed

    @pytest.mark.parametrize("rule", [ladder(MIG2, MIG1, GPU), injection({"cpu": 1})], ids=["ladder", "injection"])
    def test_a_pod_that_requests_none_of_the_resources_is_not_denied(self, rule: Rule) -> None:
        for amounts in ({}, {"cpu": 1}, {GPU: 0}):
            assert [step.reason for step in mutated(self.crowd(amounts), rule).trace] == ["no-request"]

    @pytest.mark.parametrize("rule", [ladder, injection], ids=["ladder", "injection"])
    @pytest.mark.parametrize("count", [0, 1])
    def test_more_rules_do_not_read_more_containers(self, rule: Any, count: int) -> None:
        ignoring = FailurePolicy.IGNORE

        def calls(rules: int) -> int:
            made = self.crowd({GPU: count, "cpu": 1}, 1_000)
            names = [f"r{number}" for number in range(rules)]
            if rule is ladder:
                every = [ladder(MIG2, GPU, name=name, failure_policy=ignoring) for name in names]
            else:
                every = [injection({"cpu": 1}, name=name, failure_policy=ignoring) for name in names]
            counted = Counter[str]()
            ready = compiled(*every), request(made)
            sys.setprofile(lambda frame, event, arg: counted.update([event]))
            try:
                RuleSet.mutate(*ready, SMALL)
            finally:
                sys.setprofile(None)
            return counted["call"]

        assert calls(11) - calls(1) < 1_000

    def test_an_injection_without_amounts_is_not_limited(self) -> None:
        [step] = mutated(self.crowd({GPU: 1}), injection({})).trace
        assert step.reason == "empty-entry"


class TestAMalformedPlacement:
    MADE = pod(container("main", {MIG2: 1}), tolerations=["odd"])

    def test_it_is_rejected_if_a_rule_reads_it(self) -> None:
        decision = mutated(self.MADE, falls())
        assert decision.status is not None
        assert (decision.status.code, decision.status.reason) == (422, "Invalid")
        assert decision.status.message == "the pod is malformed: /spec/tolerations/0: must be an object, not a string"

    def test_it_is_ignored_if_no_rule_reads_it(self) -> None:
        assert mutated(self.MADE, ladder(MIG2, MIG1), on=cluster({MIG1: 1})).patch

    def test_a_node_name_is_always_read(self) -> None:
        assert mutated(pod(nodeName=1)).refusal is not None


class Stopped(Budget):
    """A budget whose deadline has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.rewind(self.limit)

    def more(self) -> None:
        raise CostExceeded("the time is used up")


def test_the_time_of_a_request_ends_the_search_for_nodes() -> None:
    made = pod(container("main", {MIG2: 1}), **requiring(expression("zone", "Exists")))
    [step] = decided(made, SMALL, falls(failure_policy=FailurePolicy.IGNORE), budget=Stopped()).trace
    assert (step.action, step.message) == (Action.IGNORE, "the time is used up")


@pytest.mark.parametrize("policy", FailurePolicy)
@pytest.mark.parametrize("nodes", [100, 1], ids=["many nodes", "many containers"])
def test_the_time_of_a_request_ends_the_search_for_an_offer(nodes: int, policy: FailurePolicy) -> None:
    """Also without MatchesPod: each rung is compared with each distinct amount and all containers."""
    on = cluster(*({MIG1: number, GPU: 1} for number in range(nodes)))
    made = pod(*(container(f"c{number}", {MIG2: 1}) for number in range(MAX_CONTAINERS)))
    [step] = decided(made, on, ladder(MIG2, MIG1, GPU, failure_policy=policy), budget=Stopped()).trace
    assert step.action is (Action.DENY if policy is FailurePolicy.FAIL else Action.IGNORE)
    assert step.message.endswith("the time is used up")


def test_the_cost_of_a_ladder_grows_with_amounts_and_containers() -> None:
    names = [f"example.com/r{number}" for number in range(16)]
    rules = ladder(*names)

    def cost(nodes: int, containers: int) -> int:
        budget = Budget()
        made = pod(*(container(f"c{number}", dict.fromkeys(names, 9_000)) for number in range(containers)))
        on = cluster(*(dict.fromkeys(names, number) for number in range(nodes)))
        assert decided(made, on, rules, budget=budget).trace[0].reason == "exhausted"
        return units_spent(budget)

    attempts = 16 * 15 // 2
    assert cost(1, 1) < 10 * attempts
    assert cost(400, 1) >= attempts * 400 // AMOUNTS_PER_UNIT
    assert cost(1, 200) >= attempts * 200 // AMOUNTS_PER_UNIT


def test_an_expression_looks_up_each_resource_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the capacities of all of them are too many."""
    monkeypatch.setattr(node_index, "MAX_CAPACITIES", 1)
    on = cluster({MIG1: 1, MIG2: 2}, {MIG1: 3})
    made = pod(*(container(f"c{number}", {MIG1: 1, MIG2: 1, f"example.com/{number}": 1}) for number in range(50)))
    loop = "c.resources.limits.all(r, cluster.available(r) >= 0 && cluster.total(r) >= 0)"
    rules = compiled(validation(f"object.spec.containers.all(c, {loop})"))
    with patch.object(Capacity, "of", wraps=Capacity.of) as counted:
        [step] = rules.validate(request(made), on).trace
    assert step.action is Action.PASS
    assert counted.call_count == 4


def test_a_rule_in_audit_mode_pays_for_itself() -> None:
    made = pod(container("main", {MIG2: 1}), nodeSelector={"zone": "a"})
    budgets = [Budget(), Stopped()]
    rules = compiled(falls(name="a", priority=1, mode=Mode.AUDIT), falls(name="b"))
    steps = rules.mutate(request(made), SMALL, budget=lambda: budgets.pop(0)).trace
    assert [step.reason for step in steps] == ["evaluation-error", "moved"]


def test_the_nodes_of_a_pod_are_searched_once() -> None:
    made = pod(container("main", {MIG2: 1}), **requiring(expression("zone", "Exists")))
    one, three = Budget(), Budget()
    decided(made, SMALL, falls(), budget=one)
    decided(made, SMALL, *(falls(name=name, failure_policy=FailurePolicy.IGNORE) for name in "abc"), budget=three)
    assert units_spent(one) == units_spent(three) > 0


def test_nodes_are_not_read_one_by_one() -> None:
    """The pod has thousands of terms, none of which matches."""
    on = cluster(*[Node(name=f"n{number}", labels={"host": f"h{number}"}) for number in range(2_000)])
    made = pod(
        container("main", {MIG2: 1}), **requiring(*(expression("host", "In", f"no-{n}") for n in range(MAX_TERMS)))
    )
    budget = Budget()
    with lookups() as counted:
        decided(made, on, falls(), budget=budget)
    assert counted[0] <= units_spent(budget) <= 4 * MAX_TERMS
