"""The pods that hold GPUs, as evidence."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.diagnosis.objects.holders import MAX_HOLDERS, Holders
from tests.support.reported_objects import cluster_of, gpu_node, gpu_pod

GPU = "nvidia.com/gpu"


@given(st.randoms(use_true_random=True))
def test_evidence_names_the_largest_pods_on_the_nodes_and_counts_the_others(random: Random) -> None:
    bound = [
        (random.randint(0, 3), random.choice(("ml", "team")), f"p{number}", random.choice("abcx"))
        for number in range(random.randint(0, 20))
    ]
    cluster = cluster_of(
        nodes=[gpu_node(name) for name in "abc"],
        pods=[gpu_pod(name, node, amount, namespace=namespace) for amount, namespace, name, node in bound],
    )
    nodes = tuple(random.sample("abc", random.randint(0, 3)))
    held = sorted(
        (-amount, namespace, name, node) for amount, namespace, name, node in bound if amount and node in nodes
    )
    lines = Holders(cluster).evidence(GPU, nodes)
    largest, others = held[:MAX_HOLDERS], held[MAX_HOLDERS:]
    for line, (amount, namespace, name, node) in zip(lines, largest, strict=False):
        assert line.startswith(f"{namespace}/{name} holds {-amount} {GPU} on {node}")
    noun = "other pod" if len(others) == 1 else "other pods"
    total = sum(-amount for amount, *_ in others)
    assert list(lines[len(largest) :]) == ([f"{len(others)} {noun} hold {total} {GPU}"] if others else [])


def test_evidence_of_the_same_nodes_is_computed_once() -> None:
    holders = Holders(cluster_of(nodes=[gpu_node("a")], pods=[gpu_pod("p", "a")]))
    assert holders.evidence(GPU, ("a",)) is holders.evidence(GPU, ("a",))
