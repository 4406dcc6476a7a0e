"""Devices that drivers offer by Dynamic Resource Allocation: objects of resource.k8s.io/v1, reduced to what decides."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from rules_engine.model.kubernetes.placement import NodeTerm
from rules_engine.model.kubernetes.quantity import Quantity

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""The resource name of every DeviceClass is this and its own name."""

MAX_CLAIM_DEVICES = 32
"""Devices of one claim at most (resource/v1, AllocationResultsMaxSize)."""


class Version(Struct, frozen=True):
    """The value of an attribute that is a semantic version."""

    text: str


Attribute: TypeAlias = str | int | bool | Version | None
"""The value of an attribute; None: a list, or no value, with which every selector fails."""

CounterKey: TypeAlias = tuple[str, str]
"""The names of a counter's set and its own."""

Counters: TypeAlias = Mapping[CounterKey, int]
"""Values of counters in nanos."""

PoolKey: TypeAlias = tuple[str, str]
"""The driver and the name of a pool: several drivers may use one name."""

DeviceKey: TypeAlias = tuple[str, str, str]
"""Driver, pool and name of a device."""

Spend: TypeAlias = Callable[[int], None]
"""A function that charges units of work before the work is done, such as Budget.spend. It may raise an error."""


class NodeSelection(Struct, frozen=True):
    """The nodes that reach a slice or a device: a named node, all nodes, or the nodes that match a term."""

    name: str = ""
    every: bool = False
    terms: tuple[NodeTerm, ...] = ()


class Device(Struct, frozen=True, kw_only=True):
    """A device.

    `attributes` and `capacity`: by domain, then by the name in it. `consumes`: its part of counters. `tainted`: a taint
    keeps pods away; no pod with an extended resource tolerates it. `shared`: several claims may have it at once.
    `conditional`: its claims wait for conditions. `nodes`: its own, if its slice has none.
    """

    name: str
    attributes: Mapping[str, Mapping[str, Attribute]] = {}
    capacity: Mapping[str, Mapping[str, Quantity]] = {}
    consumes: Counters = {}
    tainted: bool = False
    shared: bool = False
    conditional: bool = False
    nodes: NodeSelection | None = None


class ResourceSlice(Struct, frozen=True, kw_only=True):
    """A part of a pool of devices, of which `slice_count` have the same generation.

    `nodes` None: each device has its own. A slice has devices or counters, which devices of other slices consume.
    """

    name: str
    driver: str
    pool: str
    generation: int = 1
    slice_count: int = 1
    nodes: NodeSelection | None = None
    counters: Counters = {}
    devices: tuple[Device, ...] = ()

    @property
    def pool_key(self) -> PoolKey:
        return self.driver, self.pool


class DeviceClass(Struct, frozen=True, kw_only=True, cache_hash=True):
    """The devices that match all selectors. `created`: its time as text. `resource`: its extended resource, or ""."""

    name: str
    created: str = ""
    resource: str = ""
    selectors: tuple[str, ...] = ()


class Devices(Struct, frozen=True, kw_only=True, dict=True):
    """All classes and slices of a cluster.

    `allocated`: the devices of claims, and whether the scheduler made the claim for an extended resource.
    """

    classes: tuple[DeviceClass, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    allocated: Mapping[DeviceKey, bool] = {}

    @cached_property
    def second_names(self) -> frozenset[str]:
        """The implicit resource names of classes that have a name of their own as well."""
        return frozenset(IMPLICIT_PREFIX + each.name for each in self.classes if each.resource)

    @cached_property
    def class_by_resource(self) -> Mapping[str, DeviceClass]:
        """The class of each extended resource: the newest, of equally old ones the first by name.

        Every class has its implicit resource, as the API defines it. If two classes have the same extended resource,
        kube-scheduler may forget the older one's implicit resource, depending on the order in which it saw them.
        """
        classes: dict[str, DeviceClass] = {}
        for each in sorted(self.classes, key=lambda each: each.name):
            before = classes.get(each.resource)
            if each.resource and (before is None or each.created > before.created):
                classes[each.resource] = each
            classes[IMPLICIT_PREFIX + each.name] = each
        return classes


def too_many_devices(counts: Mapping[str, int]) -> str:
    """Return why a claim cannot have these numbers of devices; "" if it can."""
    total = sum(counts.values())
    return f"{total} devices are requested, and a claim has at most {MAX_CLAIM_DEVICES}" * (total > MAX_CLAIM_DEVICES)


NO_DEVICES = Devices()
"""Devices of a cluster without drivers."""
