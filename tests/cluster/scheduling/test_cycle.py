"""A scheduling cycle binds pods to nodes one after the other."""

from typing import Any

from rules_engine.cluster.scheduling.cycle import Bound, BoundPod, SchedulablePod
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.rules.simulation import Strategy
from tests.support.api import GPU, NOW, node, pod
from tests.support.cycles import cycle


def gpus(count: int, **spec: Any) -> SchedulablePod:
    return SchedulablePod.of(pod(requests={GPU: str(count)}, **spec))


def test_a_pod_is_bound_until_it_is_released() -> None:
    subject = cycle([node("a", {GPU: "2"})])
    assert subject.schedule("default/p", gpus(2), 5) == Bound(0, equal=0b1)
    assert subject.schedule("default/q", gpus(1), 6) is None
    assert subject.explain(gpus(1)).message() == f"0/1 nodes are available: 1 Insufficient {GPU}."
    subject.release(BoundPod("default/p", gpus(2), 0, 5))
    assert subject.schedule("default/q", gpus(1), 7) == Bound(0, equal=0b1)


def test_a_changed_node_is_scheduled_on_as_it_is() -> None:
    nodes = [node("a", {GPU: "2"})]
    subject = cycle(nodes)
    (cordoned,) = ClusterObjects({"Node": [node("a", unschedulable=True)]}, now=NOW).view.nodes
    subject.change_node(0, cordoned)
    assert subject.feasible(gpus(1)) == 0


def test_a_node_that_lacks_a_resource_cannot_fit() -> None:
    subject = cycle([node("a", {GPU: "2"}), node("b")])
    assert subject.may_fit(gpus(2), 0)
    assert not subject.may_fit(gpus(1), 1)
    assert not subject.may_fit(gpus(3), 0)


def test_pods_of_lower_priority_do_not_keep_a_pod_from_fitting() -> None:
    for preemption in (True, False):
        subject = cycle([node("a", {GPU: "2"})], preemption=preemption)
        subject.bind(BoundPod("default/low", gpus(2), 0, 0))
        assert subject.may_fit(gpus(1, priority=1), 0) is preemption
        assert not subject.may_fit(gpus(1, priority=1, preemptionPolicy="Never"), 0)
        assert not subject.may_fit(gpus(1), 0)


def test_a_node_with_all_its_pods_cannot_fit() -> None:
    subject = cycle([node("a", {"pods": "1"})])
    subject.bind(BoundPod("default/low", gpus(0), 0, 0))
    assert not subject.may_fit(gpus(0), 0)


def test_a_pod_is_bound_where_the_scores_are_highest() -> None:
    for strategy, best in ((Strategy.LEAST_ALLOCATED, 1), (Strategy.MOST_ALLOCATED, 0)):
        subject = cycle([node("a"), node("b")], strategy=strategy)
        made = SchedulablePod.of(pod(requests={"cpu": "1", "memory": "1Gi"}))
        subject.bind(BoundPod("default/other", made, 0, 0))
        assert subject.top(made) == 1 << best
        assert subject.schedule("default/p", made, 1) == Bound(best, equal=1 << best)
