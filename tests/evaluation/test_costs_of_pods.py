"""What a pod may cost is bounded by its size, and not by the cluster: counted in steps, on pods that are expensive."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cel import Budget, CostExceeded
from rules_engine.evaluation import mutate
from rules_engine.evaluation.counts import MAX_CONTAINERS
from rules_engine.evaluation.nodes.reach import STRIDE
from rules_engine.model.cluster import Cluster, Node, Taint
from rules_engine.model.decision import Action, Decision
from rules_engine.model.patch import Json
from rules_engine.model.placement import MAX_REQUIREMENTS, MAX_TERMS, MAX_TOLERATIONS
from rules_engine.model.rules import AnyRule, FailurePolicy, FallbackLadder, Mode, NodeFilter, NodeRequirement
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
)
from tests.support.laws import law
from tests.support.placing import expression, lookups, requiring

MATCHES_POD = NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD}))
TYPED = {"task.bkbcs.tencent.com/gpu-type": "V100"}
KEYS = ("zone", "host", "stamp", "none")


def falls(**fields: Any) -> FallbackLadder:
    """A ladder that reads where a pod may run, for each of its rungs."""
    return ladder(MIG2, MIG1, rung(GPU, assume=True), nodes=MATCHES_POD, **fields)


def stocked(count: int, distinct: int = 20) -> Cluster:
    """Nodes in which a label has at most so many values, and which have nothing that a pod could be content with."""
    made = []
    for number in range(count):
        kind = number % distinct
        labels = {"zone": "ab"[kind % 2], "host": f"h{kind}", "stamp": str(1000 + kind)}
        taints = (Taint(key="gpu", effect="NoSchedule"),) if kind % 4 == 0 else ()
        made.append(node(f"n{number}", {MIG1: kind % 3}, labels=labels, taints=taints))
    return cluster(*made)


def decided(made: Json, on: Cluster, *rules: AnyRule, budget: Budget | None = None) -> Decision:
    spent = budget or Budget()
    return mutate(compiled(*rules), request(made), on, budget=lambda: spent)


@st.composite
def expensive_specs(draw: st.DrawFn) -> dict[str, Any]:
    """What says where a pod may run, in sizes up to somewhat more than the bounds."""

    def size(most: int) -> int:
        """Small now and then, as one part is expensive where the others let it be looked at."""
        return draw(st.integers(0, 3) | st.integers(0, most) | st.sampled_from([most, most + 1]))

    def one(values: int) -> dict[str, Json]:
        operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
        start = draw(st.integers(0, 2000))
        chosen: list[Json] = [str(start + number) for number in range(values)]
        if operator in ("Gt", "Lt"):
            chosen = chosen[:1]
        return {"key": draw(st.sampled_from(KEYS)), "operator": operator, "values": chosen}

    terms = size(MAX_TERMS)
    # Each value of what repeats is drawn once: the rest is counted up.
    kinds = [
        {
            "matchExpressions": [one(size(MAX_REQUIREMENTS // (terms + 1)))] * draw(st.integers(0, 3)),
            "matchFields": [{**one(size(20)), "key": "metadata.name"}] * draw(st.integers(0, 1)),
        }
        for _ in range(3)
    ]
    spec: dict[str, Any] = {
        "tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(size(MAX_TOLERATIONS))],
        "nodeSelector": {f"l{number}": "x" for number in range(size(MAX_REQUIREMENTS) if draw(st.booleans()) else 0)},
    }
    if draw(st.integers(0, 3)):
        spec |= requiring(*(kinds[number % 3] for number in range(terms)))
    return spec


@st.composite
def expensive_pods(draw: st.DrawFn) -> dict[str, Json]:
    """Large in every way at once."""
    containers = draw(st.integers(1, 3) | st.sampled_from([MAX_CONTAINERS - 1, MAX_CONTAINERS, MAX_CONTAINERS + 1]))
    init = draw(st.integers(0, 2))
    device = draw(st.sampled_from([{MIG2: 1}, {MIG1: 1, GPU: 1}, {}]))
    many = draw(st.sampled_from([0, 10, 5_000]))
    made: Any = pod(
        *(container(f"c{number}", device) for number in range(containers)),
        init=[container(f"i{number}", device) for number in range(init)],
        labels={f"l{number}": "x" for number in range(many)},
        annotations={f"a{number}": "x" for number in range(many)} | draw(st.sampled_from([{}, TYPED])),
        **draw(expensive_specs()),
    )
    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"o{number}"} for number in range(many)]
    return made  # type: ignore[no-any-return]


def items(value: Json) -> int:
    """How many values there are in a JSON value."""
    if isinstance(value, dict):
        return 1 + sum(map(items, value.values()))
    return 1 + sum(map(items, value)) if isinstance(value, list) else 1


def requirements(spec: Any) -> int:
    """How much of MAX_REQUIREMENTS a pod takes."""
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


@law
@given(expensive_pods())
def test_what_a_pod_costs_is_bounded_by_its_size_and_not_by_the_nodes(made: dict[str, Json]) -> None:
    rules = (falls(failure_policy=FailurePolicy.IGNORE), injection({"cpu": 1}, failure_policy=FailurePolicy.IGNORE))
    spent = []
    for on in (SMALL, LARGE):
        decided(pod(container("warm", {MIG2: 1})), on, *rules)
        budget = Budget()
        with lookups() as counted:
            decided(made, on, *rules, budget=budget)
        assert counted[0] <= budget.spent <= STRIDE * items(made) + 100
        spent.append((budget.spent, counted[0]))
    # Names alone are as many as nodes.
    if "metadata.name" not in str(made):
        assert spent[0] == spent[1]


@law
@given(expensive_pods())
def test_a_pod_is_too_large_for_a_rule_exactly_where_a_bound_says_so(made: dict[str, Any]) -> None:
    spec = made["spec"]
    asks = any("resources" in one for one in spec["containers"])
    crowded = len(spec["containers"]) + len(spec.get("initContainers", [])) > MAX_CONTAINERS
    large = (
        len(spec["tolerations"]) > MAX_TOLERATIONS or terms(spec) > MAX_TERMS or requirements(spec) > MAX_REQUIREMENTS
    )
    [step] = decided(made, SMALL, falls()).trace
    assert (step.reason == "evaluation-error") == (asks and (crowded or large)), step.message


@law
@given(expensive_pods())
def test_a_pod_that_no_rule_is_about_is_never_denied_for_its_size(made: dict[str, Json]) -> None:
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
    """It is an evaluation error of the rules that read it, and of no others."""

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
    """They are an evaluation error of the rules that would change them."""

    MESSAGE = f"/spec/containers: {MAX_CONTAINERS + 1} containers and init containers, more than {MAX_CONTAINERS}"

    def crowd(self, both: dict[str, Any], count: int = MAX_CONTAINERS + 1) -> Any:
        containers = [container(f"c{number}", both) for number in range(count - 1)]
        return pod(*containers, init=[container("i", both)], annotations=TYPED)

    @pytest.mark.parametrize("rule", [ladder(MIG2, MIG1, GPU), injection({"cpu": 1})], ids=["ladder", "injection"])
    def test_the_failure_policy_of_the_rule_decides(self, rule: AnyRule) -> None:
        denied = mutated(self.crowd({GPU: 1}), rule)
        assert denied.status is not None
        assert (denied.status.code, denied.allowed) == (500, False)
        assert denied.status.message.endswith(self.MESSAGE)
        assert mutated(self.crowd({GPU: 1}, MAX_CONTAINERS), rule, on=cluster({GPU: 1000})).allowed

    @pytest.mark.parametrize("rule", [ladder(MIG2, MIG1, GPU), injection({"cpu": 1})], ids=["ladder", "injection"])
    def test_a_pod_that_asks_for_none_of_the_resources_is_not_denied(self, rule: AnyRule) -> None:
        for asked in ({}, {"cpu": 1}, {GPU: 0}):
            assert [step.reason for step in mutated(self.crowd(asked), rule).trace] == ["no-request"]

    def test_an_injection_that_brings_nothing_has_nothing_to_do_with_them(self) -> None:
        [step] = mutated(self.crowd({GPU: 1}), injection({})).trace
        assert step.reason == "empty-entry"


class TestAMalformedPlacement:
    MADE = pod(container("main", {MIG2: 1}), tolerations=["odd"])

    def test_it_is_refused_where_a_rule_reads_it(self) -> None:
        decision = mutated(self.MADE, falls())
        assert decision.status is not None
        assert (decision.status.code, decision.status.reason) == (422, "Invalid")
        assert decision.status.message == "the pod is malformed: /spec/tolerations/0: must be an object, not a string"

    def test_it_is_left_to_the_api_server_where_none_does(self) -> None:
        assert mutated(self.MADE, ladder(MIG2, MIG1), on=cluster({MIG1: 1})).patch

    def test_a_node_name_is_always_read(self) -> None:
        assert mutated(pod(nodeName=1)).refusal is not None


class Stopped(Budget):
    """A budget whose time is up."""

    def __init__(self) -> None:
        super().__init__()
        self.rewind(self.limit)

    def more(self) -> None:
        raise CostExceeded("the time is used up")


def test_the_time_of_a_request_ends_the_search_for_nodes() -> None:
    made = pod(container("main", {MIG2: 1}), **requiring(expression("zone", "Exists")))
    [step] = decided(made, SMALL, falls(failure_policy=FailurePolicy.IGNORE), budget=Stopped()).trace
    assert (step.action, step.message) == (Action.IGNORE, "the time is used up")


def test_a_rule_in_audit_mode_pays_for_itself() -> None:
    made = pod(container("main", {MIG2: 1}), nodeSelector={"zone": "a"})
    budgets = [Budget(), Stopped()]
    rules = compiled(falls(name="a", priority=1, mode=Mode.AUDIT), falls(name="b"))
    steps = mutate(rules, request(made), SMALL, budget=lambda: budgets.pop(0)).trace
    assert [step.reason for step in steps] == ["evaluation-error", "moved"]


def test_the_nodes_of_a_pod_are_searched_once() -> None:
    made = pod(container("main", {MIG2: 1}), **requiring(expression("zone", "Exists")))
    one, three = Budget(), Budget()
    decided(made, SMALL, falls(), budget=one)
    decided(made, SMALL, *(falls(name=name, failure_policy=FailurePolicy.IGNORE) for name in "abc"), budget=three)
    assert one.spent == three.spent > 0


def test_nodes_are_not_looked_at_one_by_one() -> None:
    """Not even to find out that none of thousands of terms matches."""
    on = cluster(*[Node(name=f"n{number}", labels={"host": f"h{number}"}) for number in range(2_000)])
    made = pod(
        container("main", {MIG2: 1}), **requiring(*(expression("host", "In", f"no-{n}") for n in range(MAX_TERMS)))
    )
    budget = Budget()
    with lookups() as counted:
        decided(made, on, falls(), budget=budget)
    assert counted[0] <= budget.spent <= 4 * MAX_TERMS
