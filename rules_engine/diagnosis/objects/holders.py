"""The pods that hold GPUs, by node."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from rules_engine.diagnosis.objects.gpu_objects import devices_of
from rules_engine.diagnosis.objects.timestamps import timestamp
from rules_engine.diagnosis.wording import counted, since
from rules_engine.model.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.gpu_resources import is_gpu

MAX_HOLDERS = 5
"""Pods that evidence names, those with the most devices: the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A pod that holds GPUs on a node. `since`: when it was bound to the node."""

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

    @cached_property
    def _by_node(self) -> Mapping[str, Sequence[Holder]]:
        found: dict[str, list[Holder]] = {}
        for node in self._cluster.nodes:
            for pod in self._cluster.pods_on(node.name):
                amounts = gpus_of(pod)
                if amounts:
                    held = Holder(pod=pod, amounts=amounts, since=bound_since(pod))
                    found.setdefault(node.name, []).append(held)
        return found

    def evidence(self, resource: str, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return a line for each of the pods that hold most of a resource, and one that counts the others."""
        holding = [held for node in nodes for held in self._by_node.get(node, ()) if held.amounts.get(resource, 0) > 0]
        holding.sort(key=lambda held: (-held.amounts[resource], held.pod.namespace, held.pod.name))
        lines = [
            f"{held.pod.namespace}/{held.pod.name} holds {held.amounts[resource]} {resource} on "
            f"{held.pod.node_name}{since(held.since)}{', and is being deleted' if held.terminating else ''}"
            for held in holding[:MAX_HOLDERS]
        ]
        others = holding[MAX_HOLDERS:]
        if others:
            amount = sum(held.amounts[resource] for held in others)
            lines.append(f"{counted(len(others), 'other pod')} hold {amount} {resource}")
        return tuple(lines)


def gpus_of(pod: PodObject) -> Mapping[str, int]:
    """Return the GPUs that a pod requests, in whole units."""
    return {name: count for name, count in devices_of(pod).items() if is_gpu(name)}


def bound_since(pod: PodObject) -> datetime | None:
    """Return the time at which a pod was bound to its node."""
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "True":
        return timestamp(scheduled, "lastTransitionTime")
    return timestamp(pod.status, "startTime")
