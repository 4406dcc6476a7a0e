"""Builders of the objects that a diagnosis reports on."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rules_engine.model.kubernetes.cluster_objects import DIAGNOSED_RESOURCES, ClusterObjects
from tests.support.reduced_objects import reduced

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def gpu_node(name: str, gpus: int = 8, *, allocatable: int | None = None, **fields: Any) -> dict[str, Any]:
    """A ready node with GPUs; `fields`: labels, unschedulable, ready, more (further resources)."""
    more = fields.get("more", {})
    return {
        "metadata": {"name": name, "labels": fields.get("labels", {})},
        "spec": {"unschedulable": True} if fields.get("unschedulable") else {},
        "status": {
            "capacity": {"cpu": "96", "nvidia.com/gpu": str(gpus), **more},
            "allocatable": {"cpu": "95", "nvidia.com/gpu": str(gpus if allocatable is None else allocatable), **more},
            "conditions": [{"type": "Ready", "status": "True" if fields.get("ready", True) else "Unknown"}],
        },
    }


def gpu_pod(name: str, node: str = "", gpus: int = 1, *, namespace: str = "ml", **fields: Any) -> dict[str, Any]:
    """A pod with GPUs; `fields`: phase, statuses (of containers), status, owner, resource, metadata, spec."""
    amounts = {fields.get("resource", "nvidia.com/gpu"): str(gpus)} if gpus else {}
    owner = fields.get("owner")
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            **({"ownerReferences": [{**owner, "controller": True}]} if owner else {}),
            **fields.get("metadata", {}),
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "main", "resources": {"limits": amounts, "requests": {"cpu": "1", **amounts}}}],
            **fields.get("spec", {}),
        },
        "status": {
            "phase": fields.get("phase", "Running" if node else "Pending"),
            **({"containerStatuses": fields["statuses"]} if "statuses" in fields else {}),
            **fields.get("status", {}),
        },
    }


def daemon_set(name: str, desired: int, ready: int, *, namespace: str = "gpu-operator") -> dict[str, Any]:
    """A DaemonSet with the numbers of its pods."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "status": {"desiredNumberScheduled": desired, "numberReady": ready},
    }


def warning_event(kind: str, name: str, reason: str, message: str, **fields: Any) -> dict[str, Any]:
    """A Warning about an object, five minutes ago; `fields`: namespace, and those of the Event."""
    namespace = fields.pop("namespace", "" if kind == "Node" else "ml")
    return {
        "type": "Warning",
        "involvedObject": {"kind": kind, "name": name, "namespace": namespace},
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-11-23T11:55:00Z",
        **fields,
    }


def cluster_of(absent: frozenset[str] = frozenset(), **lists: list[dict[str, Any]]) -> ClusterObjects:
    """A cluster at NOW with these objects, by the names of their kinds in kubectl."""
    kinds = {resource: kind for kind, resource in DIAGNOSED_RESOURCES.items()}
    by_kind: Mapping[str, list[dict[str, Any]]] = {kinds[resource]: found for resource, found in lists.items()}
    return ClusterObjects(reduced(by_kind), absent=absent, now=NOW)
