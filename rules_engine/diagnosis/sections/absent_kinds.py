"""Kinds of objects that were not read, and the facts that are unknown without them."""

from collections.abc import Mapping

from rules_engine.diagnosis.values import Absent
from rules_engine.model.kubernetes.cluster_objects import RESOURCES, ClusterObjects

UNKNOWN: Mapping[str, str] = {
    "Node": "what nodes offer and why pods are not scheduled",
    "Pod": "what is allocated and free, which pods wait and whether device plugins run",
    "Event": "recent errors, the scheduler's own words and pods that were never created",
    "DaemonSet": "which device plugins there are",
    "ReplicaSet": "which ReplicaSets lack pods",
    "StatefulSet": "which StatefulSets lack pods",
    "Job": "which Jobs lack pods",
    "PersistentVolumeClaim": "whether a pod waits for a volume claim that is not bound",
    "RuntimeClass": "whether the runtime class of a pod exists",
    "ResourceQuota": "which quota is exhausted",
    "Namespace": "which rules match a pod by the labels of its namespace",
}
"""The facts that are unknown without the objects of a kind."""


def absent_kinds(cluster: ClusterObjects) -> tuple[Absent, ...]:
    """Return the kinds that were not read, or not of all namespaces, in the order of RESOURCES."""
    return tuple(
        Absent(objects=unread, unknown=UNKNOWN[kind]) for kind in RESOURCES if (unread := cluster.unread(kind))
    )
