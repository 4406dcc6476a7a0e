"""The end of kube-scheduler's message: why neither claims nor preemption help a pod that no node can run.

Source: Kubernetes 1.36, plugins/dynamicresources/dynamicresources.go (PostFilter), framework/preemption/preemption.go
(Preempt, DryRunPreemption), plugins/defaultpreemption/default_preemption.go. PodDisruptionBudgets do not matter here.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from rules_engine.cluster.nodes import numbers_of, union
from rules_engine.cluster.scheduling.amounts import PODS
from rules_engine.cluster.scheduling.filters.devices import DevicesError
from rules_engine.cluster.scheduling.filters.usage import Usage
from rules_engine.cluster.scheduling.preemption import nodes_needing_all_filters
from rules_engine.cluster.scheduling.requirements import Footprint, Requirements, priority_of
from rules_engine.cluster.scheduling.schedulable_pod import NEVER
from rules_engine.cluster.scheduling.scheduler import KubeScheduler, resource_reason
from rules_engine.cluster.scheduling.scheduling import Filter, Scheduling
from rules_engine.language.cel import CostExceeded
from rules_engine.model.json.lenient import as_list, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject

NO_CLAIMS = "no new claims to deallocate"
CLAIMS_KEPT = "still not schedulable"
NOT_PREFILTERED = "not found"
"""The error of DynamicResources for a pod that a filter before it rejected on all nodes."""

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NOT_ELIGIBLE = "preemption: not eligible due to preemptionPolicy=Never."


def message_end(objects: ClusterObjects, scheduler: KubeScheduler, pod: PodObject, scheduling: Scheduling) -> str:
    """Return the end of the message; "" if pods of lower priority end for the pod, or if that is unknown.

    `scheduler`: a scheduler of the objects, which is changed and restored.
    """
    if scheduling.failure or scheduling.feasible or not scheduling.nodes:
        return ""
    if scheduling.rejected:
        return NOT_PREFILTERED
    requirements = Requirements.of(pod)
    try:
        if text_member(pod.spec, "preemptionPolicy") == NEVER:
            preemption = NOT_ELIGIBLE
        else:
            preemption = _preemption(objects, scheduler, requirements, scheduling)
    except CostExceeded:
        return ""
    except DevicesError as error:
        return f"preemption: {error}"
    if not preemption:
        return ""
    classes = scheduler.devices._classes
    served = any(each.resource in classes and each.count for each in requirements.devices)
    return f"{CLAIMS_KEPT if served or as_list(pod.spec.get('resourceClaims')) else NO_CLAIMS}, {preemption}"


def _preemption(objects: ClusterObjects, scheduler: KubeScheduler, pod: Requirements, scheduling: Scheduling) -> str:
    """Return the part of DefaultPreemption. Raises CostExceeded and DevicesError."""
    capacity = Usage([*map(scheduler.devices.without_served, scheduler.nodes)])
    exceeded = union([capacity.below(resource, amount) for resource, amount in pod.requests.items() if amount])
    lacking = union(scheduling.failing.get(Filter.NODE_RESOURCES_FIT, {}).values())
    nodes = scheduling.resolvable & ~(lacking & exceeded)
    all_filters = nodes_needing_all_filters(pod, scheduling)
    counts = Counter({NOT_HELPFUL: len(scheduling.nodes) - nodes.bit_count()})
    for number in numbers_of(nodes):
        bound = objects.pods_on(scheduler.nodes[number].name)
        # Topology spread subtracts terminating pods as well.
        lower = [
            replace(Footprint.read(each), terminating=False) for each in bound if priority_of(each.spec) < pod.priority
        ]
        why = _insufficient(scheduler, pod, number, lower) if lower else [NO_VICTIMS]
        # Of the other filters, only the one for ports comes before the one for resources.
        if lower and (pod.ports or not why) and (pod.devices or all_filters >> number & 1):
            why = _dry_run(scheduler, pod, number, lower)
        if not why:
            return ""
        counts.update(why)
    counted = ", ".join(sorted(f"{count} {why}" for why, count in counts.items() if count))
    return f"preemption: 0/{len(scheduling.nodes)} nodes are available: {counted}."


def _insufficient(
    scheduler: KubeScheduler, pod: Requirements, number: int, victims: Sequence[Footprint]
) -> Sequence[str]:
    """Return the reasons of NodeResourcesFit without the victims."""
    why = []
    for resource, amount in ((PODS, 1), *pod.requests.items()):
        freed = sum(1 if resource == PODS else each.requests.get(resource, 0) for each in victims)
        if amount > scheduler.free(number, resource) + freed and amount:
            why.append(resource_reason(resource))
    return why


def _dry_run(scheduler: KubeScheduler, pod: Requirements, number: int, victims: Sequence[Footprint]) -> Sequence[str]:
    """Return the reasons of the first filter that excludes a node without the victims."""
    for each in victims:
        scheduler.release(number, each)
    try:
        scheduling = scheduler.answer(pod)
    finally:
        for each in victims:
            scheduler.bind(number, each)
    if scheduling.failure:
        raise DevicesError(scheduling.failure)
    return [why for excluded in scheduling.failing.values() for why, nodes in excluded.items() if nodes >> number & 1]
