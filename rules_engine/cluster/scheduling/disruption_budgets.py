"""PodDisruptionBudgets: pods that preemption spares as long as others can end.

Sources: pkg/scheduler/framework/plugins/defaultpreemption (filterPodsWithPDBViolation), pkg/controller/disruption
(getExpectedPodCount, countHealthyPods, updatePdbStatus).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from rules_engine.cluster.scheduling.requirements import Footprint, read_selector
from rules_engine.cluster.scheduling.schedulable_pod import BoundPod
from rules_engine.model.json.lenient import as_mapping, integer_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.rules.rule import LabelSelector

SYNC_FAILED = "SyncFailed"
"""Reason of the condition DisruptionAllowed if the controller cannot determine the expected pods."""


class DisruptionBudgets:
    """The budgets of a cluster, whose statuses follow from the pods that run and that their controllers should have.

    A controller counts with its pods in place of its scale. Controllers other than ReplicaSets, StatefulSets and
    ReplicationControllers count as having no scale, as Jobs have none.
    """

    def __init__(self, objects: ClusterObjects | None = None) -> None:
        """Take the budgets of objects, and which of their pods are not ready; no pod runs yet."""
        # The scheduler ignores empty selectors.
        self._budgets = [
            _Budget(item, selector)
            for item in (objects.of("PodDisruptionBudget") if objects else ())
            if (selector := read_selector(item.spec.get("selector")))
        ]
        self._unready = {
            f"{pod.namespace or DEFAULT_NAMESPACE}/{pod.name}"
            for pod in (objects.pods if objects and self._budgets else ())
            if pod.condition("Ready").get("status", "True") != "True"
        }
        self._matching: dict[tuple[object, ...], Sequence[_Budget]] = {}
        """Budgets by the namespace and labels of pods."""

    def of(self, pod: Footprint) -> "Sequence[_Budget]":
        """Return the budgets of a pod."""
        if not self._budgets or not pod.labels:
            return ()
        key = (pod.namespace, *pod.labels.items())
        found = self._matching.get(key)
        if found is None:
            found = self._matching[key] = [
                each for each in self._budgets if each.namespace == pod.namespace and each.selector.matches(pod.labels)
            ]
        return found

    def count_running(self, pod: BoundPod, number: int) -> None:
        """Count a pod that was bound (1) or released (-1)."""
        for budget in self.of(pod.pod.requirements):
            if not (pod.pod.requirements.terminating or pod.name in self._unready or pod.name in budget.disrupted):
                budget.healthy += number

    def count_expected(self, pod: Footprint, number: int, *, scaled: bool) -> None:
        """Count a pod that its controller should have from now on (1) or no longer (-1); `scaled`: it has a scale."""
        for budget in self.of(pod):
            if scaled:
                budget.expected += number
            else:
                budget.unscaled += number

    def use_statuses(self) -> None:
        """Start from the statuses of the objects, of which later pods change only what they change in the cluster."""
        for budget in self._budgets:
            budget.use_status()

    def exceeding(self, pods: Iterable[BoundPod]) -> Mapping[str, BoundPod]:
        """Return the pods, by name, whose end exceeds a budget if the pods end in this order."""
        left: dict[int, int] = {}
        found = {}
        for pod in pods:
            exceeds = False
            for budget in self.of(pod.pod.requirements):
                if pod.name not in budget.disrupted:
                    left[id(budget)] = left.get(id(budget), budget.allowed) - 1
                    exceeds |= left[id(budget)] < 0
            if exceeds:
                found[pod.name] = pod
        return found


class _Budget:
    """A budget. `disrupted`: pods whose eviction the API server has counted already."""

    def __init__(self, item: ApiObject, selector: LabelSelector) -> None:
        self.item = item
        self.namespace = item.namespace or DEFAULT_NAMESPACE
        self.selector = selector
        self.disrupted = {f"{self.namespace}/{name}" for name in as_mapping(item.status.get("disruptedPods"))}
        self.healthy = 0
        self.expected = 0
        self.unscaled = 0
        """Pods of controllers without a scale: with one, the controller of budgets fails."""
        self._added = 0
        """The difference between the status at the beginning and what was computed from pods."""
        self._undetermined = 0
        """The disruptions that its status allowed at the beginning, if they cannot be computed."""

    @property
    def allowed(self) -> int:
        """The number of disruptions that the budget allows."""
        surplus = self._surplus()
        return self._undetermined if surplus is None else max(0, surplus + self._added)

    def use_status(self) -> None:
        status = self.item.status
        if "disruptionsAllowed" not in status:
            return
        self.expected = integer_member(status, "expectedPods", self.expected)
        self.unscaled = int(self.item.condition("DisruptionAllowed").get("reason") == SYNC_FAILED)
        given, surplus = integer_member(status, "disruptionsAllowed", 0), self._surplus()
        if surplus is None:
            self._undetermined = given
        elif max(given, surplus) > 0:
            self._added = given - surplus

    def _surplus(self) -> int | None:
        """Return the healthy pods beyond the desired ones, possibly negative; None if they cannot be determined."""
        most, least = self.item.spec.get("maxUnavailable"), self.item.spec.get("minAvailable")
        if most is None and isinstance(least, int):
            return self.healthy - least
        share = _share(least if most is None else most, self.expected)
        if share is None or self.unscaled or self.expected <= 0:
            return None
        return self.healthy - (share if most is None else max(0, self.expected - share))


def _share(value: Json, total: int) -> int | None:
    """Return a number, or a percentage of a total, rounded up; None if it is malformed."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}%", value):
        return -(-int(value[:-1]) * total // 100)
    return value if isinstance(value, int) else None
