"""The choice among equally good nodes depends on names alone."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import node_set
from rules_engine.cluster.scheduling import choice
from rules_engine.cluster.scheduling.choice import MAX_COMPARED_NODES, NodeChoice, hash_names, uniform_fraction

NAMES = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=30, unique=True)


@given(NAMES, st.integers(), st.text(), st.sampled_from([1, 3, 32]))
def test_choice_is_the_lowest_hash_of_the_nearest_nodes(
    nodes: Sequence[str], seed: int, pod: str, compared: int
) -> None:
    def distance(number: int) -> int:
        return hash_names(seed, nodes[number]) ^ hash_names(seed, pod)

    among = [number for number in range(len(nodes)) if hash_names(0, str(number)) % 3] or [0]
    nearest = sorted(among, key=distance)[:compared]
    expected = min(nearest, key=lambda number: blake2b(distance(number).to_bytes(8), digest_size=8).digest())
    with patch.object(choice, "MAX_COMPARED_NODES", compared):
        assert NodeChoice(seed, nodes).choose_node(pod, node_set(among)) == expected


@given(NAMES, st.integers(), st.text(), st.integers(0, 30))
def test_the_first_nodes_have_the_lowest_values(nodes: Sequence[str], seed: int, pod: str, count: int) -> None:
    ordered = sorted(range(len(nodes)), key=lambda number: hash_names(seed, nodes[number]) ^ hash_names(seed, pod))
    assert NodeChoice(seed, nodes).first(pod, (1 << len(nodes)) - 1, count) == node_set(ordered[:count])


@given(NAMES, st.integers(), st.text())
def test_the_order_of_nodes_changes_no_choice(nodes: Sequence[str], seed: int, pod: str) -> None:
    every = (1 << len(nodes)) - 1
    ordered = sorted(nodes)
    assert (
        nodes[NodeChoice(seed, nodes).choose_node(pod, every)]
        == ordered[NodeChoice(seed, ordered).choose_node(pod, every)]
    )


@pytest.mark.parametrize("count", [2, 3, 8, MAX_COMPARED_NODES, 40, 90])
def test_pods_are_distributed_over_equal_nodes(count: int) -> None:
    nodes = [f"node-{number}" for number in range(count)]
    choice_of_nodes, every = NodeChoice(1, nodes), (1 << count) - 1
    pods = 200 * count
    chosen = Counter(choice_of_nodes.choose_node(f"default/pod-{number}", every) for number in range(pods))
    # Of evenly distributed pods, one node gets 200 and 14 more or less; XOR alone makes more of a difference.
    tolerance = 70 if count <= MAX_COMPARED_NODES else 120
    assert all(abs(chosen[number] - 200) < tolerance for number in range(count))


def test_a_hash_depends_on_each_name_and_the_seed() -> None:
    assert (
        len(
            {
                hash_names(1, "a", "b"),
                hash_names(1, "ab"),
                hash_names(1, "b", "a"),
                hash_names(2, "a", "b"),
                hash_names(1, "a"),
            }
        )
        == 5
    )


def test_fractions_are_between_zero_and_one() -> None:
    fractions = [uniform_fraction(1, "runFor", f"default/pod-{number}") for number in range(1_000)]
    assert all(0 <= value < 1 for value in fractions)
    assert 0.45 < sum(fractions) / len(fractions) < 0.55
