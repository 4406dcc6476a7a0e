"""Small objects of the API for tests of the scheduler's model."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.scheduling import Scheduler, Scheduling, scheduler_of

Object = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, labels: dict[str, str] | None = None, taints: Sequence[str] = (), **spec: Any) -> Object:
    """Build a node. Taints are written key=value:effect; `allocatable` adds to 4 cpu, 16Gi and 10 pods."""
    allocatable = {"cpu": "4", "memory": "16Gi", "pods": "10", **spec.pop("allocatable", {})}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [*map(taint, taints)], **spec},
        "status": {"allocatable": {key: value for key, value in allocatable.items() if value is not None}},
    }


def taint(written: str) -> Object:
    place, _, effect = written.rpartition(":")
    key, _, value = place.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def pod(name: str = "p", labels: dict[str, str] | None = None, *, namespace: str = "default", **spec: Any) -> Object:
    """Build a pod with one container; `requests` and `ports` are the container's, and `on` is its node."""
    requests, ports = spec.pop("requests", {}), spec.pop("ports", [])
    bound = {"nodeName": spec.pop("on")} if "on" in spec else {}
    container = {"name": "main", "resources": {"requests": requests}, "ports": ports}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], **bound, **spec},
        "status": {"phase": "Running" if bound else "Pending"},
    }


def scheduler(nodes: Sequence[Object], pods: Sequence[Object] = (), namespaces: Sequence[Object] = ()) -> Scheduler:
    return scheduler_of(ClusterObjects({"Node": nodes, "Pod": pods, "Namespace": namespaces}, now=NOW))


def scheduled(subject: Object, nodes: Sequence[Object], pods: Sequence[Object] = ()) -> Scheduling:
    return scheduler(nodes, pods).explain(subject)
