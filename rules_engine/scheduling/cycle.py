"""Scheduling cycle: pods are bound to nodes one after the other, as kube-scheduler binds them.

Nodes have numbers: their positions when the cycle is made.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rules_engine.evaluation.nodes import NodeSet
from rules_engine.model.cluster import Node
from rules_engine.model.cluster_objects import ClusterObjects
from rules_engine.model.json.lenient import mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.simulation import Milliseconds, SchedulerOptions
from rules_engine.scheduling.choice import Choice
from rules_engine.scheduling.preemption import Preemption
from rules_engine.scheduling.requirements import Requirements
from rules_engine.scheduling.schedulable_pod import Bound, BoundPod, SchedulablePod
from rules_engine.scheduling.scheduler import Scheduler
from rules_engine.scheduling.scheduling import Scheduling

__all__ = ["Bound", "BoundPod", "SchedulablePod", "SchedulingCycle"]


class SchedulingCycle:
    """The nodes and bound pods of a cluster, which change, and the scheduler on them."""

    def __init__(
        self,
        nodes: Sequence[Node],
        namespaces: Mapping[str, Mapping[str, str]] | None,
        options: SchedulerOptions,
        seed: int,
    ) -> None:
        """Take the nodes without their pods, and the labels of namespaces, if known."""
        self._options = options
        self._choice = Choice(seed, [node.name for node in nodes])
        self._filters = _Filters(nodes, namespaces)
        self._preemption = Preemption(nodes, self._choice)

    def bind(self, pod: BoundPod) -> None:
        """Add a pod to its node, whether it fits there or not."""
        self._filters.bind(pod)
        self._preemption.bind(pod)

    def release(self, pod: BoundPod) -> None:
        """Remove a pod from its node: the inverse of bind. Raises KeyError if it is not bound."""
        self._preemption.release(pod)
        self._filters.release(pod)

    def change_node(self, number: int, node: Node) -> None:
        """Replace a node by one of the same name with another state."""
        self._filters.change_node(number, node)
        self._preemption.change_node(number, node)

    def schedule(self, name: str, pod: SchedulablePod, now: Milliseconds) -> Bound | None:
        """Bind a pod to the best node, if need be in place of pods of lower priority; None if it can run on none."""
        nodes = self.top(pod)
        if nodes:
            found = Bound(self._choice.lowest(name, nodes))
        elif self._preempts(pod):
            preempted = self._preemption.find(name, pod, self._filters)
            if preempted is None:
                return None
            found = preempted
            for victim in found.victims:
                self.release(victim)
        else:
            return None
        self.bind(BoundPod(name, pod, found.node, now))
        return found

    def explain(self, pod: SchedulablePod) -> Scheduling:
        """Return the answer of the filters for a pod that is not bound."""
        return self._filters.schedule(pod.requirements)

    def feasible(self, pod: SchedulablePod) -> NodeSet:
        """Return the nodes that pass all filters."""
        return self._filters.feasible(pod.requirements)

    def top(self, pod: SchedulablePod) -> NodeSet:
        """Return the feasible nodes with the highest total score."""
        return self.feasible(pod)

    def may_fit(self, pod: SchedulablePod, number: int) -> bool:
        """Return False if a node lacks resources for a pod, even without the pods that it could preempt."""
        return self._preemption.has_room(pod, number, preempts=self._preempts(pod))

    def _preempts(self, pod: SchedulablePod) -> bool:
        return self._options.preemption and pod.preempts


class _Filters:
    """The filters, made anew after each change."""

    def __init__(self, nodes: Sequence[Node], namespaces: Mapping[str, Mapping[str, str]] | None) -> None:
        self._nodes = [*nodes]
        self._namespaces = namespaces
        self._bound: list[dict[str, BoundPod]] = [{} for _ in nodes]
        self._current: Scheduler | None = None

    def bind(self, pod: BoundPod) -> None:
        self._bound[pod.node][pod.name] = pod
        self._current = None

    def release(self, pod: BoundPod) -> None:
        del self._bound[pod.node][pod.name]
        self._current = None

    def change_node(self, number: int, node: Node) -> None:
        self._nodes[number] = node
        self._current = None

    def feasible(self, pod: Requirements) -> NodeSet:
        return self.schedule(pod).passing

    def schedule(self, pod: Requirements) -> Scheduling:
        return self._scheduler.schedule(pod)

    @property
    def _scheduler(self) -> Scheduler:
        if self._current is None:
            pods: list[dict[str, Json]] = [
                {
                    "metadata": found.pod.raw.get("metadata"),
                    "spec": {**mapping(found.pod.raw.get("spec")), "nodeName": self._nodes[found.node].name},
                }
                for on_node in self._bound
                for found in on_node.values()
            ]
            bound = ClusterObjects({"Pod": pods}, now=datetime.fromtimestamp(0, UTC)).pods
            self._current = Scheduler(self._nodes, bound, self._namespaces)
        return self._current
