"""The model of the scheduler agrees with a second implementation on generated clusters."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.support.clusters import Generator
from tests.support.naive_scheduler import reasons
from tests.support.scheduling import scheduler

MOST_NODES = 30
"""Sets of nodes are stored in another way if they have more than eight."""


@given(st.randoms(use_true_random=True))
def test_counts_agree_with_a_second_implementation(random: Random) -> None:
    generator = Generator(random, most_nodes=MOST_NODES)
    nodes, namespaces = generator.nodes(), generator.namespace_objects()
    bound = generator.bound(nodes)
    model = scheduler(nodes, bound, namespaces)
    for _ in range(5):
        subject = generator.pending(nodes)
        answer = model.explain(subject)
        expected = reasons(subject, nodes, bound, namespaces)
        assert answer.reasons == expected
        assert not any(answer.passing & nodes for nodes in answer.nodes_by_reason.values())
