"""Devices that drivers offer by Dynamic Resource Allocation: objects of resource.k8s.io/v1, reduced to what decides."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

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

CapacityKey: TypeAlias = tuple[str, str]
"""Domain and name of a capacity."""

Consumption: TypeAlias = tuple[tuple[CapacityKey, int], ...]
"""Consumed capacities of a device, in nanos."""

Spend: TypeAlias = Callable[[int], None]
"""A function that charges units of work before the work is done, such as Budget.spend. It may raise an error."""


class NodeSelection(Struct, frozen=True):
    """The nodes that reach a slice or a device: a named node, all nodes, or the nodes that match a term."""

    name: str = ""
    every: bool = False
    terms: tuple[NodeTerm, ...] = ()


class DeviceTaint(Struct, frozen=True):
    """A taint of a device with an effect that repels pods: NoSchedule or NoExecute."""

    key: str
    value: str
    effect: str

    @property
    def text(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


class DeviceToleration(Struct, frozen=True, kw_only=True):
    """A toleration of taints; the operator "Exists" ignores the value, and "" matches any key or effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: DeviceTaint) -> bool:
        return (
            self.key in ("", taint.key)
            and self.effect in ("", taint.effect)
            and (self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value))
        )


class RequestPolicy(Struct, frozen=True, kw_only=True):
    """The amounts of a capacity that a request may consume, in nanos: `values`, or a range if `minimum` is not None."""

    default: int | None = None
    values: tuple[int, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    step: int = 0

    def consumed(self, requested: int | None, capacity: int) -> int | None:
        """Return what a request consumes, rounded up to a valid amount; None if there is none."""
        if requested is None:
            return capacity if self.default is None else self.default
        if self.values:
            return min([value for value in self.values if value >= requested], default=None)
        if self.minimum is None:
            return requested
        amount = max(requested, self.minimum)
        if self.step:
            amount = self.minimum - (self.minimum - amount) // self.step * self.step
        return None if self.maximum is not None and amount > self.maximum else amount


class Use(Struct, frozen=True):
    """The use of a device by a claim, of its namespace and name. `consumed` None: no other claim may use the device.

    `extended`: the scheduler made the claim for an extended resource.
    """

    claim: str
    extended: bool
    consumed: Consumption | None = None


Held: TypeAlias = Sequence[tuple[DeviceKey, Use]]
"""The devices of a claim, or of a pod, with their uses."""


class Device(Struct, frozen=True, kw_only=True):
    """A device.

    `attributes` and `capacity`: by domain, then by the name in it. `consumes`: its part of counters. `taints`: no pod
    with an extended resource tolerates them. `shared`: several claims may consume its capacity, by
    its `policies`. `conditional`: its claims wait for conditions. `nodes`: its own, if its slice has none.
    """

    name: str
    attributes: Mapping[str, Mapping[str, Attribute]] = {}
    capacity: Mapping[str, Mapping[str, Quantity]] = {}
    policies: Mapping[CapacityKey, RequestPolicy] = {}
    consumes: Counters = {}
    taints: tuple[DeviceTaint, ...] = ()
    shared: bool = False
    conditional: bool = False
    nodes: NodeSelection | None = None

    @property
    def tainted(self) -> bool:
        return bool(self.taints)


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


class DeviceTaintRule(Struct, frozen=True, kw_only=True):
    """Taints of the devices of a driver, of a pool, and of a name; "" stands for any.

    `taints` is empty if the effect repels nobody, or if there is no selector.
    """

    name: str
    driver: str = ""
    pool: str = ""
    device: str = ""
    taints: tuple[DeviceTaint, ...] = ()


class DeviceClass(Struct, frozen=True, kw_only=True, cache_hash=True):
    """The devices that match all selectors. `created`: its time as text. `resource`: its extended resource, or ""."""

    name: str
    created: str = ""
    resource: str = ""
    selectors: tuple[str, ...] = ()


class Alternative(Struct, frozen=True, kw_only=True):
    """One way to satisfy a request: a number of devices of a class, or all that match if `count` is None.

    `name`: of the request, and after "/" of one of several alternatives. `capacity`: requested amounts in nanos.
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int | None = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()


class Constraint(Struct, frozen=True, kw_only=True):
    """An attribute, with its domain, whose values are equal on all devices of some requests, or `distinct`.

    `requests`: their names, or names of alternatives; empty for all.
    """

    attribute: str
    distinct: bool = False
    requests: frozenset[str] = frozenset()

    def applies(self, name: str) -> bool:
        """Return True if it applies to an alternative."""
        return not self.requests or name in self.requests or name.partition("/")[0] in self.requests


class ClaimSpec(Struct, frozen=True, kw_only=True):
    """The requests of a claim, each with its alternatives in order.

    `unsupported`: a member that is not modelled. `configured`: it has a configuration, which the driver reads.
    """

    requests: tuple[tuple[Alternative, ...], ...] = ()
    constraints: tuple[Constraint, ...] = ()
    unsupported: str = ""
    configured: bool = False

    @property
    def selectors(self) -> Iterator[str]:
        return (each for request in self.requests for one in request for each in one.selectors)


class Claim(Struct, frozen=True, kw_only=True):
    """A claim, by namespace and name.

    `allocated`: it has devices, on the nodes of `terms`, or on all if that is None. `uses`: of the devices, without
    those with admin access. `reserved_for`: namespace and name of pods, in the order of their reservations.
    """

    name: str
    spec: ClaimSpec = ClaimSpec()
    allocated: bool = False
    uses: Held = ()
    terms: tuple[NodeTerm, ...] | None = None
    reserved_for: tuple[str, ...] = ()
    deleted: bool = False
    extended: bool = False

    @property
    def pools(self) -> Iterable[PoolKey]:
        return ((driver, pool) for (driver, pool, _), _ in self.uses)


class Devices(Struct, frozen=True, kw_only=True, dict=True):
    """All classes, slices and DeviceTaintRules of a cluster.

    `claims` and `templates`: by namespace and name. `allocated`: the devices of claims with their uses.
    `taint_rules` None: they were not read. `unread`: further resources that were not read, with the only namespace
    that was, or "".
    """

    classes: tuple[DeviceClass, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    claims: Mapping[str, Claim] = {}
    templates: Mapping[str, ClaimSpec] = {}
    allocated: Mapping[DeviceKey, tuple[Use, ...]] = {}
    taint_rules: tuple[DeviceTaintRule, ...] | None = ()
    unread: Mapping[str, str] = {}

    @property
    def unallocated(self) -> "Devices":
        """The devices as if no claim had any."""
        free = {name: replace(each, allocated=False, uses=(), reserved_for=()) for name, each in self.claims.items()}
        return replace(self, claims=free, allocated={})

    @cached_property
    def tainted_slices(self) -> tuple[ResourceSlice, ...]:
        """The slices as if the taints of DeviceTaintRules stood in them."""
        rules = [each for each in self.taint_rules or () if each.taints]
        tainted: dict[tuple[int, tuple[DeviceTaint, ...]], Device] = {}

        def taint(device: Device, rules: Sequence[DeviceTaintRule]) -> Device:
            added = tuple([one for each in rules if each.device in ("", device.name) for one in each.taints])
            key = id(device), added
            # Equal devices stay one object, since answers are cached by it.
            if added and key not in tainted:
                tainted[key] = replace(device, taints=(*device.taints, *added))
            return tainted[key] if added else device

        def apply(part: ResourceSlice) -> ResourceSlice:
            of_pool = [each for each in rules if each.driver in ("", part.driver) and each.pool in ("", part.pool)]
            devices = tuple([taint(device, of_pool) for device in part.devices])
            return replace(part, devices=devices) if of_pool else part

        return tuple(map(apply, self.slices)) if rules else self.slices

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


def uses_of(claims: Iterable[Claim]) -> Mapping[DeviceKey, tuple[Use, ...]]:
    """Return the devices of claims with their uses."""
    uses: dict[DeviceKey, tuple[Use, ...]] = {}
    for claim in claims:
        for key, use in claim.uses:
            uses[key] = (*uses.get(key, ()), use)
    return uses


def too_many_devices(counts: Mapping[str, int]) -> str:
    """Return why a claim cannot have these numbers of devices; "" if it can."""
    total = sum(counts.values())
    return f"{total} devices are requested, and a claim has at most {MAX_CLAIM_DEVICES}" * (total > MAX_CLAIM_DEVICES)


NO_DEVICES = Devices()
"""Devices of a cluster without drivers."""
