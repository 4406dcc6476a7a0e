"""The cluster as rules see it: what a pod used is given back exactly, and only what rules read is kept."""

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.evaluation.nodes import NodeQuery, Offered, capacity_of
from rules_engine.model.simulation import NodeState
from rules_engine.simulation.node_states import in_state
from rules_engine.simulation.rules_view import RulesView
from tests.support.evaluation import GPU, cluster, node
from tests.support.laws import law

QUERY = NodeQuery(offered=Offered.AVAILABLE, resources=(GPU,))
NODES = cluster(node("a", {GPU: 8}, {GPU: 1}), node("b", {GPU: 4}))


@law
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 10**9)), max_size=8))
def test_what_was_held_is_given_back_exactly(held: list[tuple[str, int]]) -> None:
    view = RulesView(NODES, reads_pods=True)
    before = dict(capacity_of(view.cluster, QUERY).classes.counts())
    for name, nanos in held:
        view.hold(name, {GPU: nanos}, 1)
        assert view.cluster.nodes[0].name == "a"
    for name, nanos in reversed(held):
        view.hold(name, {GPU: nanos}, -1)
    assert view.cluster == NODES
    assert dict(capacity_of(view.cluster, QUERY).classes.counts()) == before


def test_the_view_stays_the_same_while_nothing_changes() -> None:
    view = RulesView(NODES, reads_pods=False)
    assert view.cluster is view.cluster is NODES
    view.hold("a", {GPU: 10**9}, 1)
    assert view.cluster is NODES
    view.change("a", lambda found: in_state(found, NodeState.READY))
    assert view.cluster is NODES
    view.change("a", lambda found: in_state(found, NodeState.CORDONED))
    assert view.cluster.nodes[0].unschedulable


def test_nodes_that_rules_do_not_see_are_passed_over() -> None:
    view = RulesView(NODES, reads_pods=True)
    view.hold("c", {GPU: 1}, 1)
    view.change("c", lambda found: in_state(found, NodeState.CORDONED))
    assert view.cluster is NODES
