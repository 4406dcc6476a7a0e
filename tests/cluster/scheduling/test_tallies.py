"""Numbers of pods by domain, which follow every change."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import node_index_with_places, node_set
from rules_engine.cluster.scheduling.filters.bound_pods import BoundPods, SelectedPods
from rules_engine.cluster.scheduling.filters.topologies import Domains, PodsByNode, Topologies
from rules_engine.cluster.scheduling.requirements import Requirements
from rules_engine.language.cel import Budget
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector
from tests.support.api import pod

ZONES = ("a", "a", "b", "b", "c", None, "d", "d")
NODES = tuple(Node(name=f"n{number}", labels={"zone": zone} if zone else {}) for number, zone in enumerate(ZONES))
TOPOLOGIES = Topologies(node_index_with_places(Cluster(nodes=NODES)).places.labels, [node.labels for node in NODES])


@given(
    st.lists(st.integers(0, len(ZONES) - 1), max_size=30).flatmap(lambda added: st.permutations([*added, *added])),
    st.integers(0, 2 ** len(ZONES) - 1),
    st.integers(0, 60),
)
def test_tallies_count_only_the_remaining_pods(changes: list[int], among: int, until: int) -> None:
    labelled = TOPOLOGIES.having("zone")
    presence, levels = Domains(TOPOLOGIES, "zone", labelled), Domains(TOPOLOGIES, "zone", among & labelled)
    by_node = PodsByNode()
    left: set[int] = set()
    counts: Counter[int] = Counter()
    for index, number in enumerate(changes[:until]):
        # The first of each pair adds some pods, and the second removes them.
        by = -counts[number] if number in left else 1 + index % 3
        left ^= {number}
        counts[number] += by
        presence.change(number, by)
        levels.change(number, by)
        by_node.change(number, by)
        zones: Counter[str] = Counter()
        some: Counter[str] = Counter()
        for one, zone in enumerate(ZONES):
            if zone and counts[one]:
                zones[zone] += counts[one]
                if among >> one & 1:
                    some[zone] += counts[one]
        assert presence.nodes == nodes_of({*zones})
        assert by_node.by_sum == {
            count: node_set([one for one in counts if counts[one] == count]) for count in {*counts.values()} if count
        }
        for count in range(4):
            assert levels.above(count) == nodes_of({zone for zone in some if some[zone] > count})
        assert levels.least(4) == (min(some.values()) if len(some) == 4 else 0)


def nodes_of(zones: set[str]) -> int:
    return sum(1 << number for number, zone in enumerate(ZONES) if zone in zones)


@pytest.mark.parametrize(("labels", "expected"), [({"zone": ""}, {3: 0b10}), ({}, {})])
def test_nodes_without_a_label_count_as_with_an_empty_one(labels: dict[str, str], expected: dict[int, int]) -> None:
    nodes = (Node(name="a"), Node(name="b", labels=labels))
    topologies = Topologies(node_index_with_places(Cluster(nodes=nodes)).places.labels, [node.labels for node in nodes])
    domains = Domains(topologies, "zone", 0b11)
    domains.change(0, 2)
    domains.change(1, 1)
    assert domains.by_sum == expected
    domains.change(0, -2)
    domains.change(1, -1)
    assert not domains.by_sum


def test_a_tally_that_was_dropped_is_not_updated() -> None:
    one = Requirements.of(pod(labels={"app": "a"}))
    pods = BoundPods([(3, one)], TOPOLOGIES, Budget(), 1)
    selected = SelectedPods("ml", LabelSelector((LabelRequirement("app", ConditionKind.IN, ("a",)),)))
    first, second = pods.by_node(selected), pods.by_domain(selected, "zone", 0b1111)
    pods.count(4, one, 1)
    pods.count(0, one, 1)
    pods.count(3, one, -1)
    assert first.by_sum == {1: 0b1000}
    assert second.by_sum == {1: 0b0011}
    assert pods.by_domain(selected, "zone", 0b1111) is second
    assert pods.by_node(selected).by_sum == {1: 0b10001}
