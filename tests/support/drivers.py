"""Objects of drivers that allocate devices: DeviceClasses, ResourceSlices and ResourceClaims."""

from collections.abc import Mapping, Sequence
from typing import Any

from rules_engine.model.kubernetes.device_objects import read_devices
from rules_engine.model.kubernetes.devices import Devices

Object = dict[str, Any]

DRIVER = "gpu.example.com"
EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}


def devices(objects: Mapping[str, Sequence[Object]]) -> Devices:
    """Read objects by kind, all of which must be usable."""
    unusable: list[str] = []
    read = read_devices(objects, lambda _, message: unusable.append(message))
    assert not unusable
    return read


def by_kind(*objects: Object) -> dict[str, list[Object]]:
    kinds: dict[str, list[Object]] = {}
    for each in objects:
        kinds.setdefault(each["kind"], []).append(each)
    return kinds


def device_class(name: str, resource: str = "", *selectors: str) -> Object:
    """Build a DeviceClass."""
    spec = {"extendedResourceName": resource} if resource else {}
    return {
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {**spec, "selectors": [{"cel": {"expression": each}} for each in selectors]},
    }


def device(name: str, kind: str = "gpu", uses: Mapping[str, int] | None = None, **members: Any) -> Object:
    """Build a device with the attribute `type`; `uses`: of the counter set "card"."""
    counters = {counter: {"value": str(amount)} for counter, amount in (uses or {}).items()}
    consumed = {"consumesCounters": [{"counterSet": "card", "counters": counters}]} if counters else {}
    return {"name": name, "attributes": {"type": {"string": kind}}, **consumed, **members}


def resource_slice(pool: str, *members: Object, slices: int = 1, name: str = "", **spec: Any) -> Object:
    """Build a ResourceSlice, by default of the node with the name of its pool."""
    where = {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": pool}
    listed = {"devices": [*members]} if members else {}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{pool}-0"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": slices},
            **where,
            **listed,
            **spec,
        },
    }


def cards(node: str, count: int) -> Object:
    """Build the slice of a node with whole cards."""
    return resource_slice(node, *[device(f"gpu-{number}") for number in range(count)])


def card_with_partitions(node: str, partitions: int = 7) -> list[Object]:
    """Build the slices of a node with one card, whole or in parts; each part is a seventh."""
    counters = {"name": "card", "counters": {"slices": {"value": "7"}}}
    parts = [device(f"gpu-0-mig-{number}", "mig", {"slices": 1}) for number in range(partitions)]
    return [
        resource_slice(node, slices=2, sharedCounters=[counters]),
        resource_slice(node, device("gpu-0", uses={"slices": 7}), *parts, slices=2, name=f"{node}-1"),
    ]


def claim(
    name: str, *held: tuple[str, str], namespace: str = "default", extended: bool = True, **result: Any
) -> Object:
    """Build an allocated ResourceClaim, one of kube-scheduler by default; `held`: pools and devices."""
    owner = {"kind": "Pod", "name": "owner", "controller": True}
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device, **result} for pool, device in held]
    return {
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            **({"annotations": EXTENDED, "ownerReferences": [owner]} if extended else {}),
        },
        "status": {"allocation": {"devices": {"results": results}}},
    }
