"""Readers of DeviceClasses, ResourceSlices and ResourceClaims, reduced to the fields that decisions need."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from sys import intern
from typing import TypeVar

from rules_engine.model.json.lenient import Object, as_list, as_mapping, integer_member, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.devices import (
    Attribute,
    Counters,
    Device,
    DeviceClass,
    DeviceKey,
    Devices,
    NodeSelection,
    ResourceSlice,
    Version,
)
from rules_engine.model.kubernetes.placement import read_node_terms
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError

DEVICE_KINDS = ("DeviceClass", "ResourceSlice", "ResourceClaim")
"""The kinds of resource.k8s.io/v1 that are read."""

REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
"""Effects of a device's taint that keep pods away."""

EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that the scheduler makes for extended resources."""


T = TypeVar("T")


class DeviceError(ValueError):
    """An object that cannot be used, with the reason."""


def read_devices(objects: Mapping[str, Iterable[Object]], unusable: Callable[[str], None]) -> Devices:
    """Read objects by kind. An object that cannot be used is left out; `unusable` is called with its name and why."""
    classes: list[DeviceClass] = []
    slices: list[ResourceSlice] = []
    allocated: dict[DeviceKey, bool] = {}
    for kind in DEVICE_KINDS:
        for raw in objects.get(kind, ()):
            try:
                match kind:
                    case "DeviceClass":
                        classes.append(read_device_class(raw))
                    case "ResourceSlice":
                        slices.append(read_resource_slice(raw))
                    case _:
                        allocated.update(read_allocated(raw))
            except (DeviceError, PodError, QuantityError) as error:
                unusable(f"{kind} {text_member(as_mapping(raw.get('metadata')), 'name')} is left out: {error}")
    return Devices(classes=tuple(classes), slices=tuple(slices), allocated=allocated)


def read_device_class(raw: Object) -> DeviceClass:
    """Read a DeviceClass."""
    metadata, spec = as_mapping(raw.get("metadata")), as_mapping(raw.get("spec"))
    return DeviceClass(
        name=text_member(metadata, "name"),
        created=text_member(metadata, "creationTimestamp"),
        resource=text_member(spec, "extendedResourceName"),
        selectors=tuple(
            text_member(as_mapping(each.get("cel")), "expression") for each in object_items(spec.get("selectors"))
        ),
    )


def read_resource_slice(raw: Object) -> ResourceSlice:
    """Read a ResourceSlice. Raises DeviceError, PodError for its node selector, and QuantityError."""
    spec = as_mapping(raw.get("spec"))
    driver, pool = text_member(spec, "driver"), as_mapping(spec.get("pool"))
    if not driver or not text_member(pool, "name"):
        raise DeviceError(f"it has no {'pool' if driver else 'driver'}")
    devices = tuple(_read_device(device, driver) for device in object_items(spec.get("devices")))
    if len({device.name for device in devices}) < len(devices):
        raise DeviceError("it has two devices of one name")
    return ResourceSlice(
        name=text_member(as_mapping(raw.get("metadata")), "name"),
        driver=intern(driver),
        pool=intern(text_member(pool, "name")),
        generation=integer_member(pool, "generation"),
        slice_count=integer_member(pool, "resourceSliceCount"),
        nodes=_read_selection(spec),
        counters=_read_counters(spec.get("sharedCounters"), "name"),
        devices=devices,
    )


def read_allocated(raw: Object) -> Iterator[tuple[DeviceKey, bool]]:
    """Yield the devices of a ResourceClaim, and whether the scheduler made it for an extended resource.

    Those of admin access do not count. A share of a device counts as all of it.
    """
    annotations = as_mapping(as_mapping(raw.get("metadata")).get("annotations"))
    extended = annotations.get(EXTENDED_RESOURCE_CLAIM) == "true"
    allocation = as_mapping(as_mapping(raw.get("status")).get("allocation"))
    for result in object_items(as_mapping(allocation.get("devices")).get("results")):
        if result.get("adminAccess") is not True:
            driver, pool, device = (text_member(result, member) for member in ("driver", "pool", "device"))
            yield (driver, pool, device), extended


def _read_device(raw: Object, driver: str) -> Device:
    return Device(
        name=text_member(raw, "name"),
        attributes=_by_domain(raw.get("attributes"), driver, _read_attribute),
        capacity=_by_domain(raw.get("capacity"), driver, _read_capacity),
        consumes=_read_counters(raw.get("consumesCounters"), "counterSet"),
        tainted=any(taint.get("effect") in REPELLING_EFFECTS for taint in object_items(raw.get("taints"))),
        shared=raw.get("allowMultipleAllocations") is True,
        conditional=bool(as_list(raw.get("bindingConditions"))),
        nodes=_read_selection(raw),
    )


def _read_selection(raw: Object) -> NodeSelection | None:
    """Read the nodes of a slice or of a device. Raises PodError."""
    if name := text_member(raw, "nodeName"):
        return NodeSelection(name=name)
    if raw.get("allNodes") is True:
        return NodeSelection(every=True)
    if "nodeSelector" in raw:
        return NodeSelection(terms=read_node_terms(raw["nodeSelector"], ("spec", "nodeSelector")))
    return None


def _by_domain(raw: Json, driver: str, read: Callable[[Json], T]) -> Mapping[str, Mapping[str, T]]:
    """Return the members by domain; a name without one is in the domain of the driver."""
    domains: dict[str, dict[str, T]] = {}
    for key, value in as_mapping(raw).items():
        domain, sign, name = key.partition("/")
        domains.setdefault(intern(domain if sign else driver), {})[intern(name if sign else key)] = read(value)
    return domains


def _read_attribute(raw: Json) -> Attribute:
    match raw:
        case {"int": int(value)} | {"bool": bool(value)} | {"string": str(value)}:
            return value
        case {"version": str(text)}:
            return Version(text)
        case _:
            return None


def _read_capacity(raw: Json) -> Quantity:
    return _read_quantity(as_mapping(raw).get("value"))


def _read_quantity(value: Json) -> Quantity:
    return Quantity.parse(str(value) if isinstance(value, str | int | float) else "")


def _read_counters(raw: Json, name: str) -> Counters:
    """Read counters of named sets. Raises QuantityError."""
    counters: dict[tuple[str, str], int] = {}
    for counter_set in object_items(raw):
        set_name = text_member(counter_set, name)
        for counter, value in as_mapping(counter_set.get("counters")).items():
            counters[intern(set_name), intern(counter)] = _read_quantity(as_mapping(value).get("value")).nanos
    return counters
