"""The pods that hold GPUs, by node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from heapq import nsmallest

from rules_engine.accelerators.resources import is_gpu
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.wording import format_count
from rules_engine.questions.doctor.gpu_objects import LONG_AGO, container_statuses, devices_of, parse_timestamp
from rules_engine.questions.doctor.wording import since_clause

CACHED_EVIDENCE = 64
"""Sets of nodes whose evidence is cached: 40 KiB each with 5,000 nodes. Pods differ in cpu and memory more often."""

MAX_HOLDERS = 5
"""Pods with the most devices that evidence names; it counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A pod that holds GPUs on a node. `since`: the time at which it was bound to the node."""

    pod: PodObject
    amounts: Mapping[str, int]
    since: datetime | None

    @property
    def terminating(self) -> bool:
        return self.pod.metadata.get("deletionTimestamp") is not None


class Holders:
    """The pods of a cluster that hold GPUs."""

    def __init__(self, cluster: ClusterObjects) -> None:
        self._cluster = cluster
        self.evidence = lru_cache(CACHED_EVIDENCE)(self._evidence)
        """Return a line for each of the largest holders of a resource on nodes, and a line that counts the others."""

    @cached_property
    def _by_resource(self) -> Mapping[str, Mapping[str, Sequence[Holder]]]:
        """The pods by resource and node."""
        by_resource: dict[str, dict[str, list[Holder]]] = {}
        for node in self._cluster.nodes:
            for pod in self._cluster.pods_on(node.name):
                amounts = requested_gpus(pod)
                holder = Holder(pod=pod, amounts=amounts, since=binding_time(pod) if amounts else None)
                for resource, amount in amounts.items():
                    if amount > 0:
                        by_resource.setdefault(resource, {}).setdefault(node.name, []).append(holder)
        return by_resource

    @cached_property
    def last_changes(self) -> Mapping[str, datetime]:
        """The last time, by node, at which a pod with GPUs was bound to it, or ended after it had started."""
        changes: dict[str, datetime] = {}
        for pod in self._cluster.pods:
            if (container_statuses(pod) or not is_finished(pod)) and requested_gpus(pod):
                condition = pod.condition("Ready" if is_finished(pod) else "PodScheduled")
                at = parse_timestamp(condition, "lastTransitionTime") or LONG_AGO
                changes[pod.node_name] = max(changes.get(pod.node_name, LONG_AGO), at)
        return changes

    def _evidence(self, resource: str, nodes: tuple[str, ...]) -> tuple[str, ...]:
        by_node = self._by_resource.get(resource, {})
        holders = [holder for node in nodes for holder in by_node.get(node, ())]
        first = nsmallest(MAX_HOLDERS, holders, key=lambda it: (-it.amounts[resource], it.pod.namespace, it.pod.name))
        lines = [
            f"{holder.pod.namespace}/{holder.pod.name} holds {holder.amounts[resource]} {resource} "
            f"on {holder.pod.node_name}{since_clause(holder.since)}"
            f"{', and is being deleted' if holder.terminating else ''}"
            for holder in first
        ]
        others = len(holders) - len(first)
        if others:
            amount = sum(it.amounts[resource] for it in holders) - sum(it.amounts[resource] for it in first)
            lines.append(f"{format_count(others, 'other pod')} hold {amount} {resource}")
        return tuple(lines)


def requested_gpus(pod: PodObject) -> Mapping[str, int]:
    """Return the GPUs that a pod requests, in whole units."""
    return {name: count for name, count in devices_of(pod).items() if is_gpu(name)}


def binding_time(pod: PodObject) -> datetime | None:
    """Return the time at which a pod was bound to its node."""
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "True":
        return parse_timestamp(scheduled, "lastTransitionTime")
    return parse_timestamp(pod.status, "startTime")
