"""Nodes counted by kind give the answers that looking at each of them would give."""

import string
from collections.abc import Mapping
from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.evaluation.offers import Offers
from rules_engine.evaluation.subject import ClusterFunctions
from rules_engine.evaluation.tallies import ABSENT, MAX_TALLIES, Question, Tally, tally
from rules_engine.model.cluster import Change, Cluster, Node, Taint
from rules_engine.model.patch import Json
from rules_engine.model.placement import Placement
from rules_engine.model.quantity import NANOS
from rules_engine.model.rules import (
    ConditionKind,
    FallbackLadder,
    LabelRequirement,
    LabelSelector,
    NodeFilter,
    NodeRequirement,
    Offered,
)
from tests.support.evaluation import GPU, MIG1, MIG2, cluster, ladder, node
from tests.support.laws import law

RESOURCES = (MIG2, MIG1, GPU)
ZONE, POOL = "zone", "pool"
TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")
SOFT = Taint(key="soft", effect="PreferNoSchedule")
IN_A = LabelSelector((LabelRequirement(ZONE, ConditionKind.IN, ("a",)),))

amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 4), max_size=3)
labels = st.fixed_dictionaries({}, optional={ZONE: st.sampled_from("ab"), POOL: st.sampled_from("xy")})


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    taints = draw(st.sampled_from([(), (TAINT,), (SOFT,), (TAINT, SOFT)]))
    flags = {"ready": draw(st.booleans()), "unschedulable": draw(st.booleans())}
    return node(name, draw(amounts), draw(amounts), labels=draw(labels), taints=taints, **flags)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    return cluster(*[draw(nodes(name)) for name in string.ascii_lowercase[: draw(st.integers(0, 6))]])


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    spec: dict[str, Json] = {"nodeSelector": dict(draw(labels))}
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    if draw(st.booleans()):
        zone: Json = {"key": ZONE, "operator": draw(st.sampled_from(["In", "NotIn"])), "values": ["a"]}
        pool: Json = {"key": POOL, "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}
        terms: list[Json] = [{"matchExpressions": [zone]}, {"matchExpressions": [zone, pool]}, {}]
        if draw(st.integers(0, 3)) == 0:
            operator = draw(st.sampled_from(["In", "NotIn"]))
            field: Json = {"key": "metadata.name", "operator": operator, "values": ["a", "b"]}
            terms = [{"matchFields": [field]}, {"matchFields": [field, field]}, {"matchExpressions": [zone]}]
        chosen = draw(st.lists(st.sampled_from(terms), max_size=2))
        required: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": chosen}}
        spec["affinity"] = {"nodeAffinity": required}
    if draw(st.integers(0, 9)) == 0:
        spec["nodeName"] = "b"
    return Placement.parse(spec)


@st.composite
def ladders(draw: st.DrawFn) -> FallbackLadder:
    require = draw(st.sets(st.sampled_from(NodeRequirement)))
    selector = draw(st.sampled_from([LabelSelector(), IN_A]))
    return ladder(*RESOURCES, offered=draw(st.sampled_from(Offered)), nodes=NodeFilter(selector, frozenset(require)))


def offers(node: Node, resource: str, offered: Offered) -> int | None:
    """What a node offers, by the words of the design."""
    if offered is Offered.AVAILABLE:
        return node.available(resource).nanos
    return node.allocatable[resource].nanos if resource in node.allocatable else None


def one_by_one(on: Cluster, rule: FallbackLadder, placement: Placement, demand: Mapping[str, int]) -> bool:
    """The answer by looking at every node."""
    for one in on.nodes:
        have = {resource: offers(one, resource, rule.offered) for resource in demand}
        require = rule.nodes.require
        if (
            all(amount is not None and amount >= demand[resource] for resource, amount in have.items())
            and (one.ready or NodeRequirement.READY not in require)
            and (not one.unschedulable or NodeRequirement.SCHEDULABLE not in require)
            and (placement.matches(one) or NodeRequirement.MATCHES_POD not in require)
            and rule.nodes.selector.matches(one.labels)
        ):
            return True
    return False


demands = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 5).map(lambda n: n * NANOS), min_size=1)


@law
@given(clusters(), ladders(), placements(), demands)
def test_kinds_of_nodes_offer_what_their_nodes_offer(
    on: Cluster, rule: FallbackLadder, placement: Placement, demand: Mapping[str, int]
) -> None:
    expected = one_by_one(on, rule, placement, demand)
    assert Offers(Question.of(rule), placement, on).cover(demand) is expected
    assert Offers(Question.of(rule), placement, on).cover(demand) is expected  # and when it is asked again


@law
@given(st.data(), clusters(), ladders(), placements(), demands)
def test_a_tally_carried_on_is_the_tally_of_what_is_there(
    data: st.DataObject, on: Cluster, rule: FallbackLadder, placement: Placement, demand: Mapping[str, int]
) -> None:
    Offers(Question.of(rule), placement, on).cover(demand)
    ClusterFunctions(on).total(GPU)
    there = {one.name: one for one in on.nodes}
    changes: list[Change] = []
    for name in data.draw(st.lists(st.sampled_from(string.ascii_lowercase[:8]), unique=True)):
        new = data.draw(st.none() | nodes(name))
        changes.append((there.pop(name, None), new))
        if new is not None:
            there[name] = new
    after = on.changed(tuple(there.values()), changes, {"ml": {}})
    assert (after.nodes, after.namespaces) == (tuple(there.values()), {"ml": {}})
    assert after.views == {key: Tally.of(key, after.nodes) for key in on.views if isinstance(key, Question)}
    assert Offers(Question.of(rule), placement, after).cover(demand) is one_by_one(after, rule, placement, demand)


def test_what_did_not_change_is_shared() -> None:
    on = cluster(node("a", {GPU: 4}, labels={ZONE: "a"}), node("b", {GPU: 4}, labels={ZONE: "b"}))
    asked = Question(
        nodes=NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD})),
        offered=Offered.ALLOCATABLE,
        resources=(GPU,),
        labels=(ZONE,),
    )
    before = tally(on, asked)
    old, _ = on.nodes
    used = node("a", {GPU: 4}, {GPU: 1}, labels={ZONE: "a"})
    assert before.after([(old, used)]) is before
    after = before.after([(old, node("a", {GPU: 8}, labels={ZONE: "a"}))])
    assert [group is after.groups.get(shape) for shape, group in before.groups.items()] == [False, True]


def test_a_kind_goes_with_its_last_node() -> None:
    on = cluster({GPU: 4})
    before = tally(on, Question(offered=Offered.ALLOCATABLE, resources=(GPU,)))
    assert before.after([(on.nodes[0], None)]).groups == {}


def test_alike_nodes_are_one_entry() -> None:
    on = cluster(*[node(f"n{number}", {GPU: 4}, labels={"host": str(number)}) for number in range(100)])
    [(amounts, count)] = tally(on, Question(offered=Offered.ALLOCATABLE, resources=(GPU, MIG1))).each()
    assert (amounts, count) == ((4 * NANOS, ABSENT), 100)


def test_the_memory_of_a_cluster_is_bounded() -> None:
    on = cluster({GPU: 4})
    functions = ClusterFunctions(on)
    for number in range(MAX_TALLIES + 10):
        assert functions.allocatable(f"example.com/r{number}") == 0
    assert len(on.views) == MAX_TALLIES
    assert functions.allocatable(GPU) == 4


def test_threads_may_ask_the_same_cluster() -> None:
    on = cluster(*[{GPU: number} for number in range(50)])
    wrong: list[int] = []

    def ask(start: int) -> None:
        functions = ClusterFunctions(on)
        for number in range(start, start + 200):
            functions.available(f"example.com/r{number}")
            if functions.allocatable(GPU) != 49:
                wrong.append(number)

    threads = [Thread(target=ask, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_views_of_a_cluster_are_no_part_of_its_value() -> None:
    asked, fresh = cluster({GPU: 4}), cluster({GPU: 4})
    ClusterFunctions(asked).total(GPU)
    assert asked == fresh
    assert repr(asked) == repr(fresh)
