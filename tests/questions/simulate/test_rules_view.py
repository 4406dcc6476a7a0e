"""The cluster as rules see it: as on the server, and what a pod used is given back exactly."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rules_engine.cluster.nodes import NodeQuery, Offered, capacity_of
from rules_engine.cluster.nodes.reservations import MAX_PER_NAMESPACE, PodKey, usage_of_requests
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.rules.simulation import NodeState
from rules_engine.questions.simulate.play import node_in_state
from rules_engine.questions.simulate.rules_view import RulesView
from rules_engine.server.cluster.reading import HeldPod
from rules_engine.server.cluster.store import Store
from tests.support.api import pod
from tests.support.cluster import reserve
from tests.support.evaluation import GPU, cluster, node

QUERY = NodeQuery(offered=Offered.AVAILABLE, resources=(GPU,))
NODES = cluster(node("a", {GPU: 8}, {GPU: 1}), node("b", {GPU: 4}))


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 10**9)), max_size=8))
def test_held_amounts_are_returned_exactly(held: list[tuple[str, int]]) -> None:
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
    view.change("a", lambda found: node_in_state(found, NodeState.READY))
    assert view.cluster is NODES
    view.change("a", lambda found: node_in_state(found, NodeState.CORDONED))
    assert view.cluster.nodes[0].unschedulable


def test_nodes_that_rules_do_not_see_are_passed_over() -> None:
    view = RulesView(NODES, reads_pods=True)
    view.hold("c", {GPU: 1}, 1)
    view.change("c", lambda found: node_in_state(found, NodeState.CORDONED))
    assert view.cluster is NODES


class Both:
    """The view of a simulation and that of the server, after the same events."""

    def __init__(self, *nodes: Node) -> None:
        self.view = RulesView(Cluster(nodes=nodes), reads_pods=True)
        self.store = Store()
        self.store.replace_nodes(nodes)
        self.now = 0

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.view.reservations.expire(self.now)
        self.store.expire(self.now / 1000)

    def reserve(self, name: str, requests: Mapping[str, str], **spec: Any) -> None:
        made = Pod.parse(pod(name, requests, namespace="ml", **spec))
        self.view.reserve(f"ml/{name}", made.placement, made.effective_requests(), self.now)
        reserve(self.store, PodKey(f"ml/{name}", ""), made, self.now / 1000)

    def bind(self, name: str, node: str, requests: Mapping[str, str]) -> None:
        amounts = Pod.parse(pod(requests=requests)).effective_requests()
        self.view.reservations.drop(PodKey(f"ml/{name}", ""))
        self.view.hold(node, amounts, 1)
        self.store.set_pod(HeldPod(PodKey(f"ml/{name}", ""), node, usage_of_requests(amounts.items())))

    def release(self, name: str, node: str, requests: Mapping[str, str]) -> None:
        self.view.hold(node, Pod.parse(pod(requests=requests)).effective_requests(), -1)
        self.store.set_pod(HeldPod(PodKey(f"ml/{name}", ""), "", ()), gone=True)

    def change(self, name: str, state: NodeState) -> None:
        self.view.change(name, lambda found: node_in_state(found, state))
        [found] = [one for one in self.store.cluster.nodes if one.name == name]
        self.store.set_node(node_in_state(replace(found, used={}), state))
        self.store.publish()

    def check(self) -> None:
        self.store.publish()
        nodes = {found.name: found for found in self.store.cluster.nodes}
        assert {found.name: found for found in self.view.cluster.nodes} == nodes


REQUESTS = ({GPU: "1"}, {GPU: "3", "cpu": "1"}, {"example.com/x": "1"}, {"cpu": "2"}, {GPU: "1", "example.com/x": "1"})
SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"nodeSelector": {"pool": "x"}},
    {"tolerations": [{"operator": "Exists"}]},
    {"nodeName": "b"},
)


@given(st.randoms(use_true_random=True))
@example(Random(1257752115))  # a pod without devices arrives while a node has too few
def test_devices_are_reserved_as_on_the_server(random: Random) -> None:
    nodes = [
        node(name, {GPU: random.choice((2, 4)), "example.com/x": random.choice((0, 2)), "cpu": 8}, labels=labels)
        for name, labels in zip("dbca", ({}, {"pool": "x"}, {"pool": "x"}, {}), strict=True)
    ]
    both = Both(*nodes)
    waiting: dict[str, Mapping[str, str]] = {}
    bound: dict[str, tuple[str, Mapping[str, str]]] = {}
    for number in range(40):
        both.advance(random.choice((0, 500, 3000, 10_000)))
        match random.choice(("reserve", "reserve", "bind", "release", "change")):
            case "reserve":
                waiting[f"p{number}"] = random.choice(REQUESTS)
                both.reserve(f"p{number}", waiting[f"p{number}"], **random.choice(SPECS))
            case "bind" if waiting:
                name = random.choice([*waiting])
                bound[name] = random.choice("abcd"), waiting.pop(name)
                both.bind(name, *bound[name])
            case "release" if bound:
                name = random.choice([*bound])
                both.release(name, *bound.pop(name))
            case _:
                both.change(random.choice("abcd"), random.choice([*NodeState]))
        both.check()


def test_a_namespace_reserves_no_more_than_on_the_server() -> None:
    both = Both(node("a", {GPU: 1000}))
    for number in range(MAX_PER_NAMESPACE + 2):
        both.reserve(f"p{number}", {GPU: "1"})
    both.check()
    assert both.view.cluster.nodes[0].available(GPU).whole == 1000 - MAX_PER_NAMESPACE
