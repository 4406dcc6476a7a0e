"""Builders of the objects of a cluster, as `kubectl get -o json` prints them, reduced to what tests need."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rules_engine.cluster.read.kubectl import object_kind
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, API_RESOURCES, ClusterObjects, plain_kind
from rules_engine.model.kubernetes.removed_values import remove_values

Object = dict[str, Any]
Amounts = Mapping[str, int | str | None]

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)

GPU = "nvidia.com/gpu"
MIG1 = "nvidia.com/mig-1g.5gb"
MIG3 = "nvidia.com/mig-3g.20gb"
DRIVER = "gpu.nvidia.com"
EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}
"""The annotation of the claims that kube-scheduler makes for extended resources."""


def ago(**before: int) -> str:
    """Return a point in time before NOW, as the API writes it."""
    return (NOW - timedelta(**before)).strftime("%Y-%m-%dT%H:%M:%SZ")


def api_object(
    kind: str, name: str, namespace: str = "", *, metadata: Mapping[str, Any] | None = None, **members: Any
) -> Object:
    """Return an object of a key of API_KINDS, or of any other kind, then of the core group."""
    version = API_KINDS[kind].api_version if kind in API_KINDS else "v1"
    named = {"name": name, **({"namespace": namespace} if namespace else {}), "uid": f"uid-{name}", **(metadata or {})}
    return {"apiVersion": version, "kind": plain_kind(kind), "metadata": named, **members}


def node(
    name: str = "a",
    allocatable: Amounts | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    ready: bool = True,
    unschedulable: bool = False,
    cordoned: bool = False,
    capacity: Amounts | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Object:
    """Return a node of 4 cpu, 16Gi and 10 pods, to which `allocatable` adds; taints are written key=value:effect.

    `cordoned` also adds the taint that the node lifecycle controller sets, as `unschedulable` does not.
    """
    offered = _texts({"cpu": "4", "memory": "16Gi", "pods": "10", **(allocatable or {})})
    if cordoned:
        taints, unschedulable = [*taints, "node.kubernetes.io/unschedulable:NoSchedule"], True
    return api_object(
        "Node",
        name,
        metadata={"labels": {"kubernetes.io/hostname": name, **(labels or {})}, **(metadata or {})},
        spec={"taints": [*map(taint, taints)], **({"unschedulable": True} if unschedulable else {})},
        status={
            "capacity": offered | _texts(capacity or {}),
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    )


def _texts(amounts: Amounts) -> dict[str, str]:
    """Return amounts as texts, without those that are None."""
    return {name: str(amount) for name, amount in amounts.items() if amount is not None}


def taint(written: str) -> Object:
    place, _, effect = written.rpartition(":")
    key, _, value = place.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def budget(
    labels: Mapping[str, str] | None, spec: Object, name: str = "b", *, status: Mapping[str, Any] | None = None
) -> Object:
    """Return a PodDisruptionBudget of the pods with these labels; without `status`, it has none yet."""
    selector = {} if labels is None else {"selector": {"matchLabels": dict(labels)}}
    return api_object("PodDisruptionBudget", name, "ml", spec={**selector, **spec}, status=status or {})


def pod(
    name: str = "p",
    requests: Amounts | None = None,
    *,
    on: str = "",
    namespace: str = "ml",
    labels: Mapping[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    ports: Sequence[Object] = (),
    message: str = "",
    phase: str = "",
    metadata: Mapping[str, Any] | None = None,
    statuses: Sequence[Object] = (),
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """Return a pod with one container, whose requests are limits too: Running `on` a node, else Pending.

    `owner`: the kind and name of its controller; `message`: why the scheduler found no node; `statuses`: of containers.
    """
    resources = {"limits": _texts(requests or {}), "requests": _texts(requests or {})}
    scheduled: Object = {"type": "PodScheduled", "status": str(bool(on)), "lastTransitionTime": ago(hours=3)}
    if message:
        scheduled |= {"reason": "Unschedulable", "message": message}
    return api_object(
        "Pod",
        name,
        namespace,
        metadata={
            "labels": dict(labels or {}),
            "creationTimestamp": ago(hours=3),
            **({"ownerReferences": [reference(*owner)]} if owner else {}),
            **(metadata or {}),
        },
        spec={
            "containers": [{"name": "main", "resources": resources, **({"ports": ports} if ports else {})}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        status={
            "phase": phase or ("Running" if on else "Pending"),
            "conditions": [scheduled],
            **({"containerStatuses": statuses} if statuses else {}),
            **(status or {}),
        },
    )


def reference(kind: str, name: str) -> Object:
    """Return the reference of a pod to its controller."""
    return {"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def event(about: Object, reason: str, message: str = "", *, last: str = ago(minutes=10), **fields: Any) -> Object:
    """Return a Warning about an object, seen last ten minutes before NOW."""
    metadata = about["metadata"]
    involved = {"namespace": "", **{key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}}
    members = {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": last, **fields}
    return api_object(
        "Event",
        f"{metadata['name']}.{reason}",
        involved["namespace"] or "default",
        involvedObject={"kind": about["kind"], **involved},
        **members,
    )


def volume_claim(name: str, phase: str, **metadata: Any) -> Object:
    return api_object("PersistentVolumeClaim", name, "ml", metadata=metadata, status={"phase": phase})


def device_class(name: str, resource: str = "", *selectors: str, created: str = "") -> Object:
    """Return a DeviceClass, three days old by default; `selectors`: types of devices, or expressions."""
    expressions = [
        f"device.attributes['{DRIVER}'].type == '{each}'" if each.isalpha() and each != "true" else each
        for each in selectors
    ]
    return api_object(
        "DeviceClass",
        name,
        metadata={"creationTimestamp": created or ago(days=3)},
        spec={
            **({"extendedResourceName": resource} if resource else {}),
            "selectors": [{"cel": {"expression": each}} for each in expressions],
        },
    )


def device(name: str, type: str = "gpu", uses: Mapping[str, int | str] | None = None, **members: Any) -> Object:
    """Return a device of a ResourceSlice; `uses`: amounts of the counter set "card"."""
    consumed = {"consumesCounters": [{"counterSet": "card", "counters": counters(uses)}]} if uses else {}
    return {"name": name, "attributes": {"type": {"string": type}}, **consumed, **members}


def counters(amounts: Mapping[str, int | str]) -> Object:
    return {name: {"value": str(amount)} for name, amount in amounts.items()}


def resource_slice(
    pool: str,
    *devices: Object,
    name: str = "",
    driver: str = DRIVER,
    count: int = 1,
    generation: int = 1,
    card: Mapping[str, int | str] | None = None,
    **spec: Any,
) -> Object:
    """Return a ResourceSlice, by default of the node with the name of its pool; `card`: its counter set "card"."""
    elsewhere = {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys()
    return api_object(
        "ResourceSlice",
        name or pool,
        spec={
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            **({} if elsewhere else {"nodeName": pool}),
            **({"devices": [*devices]} if devices else {}),
            **({"sharedCounters": [{"name": "card", "counters": counters(card)}]} if card else {}),
            **spec,
        },
    )


def cards(node: str, count: int) -> Object:
    """Return the slice of a node with whole cards."""
    return resource_slice(node, *[device(f"gpu-{number}") for number in range(count)])


def card_with_partitions(node: str, partitions: int = 7) -> list[Object]:
    """Return the slices of a node with one card, whole or in parts; each part is a seventh."""
    parts = [device(f"gpu-0-mig-{number}", "mig", {"slices": 1}) for number in range(partitions)]
    return [
        resource_slice(node, count=2, card={"slices": 7}),
        resource_slice(node, device("gpu-0", uses={"slices": 7}), *parts, count=2, name=f"{node}-1"),
    ]


def taint_rule(name: str, effect: str = "NoSchedule", **selector: str) -> Object:
    """Return a DeviceTaintRule; without members, its selector matches all devices."""
    taint = {"key": "drain", "value": "yes", "effect": effect}
    return api_object("DeviceTaintRule", name, spec={"deviceSelector": selector, "taint": taint})


def resource_claim(
    name: str,
    *devices: str,
    pool: str = "a",
    node: str = "",
    driver: str = DRIVER,
    namespace: str = "ml",
    reserved: str = "",
    extended: bool = False,
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Object:
    """Return a ResourceClaim with devices of a pool, by default that of the node of this name, reserved for a pod.

    `extended`: kube-scheduler made it for the extended resources of the pod. `spec`: as of `claim_spec`.
    """
    results = [{"request": "r", "driver": driver, "pool": pool, "device": each} for each in devices]
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node or pool]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [on_node]}}
    made = {"annotations": EXTENDED, "ownerReferences": [reference("Pod", reserved or "owner")]} if extended else {}
    return api_object(
        "ResourceClaim",
        name,
        namespace,
        metadata={**made, **metadata},
        spec=dict(spec or {}),
        status={
            **({"allocation": allocation} if devices else {}),
            **({"reservedFor": [{"resource": "pods", "name": reserved}]} if reserved else {}),
        },
    )


def claim_spec(*requests: Any, device_class: str = "gpu", **devices: Any) -> Object:
    """Return the spec of a claim: a request for each number of devices, or as it is given."""
    made = [
        {"name": f"r{index}", "exactly": {"deviceClassName": device_class, "count": each}}
        if isinstance(each, int)
        else {"name": f"r{index}", **each}
        for index, each in enumerate(requests)
    ]
    return {"devices": {"requests": made, **devices}}


def claim_template(name: str, *requests: Any, **devices: Any) -> Object:
    """Return a ResourceClaimTemplate; the other parameters are as in `claim_spec`."""
    return api_object("ResourceClaimTemplate", name, "ml", spec={"spec": claim_spec(*requests, **devices)})


def claims(**names: str) -> Object:
    """Return the members of a pod's spec that name claims: a template, or after "claim:" a ResourceClaim."""
    return {
        "resourceClaims": [
            {"name": name, "resourceClaimName": of.removeprefix("claim:")}
            if of.startswith("claim:")
            else {"name": name, "resourceClaimTemplateName": of}
            for name, of in names.items()
        ]
    }


def template(pod: Any) -> Object:
    """Return the template that makes a pod."""
    labels = {"app": "train", **pod["metadata"].get("labels", {})}
    annotations = pod["metadata"].get("annotations")
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": pod["spec"]}


def controller(kind: str, name: str, pod: Any, *, owner: tuple[str, str] | None = None, **spec: Any) -> Object:
    """Return a controller with a template, owned by a kind and name."""
    metadata = {"ownerReferences": [reference(*owner)]} if owner else {}
    return api_object(kind, name, "ml", metadata=metadata, spec={**spec, "template": template(pod)})


def live(
    pod: Any, owner: tuple[str, str] | None = None, *, name: str = "train-1", on: str = "", **members: Any
) -> Object:
    """Return an admitted pod as it runs: with what controllers, the API server and the scheduler write."""
    owned = {"generateName": f"{owner[1]}-", "ownerReferences": [reference(*owner)]} if owner else {}
    written = {"name": name, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z", **members, **owned}
    spec = {**pod["spec"], **({"nodeName": on} if on else {})}
    metadata = {**deepcopy(pod["metadata"]), **written}
    return api_object("Pod", name, "ml", metadata=metadata, spec=spec, status={"phase": "Running"})


def write_list(path: Path, items: Sequence[Any], *, indent: int | None = 4) -> Path:
    """Write a list as kubectl does."""
    path.write_text(json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=indent))
    return path


def by_kind(*objects: Object) -> dict[str, list[Object]]:
    kinds: dict[str, list[Object]] = {}
    for each in objects:
        kinds.setdefault(object_kind(each), []).append(each)
    return kinds


def cluster(*objects: Object, absent: Sequence[str] = ()) -> ClusterObjects:
    """Return a cluster of these objects at NOW, as doctor reads it; kinds in `absent` were not read."""
    kinds: dict[str, list[Object]] = {kind: [] for kind in API_RESOURCES if kind not in absent} | by_kind(*objects)
    read = {kind: [remove_values(each, kind) for each in found] for kind, found in kinds.items()}
    return ClusterObjects(read, absent=frozenset(absent), now=NOW)
