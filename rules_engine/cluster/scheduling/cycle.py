"""Scheduling cycle: pods are bound to nodes one after the other, as kube-scheduler binds them.

Nodes have numbers: their positions when the cycle is made.
"""

from collections.abc import Mapping, Sequence

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.choice import NodeChoice
from rules_engine.cluster.scheduling.disruption_budgets import DisruptionBudgets
from rules_engine.cluster.scheduling.filters.devices import DevicesError
from rules_engine.cluster.scheduling.preemption import Preemption
from rules_engine.cluster.scheduling.schedulable_pod import Bound, BoundPod, SchedulablePod
from rules_engine.cluster.scheduling.scheduler import KubeScheduler
from rules_engine.cluster.scheduling.scheduling import Scheduling
from rules_engine.cluster.scheduling.scoring import Scores
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.devices import NO_DEVICES, Claim, Devices
from rules_engine.model.rules.simulation import Milliseconds, SchedulerOptions

__all__ = ["Bound", "BoundPod", "SchedulablePod", "SchedulingCycle"]

COMPARISONS = 20_000_000
"""Labels of bound pods that one answer compares with topology spread and pod affinity: some 20 seconds."""

CACHED_TALLIES = 10_000
"""Tallies of pods by domain that are cached: usually enough for all pods that arrive. One takes a kilobyte or two."""


class SchedulingCycle:
    """The nodes and bound pods of a cluster, which change, and the scheduler on them.

    Answers raise CostExceeded if they compare too many labels.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        namespaces: Mapping[str, Mapping[str, str]] | None,
        options: SchedulerOptions,
        seed: int,
        devices: Devices = NO_DEVICES,
        budgets: DisruptionBudgets | None = None,
    ) -> None:
        """Take the nodes without their pods, the labels of namespaces, if known, what drivers offer, and budgets."""
        self.budgets = budgets or DisruptionBudgets()
        self._options = options
        self._choice = NodeChoice(seed, [node.name for node in nodes])
        self.scheduler = KubeScheduler(
            nodes, namespaces, devices=devices, comparisons=COMPARISONS, tallies=CACHED_TALLIES
        )
        """The filters on the nodes and pods as they are now."""
        self.devices = self.scheduler.devices
        self._scores = Scores(self.scheduler, options)
        self._preemption = Preemption(self.scheduler, self._choice, self.budgets)

    def bind(self, pod: BoundPod, released: Sequence[Claim] | None = None) -> None:
        """Add a pod to its node, whether it fits there or not; `released`: its claims, if it returns."""
        self.scheduler.bind(pod.node, pod.pod.requirements)
        self.devices.bind(pod.name, pod.node, pod.pod.requirements, released)
        self._scores.count(pod.node, pod.pod.preferences, 1)
        self._preemption.bind(pod)

    def release(self, pod: BoundPod) -> None:
        """Remove a pod from its node: undo a `bind`."""
        self.scheduler.release(pod.node, pod.pod.requirements)
        self.devices.release(pod.name)
        self._scores.count(pod.node, pod.pod.preferences, -1)
        self._preemption.release(pod)

    def change_node(self, number: int, node: Node) -> None:
        """Replace a node by one of the same name with another state."""
        old = self.scheduler.nodes[number]
        self.scheduler.change_node(number, node)
        self._scores.change_node(number, old, node)
        if node.allocatable != old.allocatable:
            self._preemption.forget()

    def schedule(self, name: str, pod: SchedulablePod, now: Milliseconds) -> Bound | None:
        """Bind a pod to the best node, if need be in place of pods of lower priority; None if it can run on none."""
        try:
            nodes = self.top(pod)
        except DevicesError:
            return None  # kube-scheduler does not preempt after a failure
        bound: Bound | None = None
        if nodes:
            bound = Bound(self._choice.choose_node(name, nodes), equal=nodes)
        elif self._preempts(pod):
            bound = self._preemption.find(name, pod)
        if bound is None:
            return None
        for victim in bound.victims:
            self.release(victim)
        # Topology spread never counted terminating victims, but the choice of victims did.
        terminating = any(victim.pod.requirements.terminating for victim in bound.victims)
        if terminating and not self.scheduler.feasible_without_devices(pod.requirements) >> bound.node & 1:
            return Bound(bound.node, bound.victims, waits=True)
        self.bind(BoundPod(name, pod, bound.node, now))
        return bound

    def explain(self, pod: SchedulablePod) -> Scheduling:
        """Return the filters' answer for an unbound pod."""
        return self.scheduler.answer(pod.requirements)

    def feasible(self, pod: SchedulablePod) -> NodeSet:
        """Return the nodes that pass all filters. Raises DevicesError."""
        return self.scheduler.feasible(pod.requirements)

    def top(self, pod: SchedulablePod) -> NodeSet:
        """Return the feasible nodes with the highest total score. Raises DevicesError."""
        return self._scores.top(pod.preferences, self.feasible(pod))

    def may_fit(self, pod: SchedulablePod, number: int) -> bool:
        """Return False if a node lacks resources for a pod, even without the pods that it could preempt."""
        return self._preemption.has_room(pod, number, preempts=self._preempts(pod))

    def fitting(self, pod: SchedulablePod, number: int) -> int:
        """Return how many pods like this one have the resources on a node without the pods that they could preempt."""
        return self._preemption.fitting(pod, number, preempts=self._preempts(pod))

    def _preempts(self, pod: SchedulablePod) -> bool:
        return self._options.preemption and pod.preempts
