"""Builders of devices, slices and the objects of resource.k8s.io/v1."""

from collections.abc import Mapping, Sequence
from typing import Any

from rules_engine.devices.pools import Pool
from rules_engine.devices.selectors import SelectorError
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.devices import Device, DeviceClass, Devices, NodeSelection, ResourceSlice
from rules_engine.model.kubernetes.quantity import NANOS

DRIVER = "gpu.example.com"

BAD = "bad"

Consumption = Mapping[str, int]
"""Amounts by "set/counter"."""


def counters(amounts: Consumption) -> dict[tuple[str, str], int]:
    """Return counters with their values in nanos."""
    return {(name.partition("/")[0], name.partition("/")[2]): amount * NANOS for name, amount in amounts.items()}


def device(name: str, kind: str = "gpu", consumes: Consumption | None = None, **fields: Any) -> Device:
    """Return a device with the attribute `kind`. All classes of kinds fail on one of the kind BAD, which lacks it."""
    attributes = {} if kind == BAD else {DRIVER: {"kind": kind}}
    return Device(name=name, attributes=attributes, consumes=counters(consumes or {}), **fields)


def on(name: str) -> NodeSelection:
    """Return the selection of one node."""
    return NodeSelection(name=name)


def part(
    name: str,
    *devices: Device,
    pool: str = "p",
    nodes: NodeSelection | None = NodeSelection(every=True),  # noqa: B008 - immutable
    counts: Consumption | None = None,
    driver: str = DRIVER,
    **fields: Any,
) -> ResourceSlice:
    """Return a slice of devices, or of counters."""
    return ResourceSlice(
        name=name, driver=driver, pool=pool, nodes=nodes, devices=devices, counters=counters(counts or {}), **fields
    )


def kind_class(kind: str, resource: str = "", **fields: Any) -> DeviceClass:
    """Return the class of the devices of a kind."""
    selector = f"device.attributes['{DRIVER}'].kind == '{kind}'"
    return DeviceClass(name=kind, resource=resource, selectors=(selector,), **fields)


def has_kind(device_class: DeviceClass, _pool: Pool, tried: Device) -> bool:
    """Return whether a device matches a class of a kind, as the selector of the class does."""
    kind = kind_of(tried)
    if kind == BAD:
        raise SelectorError(f"{device_class.name} fails on {tried.name}")
    return kind == device_class.name


def kind_of(device: Device) -> str:
    """Return the kind of a device."""
    return str(device.attributes[DRIVER]["kind"]) if device.attributes else BAD


def devices_of(classes: Sequence[DeviceClass], *slices: ResourceSlice, **fields: Any) -> Devices:
    return Devices(classes=tuple(classes), slices=slices, **fields)


def class_object(name: str, resource: str, *selectors: str, created: str = "2026-01-01T00:00:00Z") -> dict[str, Json]:
    """Return a DeviceClass as the API returns it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {
            "extendedResourceName": resource,
            "selectors": [{"cel": {"expression": selector}} for selector in selectors],
        },
    }


def slice_object(name: str, *devices: Json, count: int = 1, node: str = "n1", **spec: Json) -> dict[str, Json]:
    """Return a ResourceSlice of a node, as the API returns it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": count},
            **({"devices": list(devices)} if devices else {}),
            **spec,
        },
    }


def device_object(name: str, consumes: Consumption | None = None, **attributes: str) -> dict[str, Json]:
    """Return a device as slices have it, with attributes that are strings."""
    made: dict[str, Json] = {"name": name, "attributes": {key: {"string": text} for key, text in attributes.items()}}
    if consumes:
        made["consumesCounters"] = counter_sets(consumes, "counterSet")
    return made


def counter_sets(amounts: Consumption, name: str = "name") -> list[Json]:
    """Return counters as slices have them."""
    sets: dict[str, dict[str, Json]] = {}
    for (counter_set, counter), nanos in counters(amounts).items():
        sets.setdefault(counter_set, {})[counter] = {"value": str(nanos // NANOS)}
    return [{name: counter_set, "counters": members} for counter_set, members in sets.items()]


def claim_object(*results: Mapping[str, Json], extended: bool = True) -> dict[str, Json]:
    """Return a ResourceClaim with these allocated devices, as the API returns it."""
    annotations: dict[str, Json] = {"resource.kubernetes.io/extended-resource-claim": "true"} if extended else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim", "annotations": annotations},
        "status": {"allocation": {"devices": {"results": [dict(result) for result in results]}}},
    }
