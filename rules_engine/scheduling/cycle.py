"""Scheduling cycle: pods are bound to nodes one after the other, as kube-scheduler binds them.

Nodes have numbers: their positions when the cycle is made.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Self

from msgspec import Struct

from rules_engine.evaluation.nodes import NodeSet
from rules_engine.model.cluster import Node
from rules_engine.model.cluster_objects import ClusterObjects
from rules_engine.model.json.lenient import Object, mapping, text
from rules_engine.model.json.patch import Json
from rules_engine.model.rules import LabelSelector
from rules_engine.model.simulation import Milliseconds, SchedulerOptions
from rules_engine.scheduling.amounts import PODS, counted
from rules_engine.scheduling.choice import Choice
from rules_engine.scheduling.requirements import Requirements
from rules_engine.scheduling.scheduler import Scheduler
from rules_engine.scheduling.scheduling import Scheduling

NEVER = "Never"
"""The preemptionPolicy of pods that do not preempt others."""


class SchedulablePod(Struct, frozen=True):
    """A pod as the scheduler reads it, without its name: equal pods share one value."""

    raw: Object
    requirements: Requirements
    preempts: bool

    @classmethod
    def of(cls, raw: Object, selector: LabelSelector | None = None) -> Self:  # noqa: ARG003 - for scores
        """Read a pod; `selector` is that of its ReplicaSet or StatefulSet.

        Raises PodError if it is malformed, and TooLargeError if it is beyond a bound.
        """
        return cls(raw, Requirements.of(raw), text(mapping(raw.get("spec")), "preemptionPolicy") != NEVER)


class BoundPod(Struct, frozen=True):
    """A pod that is bound to the node with a number; `name` has the form namespace/name."""

    name: str
    pod: SchedulablePod
    node: int
    start: Milliseconds


class Bound(Struct, frozen=True):
    """The node that a pod was bound to, and the pods that were released for it."""

    node: int
    victims: tuple[BoundPod, ...] = ()


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
        self._nodes = [*nodes]
        self._namespaces = namespaces
        self._options = options
        self._choice = Choice(seed, [node.name for node in nodes])
        self._bound: list[dict[str, BoundPod]] = [{} for _ in nodes]
        self._current: Scheduler | None = None

    def bind(self, pod: BoundPod) -> None:
        """Add a pod to its node, whether it fits there or not."""
        self._bound[pod.node][pod.name] = pod
        self._current = None

    def release(self, pod: BoundPod) -> None:
        """Remove a pod from its node: the inverse of bind. Raises KeyError if it is not bound."""
        del self._bound[pod.node][pod.name]
        self._current = None

    def change_node(self, number: int, node: Node) -> None:
        """Replace a node by one of the same name with another state."""
        self._nodes[number] = node
        self._current = None

    def schedule(self, name: str, pod: SchedulablePod, now: Milliseconds) -> Bound | None:
        """Bind a pod to the best node; None if it can run on none."""
        nodes = self.top(pod)
        if not nodes:
            return None
        node = self._choice.lowest(name, nodes)
        self.bind(BoundPod(name, pod, node, now))
        return Bound(node)

    def explain(self, pod: SchedulablePod) -> Scheduling:
        """Return the answer of the filters for a pod that is not bound."""
        return self._scheduler.schedule(pod.requirements)

    def feasible(self, pod: SchedulablePod) -> NodeSet:
        """Return the nodes that pass all filters."""
        return self.explain(pod).passing

    def top(self, pod: SchedulablePod) -> NodeSet:
        """Return the feasible nodes with the highest total score."""
        return self.feasible(pod)

    def may_fit(self, pod: SchedulablePod, number: int) -> bool:
        """Return False if a node lacks resources for a pod, even without the pods that it could preempt."""
        priority = pod.requirements.priority
        preempts = pod.preempts and self._options.preemption
        stays = [
            found.pod.requirements
            for found in self._bound[number].values()
            if not preempts or found.pod.requirements.priority >= priority
        ]
        node = self._nodes[number]
        limit = node.allocatable.get(PODS)
        if limit is not None and len(stays) >= limit.whole:
            return False
        allocatable = counted({name: found.nanos for name, found in node.allocatable.items()})
        return all(
            amount <= allocatable.get(resource, 0) - sum(found.requests.get(resource, 0) for found in stays)
            for resource, amount in pod.requirements.requests.items()
            if amount > 0
        )

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
