"""Builders of devices, slices and classes as the engine reads them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rules_engine.cluster.devices.pools import Pool
from rules_engine.cluster.devices.selectors import SelectorError
from rules_engine.model.kubernetes.devices import (
    Attribute,
    Device,
    DeviceClass,
    DeviceKey,
    Devices,
    DeviceTaint,
    NodeSelection,
    ResourceSlice,
    Use,
)
from rules_engine.model.kubernetes.quantity import NANOS
from tests.support.api import DRIVER

BAD = "bad"

Consumption = Mapping[str, int]
"""Amounts by "set/counter"."""


def counters(amounts: Consumption) -> dict[tuple[str, str], int]:
    """Return counters with their values in nanos."""
    return {(name.partition("/")[0], name.partition("/")[2]): amount * NANOS for name, amount in amounts.items()}


def device(
    name: str,
    kind: str = "gpu",
    consumes: Consumption | None = None,
    *,
    tainted: bool = False,
    also: Mapping[str, Attribute] | None = None,
    **fields: Any,
) -> Device:
    """Return a device with the attribute `kind`, and `also` others.

    All classes of kinds fail on one of the kind BAD, which lacks it.
    """
    if tainted:
        fields["taints"] = (DeviceTaint("broken", "", "NoSchedule"),)
    attributes = {} if kind == BAD else {DRIVER: {"kind": kind, **(also or {})}}
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


def in_use(keys: Iterable[DeviceKey], *, extended: bool = True) -> dict[DeviceKey, tuple[Use, ...]]:
    """Return devices that claims have whole."""
    return {key: (Use("ml/c", extended),) for key in keys}


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
