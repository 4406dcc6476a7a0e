"""The end of kube-scheduler's message: why neither claims nor preemption help a pod that no node can run.

Source: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (PostFilter), framework/preemption/preemption.go
(Preempt, DryRunPreemption), plugins/defaultpreemption/default_preemption.go. PodDisruptionBudgets do not matter here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from rules_engine.cel import CostExceeded
from rules_engine.evaluation.nodes import NodeSet, node_set, numbers_of, union
from rules_engine.model.json.lenient import as_list, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.scheduling.amounts import PODS
from rules_engine.scheduling.filters.devices import DevicesError
from rules_engine.scheduling.filters.usage import Usage
from rules_engine.scheduling.preemption import nodes_needing_all_filters
from rules_engine.scheduling.requirements import Footprint, Requirements, priority_of
from rules_engine.scheduling.schedulable_pod import NEVER
from rules_engine.scheduling.scheduler import Scheduler, resource_reason
from rules_engine.scheduling.scheduling import Filter, Scheduling

MAX_DRY_RUNS = 100
"""Nodes on which all filters run again without the pods of lower priority; a run takes some milliseconds."""

MAX_CACHED = 1_000
"""Different requests whose answers are cached: a report has a few."""

NO_CLAIMS = "no new claims to deallocate"
CLAIMS_KEPT = "still not schedulable"
NOT_PREFILTERED = "not found"
"""The error of DynamicResources for a pod that a filter before it rejected on all nodes."""

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NOT_ELIGIBLE = "preemption: not eligible due to preemptionPolicy=Never."


class PostFilter:
    """The plugins that kube-scheduler runs for pods of a cluster that no node can run."""

    def __init__(self, objects: ClusterObjects, scheduler: Scheduler) -> None:
        """Take a scheduler of the objects. It is changed and restored by `message`."""
        self._objects = objects
        self._scheduler = scheduler
        self._capacity: Usage | None = None
        self._lower: dict[int, NodeSet] = {}
        self._remaining: dict[object, Mapping[str, int]] = {}

    def message(self, pod: PodObject, scheduling: Scheduling, *, claims: bool = True) -> str:
        """Return the end of the message; "" if pods of lower priority end for the pod, or if that is unknown.

        `claims`: DynamicResources takes part, as it does since Kubernetes 1.34.
        """
        if scheduling.failure or scheduling.feasible or not scheduling.nodes:
            return ""
        if scheduling.rejected:
            return NOT_PREFILTERED if claims else ""
        requirements = Requirements.of(pod)
        try:
            preemption = self._preemption(pod, requirements, scheduling)
        except CostExceeded:
            return ""
        except DevicesError as error:
            return f"preemption: {error}"
        if not preemption or not claims:
            return preemption
        named = bool(as_list(pod.spec.get("resourceClaims")))
        served = named or self._scheduler.devices.serves(requirements.devices)
        return f"{CLAIMS_KEPT if served else NO_CLAIMS}, {preemption}"

    def _preemption(self, pod: PodObject, requirements: Requirements, scheduling: Scheduling) -> str:
        """Return the part of DefaultPreemption. Raises CostExceeded and DevicesError."""
        if text_member(pod.spec, "preemptionPolicy") == NEVER:
            return NOT_ELIGIBLE
        lacking = union(scheduling.failing.get(Filter.NODE_RESOURCES_FIT, {}).values())
        nodes = scheduling.resolvable & ~(lacking & self._exceeded(requirements))
        having = nodes & self._having_lower(requirements.priority)
        all_filters = having & nodes_needing_all_filters(requirements, scheduling)
        # Equal requests have equal answers where resources and devices decide.
        key = having, requirements.priority, tuple(requirements.requests.items()), requirements.devices
        cacheable = not (all_filters or requirements.ports)
        remaining = self._remaining.get(key) if cacheable else None
        if remaining is None:
            remaining = self._count_remaining(requirements, having, all_filters)
            if cacheable and len(self._remaining) < MAX_CACHED:
                self._remaining[key] = remaining
        if having and not remaining:
            return ""
        counts = Counter(remaining)
        counts[NO_VICTIMS] = (nodes & ~having).bit_count()
        counts[NOT_HELPFUL] = len(scheduling.nodes) - nodes.bit_count()
        counted = ", ".join(sorted(f"{count} {why}" for why, count in counts.items() if count))
        return f"preemption: 0/{len(scheduling.nodes)} nodes are available: {counted}."

    def _count_remaining(self, pod: Requirements, having: NodeSet, all_filters: NodeSet) -> Mapping[str, int]:
        """Return the number of nodes for each reason that remains without pods of lower priority.

        Empty if they end for the pod, or if that is unknown. Raises CostExceeded and DevicesError.
        """
        counts: Counter[str] = Counter()
        dry_runs = 0
        for number in numbers_of(having):
            victims = self._lower_pods(number, pod.priority)
            why = self._insufficient(pod, number, victims)
            # Of the other filters, only the one for ports comes before the one for resources.
            if (pod.ports or not why) and (pod.devices or all_filters >> number & 1):
                dry_runs += 1
                if dry_runs > MAX_DRY_RUNS:
                    return {}
                why = self._dry_run(pod, number, victims)
            if not why:
                return {}
            counts.update(why)
        return counts

    def _lower_pods(self, number: int, priority: int) -> Sequence[Footprint]:
        """Return the pods of a node below a priority; topology spread subtracts terminating ones as well."""
        pods = self._objects.pods_on(self._scheduler.nodes[number].name)
        return [replace(Footprint.read(pod), terminating=False) for pod in pods if priority_of(pod.spec) < priority]

    @cached_property
    def _lowest(self) -> Sequence[int | None]:
        """The lowest priority of a pod on each node; None without pods."""
        names = (node.name for node in self._scheduler.nodes)
        return [min((priority_of(pod.spec) for pod in self._objects.pods_on(name)), default=None) for name in names]

    def _having_lower(self, priority: int) -> NodeSet:
        """Return the nodes that have pods below a priority."""
        nodes = self._lower.get(priority)
        if nodes is None:
            lower = [number for number, least in enumerate(self._lowest) if least is not None and least < priority]
            nodes = self._lower[priority] = node_set(lower)
        return nodes

    def _exceeded(self, pod: Requirements) -> NodeSet:
        """Return the nodes that have less of a resource than a pod requests: no pod ends for it there."""
        if self._capacity is None:
            self._capacity = Usage([*map(self._scheduler.devices.without_served, self._scheduler.nodes)])
        return union([self._capacity.below(resource, amount) for resource, amount in pod.requests.items() if amount])

    def _insufficient(self, pod: Requirements, number: int, victims: Sequence[Footprint]) -> Sequence[str]:
        """Return the reasons of NodeResourcesFit without the victims."""
        why = []
        for resource, amount in ((PODS, 1), *pod.requests.items()):
            freed = sum(1 if resource == PODS else each.requests.get(resource, 0) for each in victims)
            if amount > self._scheduler.free(number, resource) + freed and amount:
                why.append(resource_reason(resource))
        return why

    def _dry_run(self, pod: Requirements, number: int, victims: Sequence[Footprint]) -> Sequence[str]:
        """Return the reasons of the first filter that excludes a node without the victims.

        Raises CostExceeded and DevicesError.
        """
        for each in victims:
            self._scheduler.release(number, each)
        try:
            scheduling = self._scheduler.answer(pod, among=1 << number)
        finally:
            for each in victims:
                self._scheduler.bind(number, each)
        if scheduling.failure:
            raise DevicesError(scheduling.failure)
        return [
            why for excluded in scheduling.failing.values() for why, nodes in excluded.items() if nodes >> number & 1
        ]
