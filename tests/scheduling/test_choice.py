"""The choice among equally good nodes depends on names alone."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.evaluation.nodes import node_set
from rules_engine.scheduling.choice import Choice, fraction, h64

NAMES = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=30, unique=True)


@given(NAMES, st.integers(), st.text())
def test_choice_is_the_lowest_hash_xor_the_pods(nodes: Sequence[str], seed: int, pod: str) -> None:
    choice = Choice(seed, nodes)
    among = [number for number in range(len(nodes)) if h64(0, str(number)) % 3] or [0]
    expected = min(among, key=lambda number: h64(seed, nodes[number]) ^ h64(seed, pod))
    assert choice.lowest(pod, node_set(among)) == expected


@given(NAMES, st.integers(), st.text(), st.integers(0, 30))
def test_the_first_nodes_have_the_lowest_values(nodes: Sequence[str], seed: int, pod: str, count: int) -> None:
    ordered = sorted(range(len(nodes)), key=lambda number: h64(seed, nodes[number]) ^ h64(seed, pod))
    assert Choice(seed, nodes).first(pod, (1 << len(nodes)) - 1, count) == node_set(ordered[:count])


@given(NAMES, st.integers(), st.text())
def test_the_order_of_nodes_changes_no_choice(nodes: Sequence[str], seed: int, pod: str) -> None:
    every = (1 << len(nodes)) - 1
    ordered = sorted(nodes)
    assert nodes[Choice(seed, nodes).lowest(pod, every)] == ordered[Choice(seed, ordered).lowest(pod, every)]


def test_pods_are_distributed_over_equal_nodes() -> None:
    nodes = [f"node-{number}" for number in range(8)]
    choice = Choice(1, nodes)
    counts = [0] * 8
    for number in range(4_000):
        counts[choice.lowest(f"default/pod-{number}", 255)] += 1
    # XOR keeps the distribution of the nodes' own hashes, which is uneven for so few.
    assert min(counts) > 0


def test_a_hash_depends_on_each_name_and_the_seed() -> None:
    assert len({h64(1, "a", "b"), h64(1, "ab"), h64(1, "b", "a"), h64(2, "a", "b"), h64(1, "a")}) == 5


def test_fractions_are_between_zero_and_one() -> None:
    found = [fraction(1, "runFor", f"default/pod-{number}") for number in range(1_000)]
    assert all(0 <= value < 1 for value in found)
    assert 0.45 < sum(found) / len(found) < 0.55
