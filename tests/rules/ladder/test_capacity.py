"""Capacity by classes of nodes: the same answers as from every node."""

import string
import sys
from collections.abc import Mapping
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import (
    ABSENT,
    Capacity,
    NodeFilter,
    NodeIndex,
    NodeQuery,
    NodeRequirement,
    Offered,
    capacity_of,
    node_index_of,
)
from rules_engine.cluster.nodes.node_index import MAX_CAPACITIES, MAX_CAPACITIES_BYTES
from rules_engine.cluster.nodes.offers import Offers, Reach
from rules_engine.language.cel import Budget
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Node, NodeUpdate, Taint
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector
from rules_engine.rules.ladder.value import FallbackLadder
from rules_engine.rules.rule_set.context import ClusterFunctions
from tests.support.evaluation import GPU, MIG1, MIG2, cluster, ladder, node
from tests.support.placing import expression, requiring, takes

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
def pods(draw: st.DrawFn) -> Pod:
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
    return Pod.parse({"spec": spec})


@st.composite
def ladders(draw: st.DrawFn) -> FallbackLadder:
    require = draw(st.sets(st.sampled_from(NodeRequirement)))
    selector = draw(st.sampled_from([LabelSelector(), IN_A]))
    return ladder(*RESOURCES, offered=draw(st.sampled_from(Offered)), nodes=NodeFilter(selector, frozenset(require)))


def offers(node: Node, resource: str, offered: Offered) -> int | None:
    """The amount that a node offers, by the definition in the documents."""
    if offered is Offered.AVAILABLE:
        return node.available(resource).nanos
    return node.allocatable[resource].nanos if resource in node.allocatable else None


def cover(on: Cluster, rule: FallbackLadder, wanted: Pod, demand: Mapping[str, int]) -> bool:
    return Offers(rule.query, Reach(wanted, on), on, Budget()).cover(demand)


def classes_of(on: Cluster) -> dict[NodeQuery, dict[tuple[int, ...], list[str]]]:
    """The names of the nodes in each class of each capacity."""
    index = node_index_of(on)
    return {
        query: {
            amounts: sorted(node.name for number, node in index.nodes.items() if found.classes[amounts] >> number & 1)
            for amounts in found.classes.members
        }
        for query, found in index.capacities.items()
    }


def one_by_one(on: Cluster, rule: FallbackLadder, wanted: Pod, demand: Mapping[str, int]) -> bool:
    """The answer from every node."""
    for one in on.nodes:
        have = {resource: offers(one, resource, rule.offered) for resource in demand}
        require = rule.nodes.require
        if (
            all(amount is not None and amount >= demand[resource] for resource, amount in have.items())
            and (one.ready or NodeRequirement.READY not in require)
            and (not one.unschedulable or NodeRequirement.SCHEDULABLE not in require)
            and (takes(one, wanted.placement) or NodeRequirement.MATCHES_POD not in require)
            and rule.nodes.selector.matches(one.labels)
        ):
            return True
    return False


demands = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 5).map(lambda n: n * NANOS), min_size=1)


@given(clusters(), ladders(), pods(), demands)
def test_node_classes_offer_the_amounts_of_their_nodes(
    on: Cluster, rule: FallbackLadder, wanted: Pod, demand: Mapping[str, int]
) -> None:
    expected = one_by_one(on, rule, wanted, demand)
    assert cover(on, rule, wanted, demand) is expected
    assert cover(on, rule, wanted, demand) is expected  # from the cache, too


@given(st.data(), clusters(), ladders(), pods(), demands)
def test_an_updated_capacity_equals_a_new_one(
    data: st.DataObject, on: Cluster, rule: FallbackLadder, wanted: Pod, demand: Mapping[str, int]
) -> None:
    cover(on, rule, wanted, demand)
    ClusterFunctions(on).total(GPU)
    there = {one.name: one for one in on.nodes}
    changes: list[NodeUpdate] = []
    for name in data.draw(st.lists(st.sampled_from(string.ascii_lowercase[:8]), unique=True)):
        new = data.draw(st.none() | nodes(name))
        changes.append((there.pop(name, None), new))
        if new is not None:
            there[name] = new
    after = on.changed(tuple(there.values()), changes, {"ml": {}})
    assert (after.nodes, after.namespaces) == (tuple(there.values()), {"ml": {}})
    fresh = Cluster(nodes=after.nodes)
    for query in node_index_of(on).capacities:
        capacity_of(fresh, query)
    assert classes_of(after) == classes_of(fresh)
    assert cover(after, rule, wanted, demand) is one_by_one(after, rule, wanted, demand)


def test_one_node_must_offer_all_amounts_of_a_demand() -> None:
    query = NodeQuery(offered=Offered.ALLOCATABLE, resources=(GPU, MIG1))
    for equal in (1, 100):
        counts = [amounts for amounts in ({GPU: 4}, {GPU: 2, MIG1: 1}) for _ in range(equal)]
        on = cluster(*[node(f"n{number}", amounts) for number, amounts in enumerate(counts)])
        assert capacity_of(on, query).covers({GPU: 2 * NANOS, MIG1: NANOS})
        assert not capacity_of(on, query).covers({GPU: 4 * NANOS, MIG1: NANOS})
        assert not capacity_of(on, query).covers({GPU: NANOS}, among=0)


def test_a_node_that_comes_and_goes_in_one_update_changes_nothing() -> None:
    index = node_index_of(cluster({GPU: 4}))
    assert index.after([(None, None)]).nodes == index.nodes


def test_equal_nodes_are_one_class() -> None:
    on = cluster(*[node(f"n{number}", {GPU: 4}, labels={"host": str(number)}) for number in range(100)])
    found = capacity_of(on, NodeQuery(offered=Offered.ALLOCATABLE, resources=(GPU, MIG1)))
    assert [*found.classes.counts()] == [((4 * NANOS, ABSENT), 100)]


OTHERS = {f"example.com/r{number}": number for number in range(MAX_CAPACITIES + 10)}


def test_the_number_of_capacities_of_a_cluster_is_bounded() -> None:
    on = cluster({GPU: 4, **OTHERS})
    functions = ClusterFunctions(on)
    assert [functions.allocatable(resource) for resource in OTHERS] == [*OTHERS.values()]
    assert len(node_index_of(on).capacities) == MAX_CAPACITIES
    assert functions.allocatable(GPU) == 4


def test_a_resource_that_no_node_has_leaves_nothing_behind() -> None:
    """Expressions may look up what pods name."""
    on = cluster({GPU: 4})
    functions = ClusterFunctions(on)
    functions.total(GPU)
    before = node_index_of(on)
    for resource in OTHERS:
        assert (functions.allocatable(resource), functions.available(resource), functions.total(resource)) == (0, 0, 0)
    assert node_index_of(on) is before


def test_a_resource_that_comes_and_goes_is_offered_meanwhile() -> None:
    on = cluster({GPU: 4})
    assert ClusterFunctions(on).total(MIG1) == 0
    other = node("node-0", {MIG1: 2, GPU: 4}, {MIG2: 1})
    after = on.changed((other,), [(on.nodes[0], other)], {})
    assert ClusterFunctions(after).total(MIG1) == 2
    assert ClusterFunctions(after).available(MIG2) == -1
    assert node_index_of(after).resources == {MIG1: 1, MIG2: 1, GPU: 1}
    assert node_index_of(after.changed(on.nodes, [(other, on.nodes[0])], {})).resources == {GPU: 1}


def spread(count: int) -> Cluster:
    """A cluster whose nodes all differ."""
    return cluster(*[node(f"n{number:04}", {GPU: number}) for number in range(count)])


def taken(value: object, seen: set[int]) -> int:
    """Memory of a value and all its parts in bytes, each object once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    parts: list[object] = []
    if isinstance(value, Mapping):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, tuple):
        parts = [*value]
    return sys.getsizeof(value) + sum(taken(part, seen) for part in parts)


@pytest.mark.parametrize("alike", [1, 2, 8, 9, 20, 2000])
def test_a_capacity_takes_no_more_memory_than_is_estimated(alike: int) -> None:
    index = NodeIndex.of([node(f"n{number:04}", {GPU: number // alike}) for number in range(2000)])
    for resources in ((GPU,), RESOURCES):
        found = Capacity.of(NodeQuery(offered=Offered.AVAILABLE, resources=resources), index.nodes)
        used = taken(found.classes.members, set())
        assert used <= found.bytes <= 5 * used


def test_the_memory_of_capacities_of_a_cluster_is_bounded() -> None:
    on = spread(2000)
    queries = [NodeQuery(offered=Offered.AVAILABLE, resources=(GPU, f"r{number}")) for number in range(20)]
    for query in queries:
        capacity_of(on, query)
    kept = node_index_of(on).capacities
    assert [*kept] == queries[-len(kept) :]
    size = kept[queries[-1]].bytes
    assert MAX_CAPACITIES_BYTES - size < sum(found.bytes for found in kept.values()) <= MAX_CAPACITIES_BYTES


def test_capacities_that_grow_with_the_cluster_are_evicted() -> None:
    on = cluster(*[node(f"n{number:04}", {GPU: 0}) for number in range(2000)])
    for number in range(20):
        capacity_of(on, NodeQuery(offered=Offered.AVAILABLE, resources=(GPU, f"r{number}")))
    assert len(node_index_of(on).capacities) == 20
    after = spread(2000)
    index = node_index_of(on.changed(after.nodes, [*zip(on.nodes, after.nodes, strict=True)], {}))
    assert 1 < len(index.capacities) < 20
    assert sum(found.bytes for found in index.capacities.values()) <= MAX_CAPACITIES_BYTES


def test_the_newest_capacity_is_cached_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.cluster.nodes.node_index.MAX_CAPACITIES_BYTES", 1)
    on = spread(3)
    query = NodeQuery(offered=Offered.AVAILABLE, resources=(GPU,))
    assert capacity_of(on, query) is capacity_of(on, query)
    assert [*node_index_of(on).after([(on.nodes[0], None)]).capacities] == [query]


def test_pods_that_choose_nodes_by_other_labels_leave_nothing_behind() -> None:
    """Selectors of pods do not create capacities."""
    on = cluster(*[node(f"n{number}", {GPU: 1}, labels={"host": str(number), "a": "b"}) for number in range(50)])
    rule = ladder(GPU, MIG1, nodes=NodeFilter(require=frozenset({NodeRequirement.MATCHES_POD})))
    cover(on, rule, Pod.parse({"spec": {}}), {GPU: 1})
    before = node_index_of(on)
    for number in range(100):
        terms = [expression("host", "NotIn", str(number)), expression(f"k{number}", "Exists")]
        cover(on, rule, Pod.parse({"spec": requiring(*terms)}), {GPU: NANOS})
    assert node_index_of(on) is before


def test_threads_may_query_the_same_cluster() -> None:
    on = cluster(*[{GPU: number, **OTHERS} for number in range(50)])
    wrong: list[int] = []

    def ask(start: int) -> None:
        functions = ClusterFunctions(on)
        for number in range(start, start + 200):
            functions.available(f"example.com/r{number % len(OTHERS)}")
            if functions.allocatable(GPU) != 49:
                wrong.append(number)

    threads = [Thread(target=ask, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_views_of_a_cluster_are_not_part_of_its_value() -> None:
    used, fresh = cluster({GPU: 4}), cluster({GPU: 4})
    ClusterFunctions(used).total(GPU)
    assert used == fresh
    assert repr(used) == repr(fresh)


def test_a_changed_label_and_taint_move_a_node() -> None:
    before = node("a", {GPU: 4}, labels={ZONE: "a", POOL: "x"})
    after = node("a", {GPU: 4}, labels={ZONE: "a", POOL: "y"}, taints=(TAINT,))
    places = node_index_of(cluster(before)).with_places().after([(before, after)]).places
    values = {key: [*label.values.counts()] for key, label in places.labels.items()}
    assert values == {ZONE: [("a", 1)], POOL: [("y", 1)]}
    assert [count for _, count in places.taints.counts()] == [1]
