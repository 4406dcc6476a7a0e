"""The state of a Scheduler that changes: exactly that of a new Scheduler on the same nodes and pods."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.cluster.scheduling import KubeScheduler
from rules_engine.cluster.scheduling.requirements import Footprint, Requirements
from rules_engine.language.cel import CostExceeded
from rules_engine.model.kubernetes.cluster import Node, Taint
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.quantity import Quantity
from tests.support.api import GPU, NOW, Object, node, pod
from tests.support.clusters import Generator
from tests.support.scheduling import REQUIRED

MOST_NODES = 14
"""Sets of nodes are stored in another way if they have more than eight."""

Bound = list[tuple[int, Footprint]]


def read(nodes: list[Object], bound: list[Object]) -> tuple[list[Node], Bound]:
    """Return nodes, and bound pods with the numbers of their nodes."""
    objects = ClusterObjects({"Node": nodes, "Pod": bound}, now=NOW)
    found = [replace(node, used={}) for node in objects.view.nodes]
    numbers = {node.name: number for number, node in enumerate(found)}
    return found, [(numbers[pod.node_name], Footprint.read(pod)) for pod in objects.pods]


@given(st.randoms(use_true_random=True), st.sampled_from([1, 2, 64]))
def test_answers_after_changes_equal_answers_of_a_new_scheduler(random: Random, cached: int) -> None:
    generator = Generator(random, most_nodes=MOST_NODES)
    raw = generator.nodes()
    nodes, bound = read(raw, generator.bound(raw))
    namespaces = None
    if random.random() < 0.8:
        namespaces = {one["metadata"]["name"]: one["metadata"]["labels"] for one in generator.namespace_objects()}
    start = tuple(bound)
    changing = KubeScheduler(nodes, namespaces, lambda: start, tallies=cached)
    subjects: list[Requirements] = []
    for _ in range(random.randint(1, 4)):
        # Those of earlier rounds are answered again: parts of their answers are cached.
        subjects += [Requirements.of(generator.pending(raw)) for _ in range(2)]
        others = [*read(raw, generator.bound(raw))[1], *((random.randrange(len(nodes)), one) for one in subjects)]
        for _ in range(random.randint(0, 6)):
            change(random, changing, nodes, bound, others)
        fresh = KubeScheduler(nodes, namespaces, lambda: bound)
        for subject in subjects:
            answer = fresh.answer(subject)
            assert changing.answer(subject) == answer
            assert changing.feasible(subject) == answer.passing
        assert changing.full == fresh.full
        assert changing.nodes == nodes
        for number in range(len(nodes)):
            for resource in ("cpu", GPU, "pods", "missing"):
                assert changing.free(number, resource) == fresh.free(number, resource)


def change(random: Random, scheduler: KubeScheduler, nodes: list[Node], bound: Bound, others: Bound) -> None:
    """Change a scheduler, and its nodes and bound pods alike."""
    kind = random.choice(("bind", "bind", "release", "release", "node"))
    if kind == "bind":
        number, footprint = random.choice(others)
        scheduler.bind(number, footprint)
        bound.append((number, footprint))
    elif kind == "release" and bound:
        number, footprint = bound.pop(random.randrange(len(bound)))
        scheduler.release(number, footprint)
    else:
        number = random.randrange(len(nodes))
        nodes[number] = changed(random, nodes[number])
        scheduler.change_node(number, nodes[number])


def changed(random: Random, node: Node) -> Node:
    """Return a node with other taints, the other cordon or other amounts."""
    amounts = {"cpu": Quantity.parse("3"), GPU: Quantity.parse("2"), "pods": Quantity.parse("2")}
    return random.choice(
        (
            replace(node, unschedulable=not node.unschedulable),
            replace(node, taints=tuple(random.sample(TAINTS, random.randint(0, 2)))),
            replace(
                node, allocatable={name: amounts[name] for name in random.sample([*amounts], random.randint(0, 3))}
            ),
        )
    )


TAINTS = (
    Taint(key="spot", value="yes", effect="NoSchedule"),
    Taint(key="spot", value="yes", effect="PreferNoSchedule"),
    Taint(key="nvidia.com/gpu", effect="NoExecute"),
)


def test_names_and_labels_of_nodes_cannot_change() -> None:
    nodes, _ = read([node("a")], [])
    with pytest.raises(ValueError, match=r"^the name and the labels of node a cannot change$"):
        KubeScheduler(nodes, {}).change_node(0, replace(nodes[0], labels={}))


def test_each_answer_has_its_own_comparison_budget() -> None:
    nodes, bound = read([node("a"), node("b")], [pod(name, labels={"app": name}, on="a") for name in ("x", "y")])
    scheduler = KubeScheduler(nodes, {}, lambda: bound, comparisons=4)
    for count in range(10):
        absent = {"key": f"x{count}", "operator": "DoesNotExist"}
        apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [absent]}}
        subject = Requirements.of(pod(affinity={"podAntiAffinity": {REQUIRED: [apart]}}))
        assert scheduler.feasible(subject) == 0b10
    scheduler.bind(1, Requirements.of(pod(labels={"app": "z"})))
    apart["labelSelector"] = {"matchExpressions": [absent, absent]}
    with pytest.raises(CostExceeded):
        scheduler.feasible(Requirements.of(pod(affinity={"podAntiAffinity": {REQUIRED: [apart]}})))
