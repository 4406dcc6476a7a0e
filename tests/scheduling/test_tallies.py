"""Numbers of pods by domain, which follow every change."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cel import Budget
from rules_engine.evaluation.nodes import placed_index_of
from rules_engine.model.cluster import Cluster, Node
from rules_engine.model.rules import ConditionKind, LabelRequirement, LabelSelector
from rules_engine.scheduling import Requirements
from rules_engine.scheduling.filters import bound_pods
from rules_engine.scheduling.filters.bound_pods import BoundPods, Selected
from rules_engine.scheduling.filters.tallies import Levels, Presence
from rules_engine.scheduling.filters.topologies import Topologies
from tests.support.scheduling import pod

ZONES = ("a", "a", "b", "b", "c", None, "d", "d")
NODES = tuple(Node(name=f"n{number}", labels={"zone": zone} if zone else {}) for number, zone in enumerate(ZONES))


@given(
    st.lists(st.integers(0, len(ZONES) - 1), max_size=30).flatmap(lambda added: st.permutations([*added, *added])),
    st.integers(0, 2 ** len(ZONES) - 1),
    st.integers(0, 60),
)
def test_tallies_are_those_of_the_pods_that_are_left(changes: list[int], among: int, until: int) -> None:
    topologies = Topologies(placed_index_of(Cluster(nodes=NODES)).places.labels, [node.labels for node in NODES])
    presence, levels = Presence(topologies, "zone"), Levels(topologies, "zone", among)
    left: set[int] = set()
    counts: Counter[int] = Counter()
    for index, number in enumerate(changes[:until]):
        # The first of each pair adds some pods, and the second removes them.
        by = -counts[number] if number in left else 1 + index % 3
        left ^= {number}
        counts[number] += by
        presence.change(number, by)
        levels.change(number, by)
        zones: Counter[str] = Counter()
        some: Counter[str] = Counter()
        for one, zone in enumerate(ZONES):
            if zone and counts[one]:
                zones[zone] += counts[one]
                if among >> one & 1:
                    some[zone] += counts[one]
        assert presence.nodes == nodes_of({*zones})
        for count in range(4):
            assert levels.above(count) == nodes_of({zone for zone in some if some[zone] > count})
        assert levels.least(4) == (min(some.values()) if len(some) == 4 else 0)


def nodes_of(zones: set[str]) -> int:
    return sum(1 << number for number, zone in enumerate(ZONES) if zone in zones)


class Recorded:
    """A tally that records its changes."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int]] = []

    def change(self, number: int, by: int) -> None:
        self.changes.append((number, by))


def test_a_tally_that_was_dropped_is_not_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_pods, "CACHED_TALLIES", 1)
    one = Requirements.of(pod(labels={"app": "a"}))
    pods = BoundPods([(3, one)], Budget())
    selected = Selected("default", LabelSelector((LabelRequirement("app", ConditionKind.IN, ("a",)),)))
    first, second = pods.tally(selected, 1, Recorded), pods.tally(selected, 2, Recorded)
    pods.add(4, one)
    pods.remove(3, one)
    assert first.changes == [(3, 1)]
    assert second.changes == [(3, 1), (4, 1), (3, -1)]
    assert pods.tally(selected, 2, Recorded) is second
