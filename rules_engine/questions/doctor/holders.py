"""The pods that hold GPUs, by node."""

from collections.abc import Mapping, Sequence
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


class Holders:
    """The pods of a cluster that hold GPUs."""

    def __init__(self, cluster: ClusterObjects) -> None:
        self._cluster = cluster
        self.evidence = lru_cache(CACHED_EVIDENCE)(self._evidence)
        """Return a line for each of the largest holders of a resource on nodes, and a line that counts the others."""

    @cached_property
    def _by_resource(self) -> Mapping[str, Mapping[str, Sequence[tuple[int, PodObject]]]]:
        """The amounts that pods hold, with the pods, by resource and node."""
        by_resource: dict[str, dict[str, list[tuple[int, PodObject]]]] = {}
        for node in self._cluster.nodes:
            for pod in self._cluster.pods_on(node.name):
                for resource, amount in requested_gpus(pod).items():
                    if amount > 0:
                        by_resource.setdefault(resource, {}).setdefault(node.name, []).append((amount, pod))
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
        first = nsmallest(MAX_HOLDERS, holders, key=lambda it: (-it[0], it[1].namespace, it[1].name))
        lines = [
            f"{pod.namespace}/{pod.name} holds {amount} {resource} on {pod.node_name}{since_clause(binding_time(pod))}"
            f"{', and is being deleted' if pod.metadata.get('deletionTimestamp') is not None else ''}"
            for amount, pod in first
        ]
        others = len(holders) - len(first)
        if others:
            left = sum(amount for amount, _ in holders) - sum(amount for amount, _ in first)
            lines.append(f"{format_count(others, 'other pod')} hold {left} {resource}")
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
