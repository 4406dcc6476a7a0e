"""The pods that hold GPUs, as evidence."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.questions.doctor.holders import MAX_HOLDERS, Holders
from tests.support.api import GPU, cluster, node, pod


@given(st.randoms(use_true_random=True))
def test_evidence_names_the_largest_pods_on_the_nodes_and_counts_the_others(random: Random) -> None:
    bound = [
        (random.randint(0, 3), random.choice(("ml", "team")), f"p{number}", random.choice("abcx"))
        for number in range(random.randint(0, 20))
    ]
    objects = cluster(
        *[node(name, {GPU: 8}) for name in "abc"],
        *[pod(name, {GPU: amount}, on=on, namespace=namespace) for amount, namespace, name, on in bound],
    )
    nodes = tuple(random.sample("abc", random.randint(0, 3)))
    held = sorted((-amount, namespace, name, on) for amount, namespace, name, on in bound if amount and on in nodes)
    lines = Holders(objects).evidence(GPU, nodes)
    largest, others = held[:MAX_HOLDERS], held[MAX_HOLDERS:]
    for line, (amount, namespace, name, on) in zip(lines, largest, strict=False):
        assert line.startswith(f"{namespace}/{name} holds {-amount} {GPU} on {on}")
    noun = "other pod" if len(others) == 1 else "other pods"
    total = sum(-amount for amount, *_ in others)
    assert list(lines[len(largest) :]) == ([f"{len(others)} {noun} hold {total} {GPU}"] if others else [])
