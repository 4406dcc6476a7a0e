"""Builders of the objects of a recorded cluster, as `kubectl get -o json` prints them, reduced to what matters."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rules_engine.diagnosis.reasons import PendingReason
from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, ClusterObjects
from tests.support.reduced_objects import reduced

Object = dict[str, Any]

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)

GPU = "nvidia.com/gpu"
MIG1 = "nvidia.com/mig-1g.5gb"
MIG3 = "nvidia.com/mig-3g.20gb"
RDMA = "rdma/hca"
DRIVER = "gpu.nvidia.com"

DEVICE_REASONS = frozenset(
    {
        PendingReason.TOO_MANY_DEVICES,
        PendingReason.SELECTOR_FAILS,
        PendingReason.DEVICES_TAINTED,
        PendingReason.POOL_UNUSABLE,
        PendingReason.CLASS_SHADOWED,
        PendingReason.NO_DEVICE,
        PendingReason.COUNTERS_EXHAUSTED,
        PendingReason.DEVICES_ALLOCATED,
        PendingReason.CLAIM_MISSING,
        PendingReason.CLAIM_ELSEWHERE,
    }
)
"""Reasons that only pods with devices of drivers have."""


def ago(**before: int) -> str:
    """Return a point in time before NOW, as the API writes it."""
    return (NOW - timedelta(**before)).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(
    name: str,
    gpus: Mapping[str, int] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    ready: bool = True,
    capacity: Mapping[str, int] | None = None,
    **allocatable: str,
) -> Object:
    """Return a node; taints are written key=value:effect. It has 32 cpu, 128Gi and room for 110 pods if not told."""
    offered = {"cpu": "32", "memory": "128Gi", "pods": "110", **allocatable}
    offered.update({resource: str(count) for resource, count in (gpus or {}).items()})
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [_taint(written) for written in taints]},
        "status": {
            "capacity": {**offered, **{resource: str(count) for resource, count in (capacity or {}).items()}},
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }


def _taint(written: str) -> Object:
    place, _, effect = written.rpartition(":")
    key, _, value = place.partition("=")
    return {"key": key, "value": value, "effect": effect}


def cordoned(made: Object) -> Object:
    """Return a node that is cordoned, with the taint that the node lifecycle controller sets."""
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    spec = {**made["spec"], "unschedulable": True, "taints": [*made["spec"]["taints"], taint]}
    return {**made, "spec": spec}


def pod(
    name: str,
    requests: Mapping[str, int | str] | None = None,
    *,
    on: str = "",
    namespace: str = "ml",
    message: str = "",
    labels: Mapping[str, str] | None = None,
    metadata: Object | None = None,
    status: Object | None = None,
    **spec: Any,
) -> Object:
    """Return a pod with one container: Running `on` a node, or Pending with the scheduler's message."""
    amounts = {resource: str(count) for resource, count in (requests or {}).items()}
    condition: Object = {
        "type": "PodScheduled",
        "status": "True" if on else "False",
        "lastTransitionTime": ago(hours=3),
    }
    if message:
        condition |= {"reason": "Unschedulable", "message": message}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "creationTimestamp": ago(hours=3),
            **(metadata or {}),
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending", "conditions": [condition], **(status or {})},
    }


def event(about: Object, reason: str, message: str, *, last: str = "", **fields: Any) -> Object:
    """Return an Event about an object, seen last ten minutes before NOW."""
    metadata = about["metadata"]
    involved = {"kind": about["kind"], "name": metadata["name"], "namespace": metadata.get("namespace", "")}
    if "uid" in metadata:
        involved["uid"] = metadata["uid"]
    return {
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{reason}", "namespace": metadata.get("namespace", "default")},
        "involvedObject": involved,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": last or ago(minutes=10),
        **fields,
    }


def claim(name: str, phase: str, **metadata: Any) -> Object:
    """Return a PersistentVolumeClaim."""
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ml", **metadata},
        "status": {"phase": phase},
    }


def device_class(
    name: str, resource: str = "", type: str = "gpu", *, created: str = "", selector: str | None = None
) -> Object:
    """Return a DeviceClass of the devices of a type, three days old if not told."""
    expression = f"device.attributes['{DRIVER}'].type == '{type}'" if selector is None else selector
    return {
        "kind": "DeviceClass",
        "metadata": {"name": name, "creationTimestamp": created or ago(days=3)},
        "spec": {
            "selectors": [{"cel": {"expression": expression}}],
            **({"extendedResourceName": resource} if resource else {}),
        },
    }


def device(name: str, type: str = "gpu", *, uuid: str = "", **fields: Any) -> Object:
    """Return a device of a ResourceSlice."""
    attributes = {"type": {"string": type}, **({"uuid": {"string": uuid}} if uuid else {})}
    return {"name": name, "attributes": attributes, **fields}


def resource_slice(
    node: str,
    *devices: Object,
    name: str = "",
    driver: str = DRIVER,
    count: int = 1,
    generation: int = 1,
    **spec: Any,
) -> Object:
    """Return a ResourceSlice of the pool of a node."""
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": name or node},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
            **({"devices": [*devices]} if devices else {}),
            **spec,
        },
    }


def resource_claim(
    name: str, devices: Sequence[str], *, pool: str = "a", reserved: str = "", **metadata: Any
) -> Object:
    """Return a ResourceClaim with devices of the pool of a node, reserved for a pod."""
    allocation = {
        "devices": {"results": [{"driver": DRIVER, "pool": pool, "device": each} for each in devices]},
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pool]}]}]
        },
    }
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ml", **metadata},
        "status": {
            **({"allocation": allocation} if devices else {}),
            **({"reservedFor": [{"resource": "pods", "name": reserved}]} if reserved else {}),
        },
    }


def cluster(*objects: Object, absent: Sequence[str] = ()) -> ClusterObjects:
    """Return a cluster of these objects; kinds in `absent` were not read."""
    by_kind: dict[str, list[Object]] = {kind: [] for kind in API_RESOURCES if kind not in absent}
    for found in objects:
        by_kind.setdefault(found["kind"], []).append(found)
    return ClusterObjects(reduced(by_kind), absent=frozenset(absent), now=NOW)
