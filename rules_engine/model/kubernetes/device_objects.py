"""Readers of the objects of resource.k8s.io, reduced to the fields that decisions need."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import TypeVar, cast

from msgspec.json import encode

from rules_engine.model.json.lenient import Object, as_list, as_mapping, integer_member, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.devices import (
    Alternative,
    Attribute,
    CapacityKey,
    Claim,
    ClaimSpec,
    Constraint,
    Counters,
    Device,
    DeviceClass,
    DeviceKey,
    Devices,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    NodeSelection,
    RequestPolicy,
    ResourceSlice,
    Use,
    Version,
    uses_of,
)
from rules_engine.model.kubernetes.placement import read_node_terms
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError, parse_quantity

DEVICE_GROUP = "resource.k8s.io"

DEVICE_KINDS = ("DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceTaintRule")
"""The kinds of resource.k8s.io/v1 that are read. Earlier versions of DeviceTaintRule have the same members."""

CLAIM_KINDS = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
"""The kinds with the claims of pods."""

REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
"""Effects of a device's taint that keep pods away."""

EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that the scheduler makes for extended resources."""

T = TypeVar("T")


class DeviceError(ValueError):
    """An object that cannot be used, with the reason."""


def read_devices(objects: Mapping[str, Iterable[Object]], unusable: Callable[[Object, str], None]) -> Devices:
    """Read objects by kind. One that cannot be used is left out; `unusable` is called with it and why."""

    def read_all(kind: str, read: Callable[[Object], T]) -> Iterator[T]:
        for raw in objects.get(kind, ()):
            try:
                yield read(raw)
            except DeviceError as error:
                unusable(raw, f"{kind} {text_member(as_mapping(raw.get('metadata')), 'name')} is left out: {error}")

    classes = tuple(map(read_device_class, objects.get("DeviceClass", ())))
    claims = tuple(read_all("ResourceClaim", read_claim))
    templates = dict(read_all("ResourceClaimTemplate", read_claim_template))
    specs = (*templates.values(), *[each.spec for each in claims])
    slices = read_all("ResourceSlice", SliceReader(classes, specs=specs).slice)
    return Devices(
        classes=classes,
        slices=tuple(slices),
        claims={each.name: each for each in claims},
        templates=templates,
        allocated=uses_of(claims),
        taint_rules=tuple(map(read_taint_rule, objects.get("DeviceTaintRule", ()))),
    )


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


def read_taint_rule(raw: Object) -> DeviceTaintRule:
    """Read a DeviceTaintRule. Without a selector it matches no device, with an empty one all."""
    spec = as_mapping(raw.get("spec"))
    selector = spec.get("deviceSelector")
    return DeviceTaintRule(
        name=text_member(as_mapping(raw.get("metadata")), "name"),
        **{member: text_member(as_mapping(selector), member) for member in ("driver", "pool", "device")},
        taints=_read_taints([spec.get("taint")]) if isinstance(selector, dict) else (),
    )


def _read_taints(raw: Json) -> tuple[DeviceTaint, ...]:
    return tuple(
        [
            DeviceTaint(text_member(each, "key"), text_member(each, "value"), text_member(each, "effect"))
            for each in object_items(raw)
            if each.get("effect") in REPELLING_EFFECTS
        ]
    )


def read_claim(raw: Object) -> Claim:
    """Read a ResourceClaim. Raises DeviceError."""
    metadata, status = as_mapping(raw.get("metadata")), as_mapping(raw.get("status"))
    allocation = status.get("allocation")
    selector = as_mapping(allocation).get("nodeSelector")
    try:
        return Claim(
            name=_claim_name(metadata),
            spec=read_claim_spec(raw.get("spec")),
            allocated=allocation is not None,
            uses=tuple(read_allocated(raw)),
            terms=None if selector is None else read_node_terms(selector, ("status", "allocation", "nodeSelector")),
            reserved_for=tuple(
                f"{text_member(metadata, 'namespace')}/{text_member(each, 'name')}"
                for each in object_items(status.get("reservedFor"))
                if text_member(each, "resource") == "pods"
            ),
            deleted=metadata.get("deletionTimestamp") is not None,
            extended=_is_extended(metadata),
        )
    except (PodError, QuantityError, TooLargeError) as error:
        raise DeviceError(str(error)) from None


def read_claim_template(raw: Object) -> tuple[str, ClaimSpec]:
    """Read namespace and name of a ResourceClaimTemplate, and the spec of its claims. Raises DeviceError."""
    try:
        spec = read_claim_spec(as_mapping(raw.get("spec")).get("spec"))
    except QuantityError as error:
        raise DeviceError(str(error)) from None
    return _claim_name(as_mapping(raw.get("metadata"))), spec


def read_claim_spec(raw: Json) -> ClaimSpec:
    """Read the spec of a ResourceClaim, or of the spec of a ResourceClaimTemplate. Raises QuantityError."""
    devices = as_mapping(as_mapping(raw).get("devices"))
    unsupported: list[str] = []
    requests = [_read_request(each, unsupported) for each in object_items(devices.get("requests"))]
    constraints: list[Constraint] = []
    for each in object_items(devices.get("constraints")):
        match, distinct = (text_member(each, name) for name in ("matchAttribute", "distinctAttribute"))
        if not (match or distinct):
            unsupported.append("a constraint without matchAttribute or distinctAttribute")
        names = frozenset(name for name in as_list(each.get("requests")) if isinstance(name, str))
        constraints.append(Constraint(attribute=match or distinct, distinct=not match, requests=names))
    return ClaimSpec(
        requests=tuple(requests),
        constraints=tuple(constraints),
        unsupported=next(iter(unsupported), ""),
        configured=bool(as_list(devices.get("config"))),
    )


def _read_request(raw: Object, unsupported: list[str]) -> tuple[Alternative, ...]:
    name = text_member(raw, "name")
    if "exactly" in raw:
        return (_read_alternative(name, as_mapping(raw["exactly"]), unsupported),)
    others = object_items(raw.get("firstAvailable"))
    if not others:
        unsupported.append(f"the request {name} without exactly or firstAvailable")
    return tuple(_read_alternative(f"{name}/{text_member(each, 'name')}", each, unsupported) for each in others)


def _read_alternative(name: str, raw: Object, unsupported: list[str]) -> Alternative:
    mode = text_member(raw, "allocationMode") or "ExactCount"
    if mode not in ("ExactCount", "All"):
        unsupported.append(f"the allocationMode {mode} of the request {name}")
    selectors = [as_mapping(each.get("cel")) for each in object_items(raw.get("selectors"))]
    if not all("expression" in each for each in selectors):
        unsupported.append(f"a selector without cel of the request {name}")
    capacity = as_mapping(as_mapping(raw.get("capacity")).get("requests"))
    return Alternative(
        name=name,
        device_class=text_member(raw, "deviceClassName"),
        selectors=tuple(text_member(each, "expression") for each in selectors),
        count=None if mode == "All" else integer_member(raw, "count") if "count" in raw else 1,
        admin=raw.get("adminAccess") is True,
        tolerations=tuple(
            DeviceToleration(
                key=text_member(each, "key"),
                operator=text_member(each, "operator") or "Equal",
                value=text_member(each, "value"),
                effect=text_member(each, "effect"),
            )
            for each in object_items(raw.get("tolerations"))
        ),
        capacity=tuple((key, _read_amount(value).nanos) for key, value in capacity.items()),
    )


def read_allocated(raw: Object) -> Iterator[tuple[DeviceKey, Use]]:
    """Yield the devices of a ResourceClaim with their use. Devices with admin access do not count."""
    metadata = as_mapping(raw.get("metadata"))
    claim, extended = _claim_name(metadata), _is_extended(metadata)
    allocation = as_mapping(as_mapping(raw.get("status")).get("allocation"))
    for result in object_items(as_mapping(allocation.get("devices")).get("results")):
        if result.get("adminAccess") is not True:
            driver, pool, device = (text_member(result, member) for member in ("driver", "pool", "device"))
            consumed = None
            if "shareID" in result:
                amounts = _by_domain(result.get("consumedCapacity"), driver, _read_amount)
                consumed = tuple(
                    ((domain, name), each.nanos) for domain in amounts for name, each in amounts[domain].items()
                )
            yield (driver, pool, device), Use(claim, extended, consumed)


def _claim_name(metadata: Object) -> str:
    return f"{text_member(metadata, 'namespace')}/{text_member(metadata, 'name')}"


def _is_extended(metadata: Object) -> bool:
    return as_mapping(metadata.get("annotations")).get(EXTENDED_RESOURCE_CLAIM) == "true"


MAX_SHARED = 50_000
"""Devices that are cached to be shared: a card has some 30 partitions, and a cluster a few kinds of cards."""

_WHOLE_MAPS = re.compile(
    r"[{+]|\b(all|exists|exists_one|map|filter|size|format|join|replace|substring|string|bind|"
    r"transform\w*|lowerAscii|upperAscii|charAt|trim|quote|split|url|b)\b"
)
"""Operations by which an expression may read attributes without naming them."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def named_attributes(selecting: Iterable[DeviceClass | ClaimSpec]) -> frozenset[str] | None:
    """Return the names that claims may read: words in selectors, constraints and capacities; None: any name."""
    each_of = [*selecting]
    selectors = [selector for each in each_of for selector in each.selectors]
    if any(_WHOLE_MAPS.search(selector) for selector in selectors):
        return None
    names = {word for selector in selectors for word in _NAME.findall(selector)}
    specs = [each for each in each_of if isinstance(each, ClaimSpec)]
    others = [one.attribute for each in specs for one in each.constraints]
    others += [name for each in specs for request in each.requests for one in request for name, _ in one.capacity]
    return frozenset(names.union(name.rpartition("/")[2] for name in others))


class SliceReader:
    """Reader of ResourceSlices, which keeps the attributes and capacities that selectors read.

    Devices of equal cards are then one value: selectors seldom read what differs, such as a UUID. `also`: further names
    of attributes that are kept.
    """

    def __init__(
        self,
        classes: Iterable[DeviceClass] = (),
        also: frozenset[str] = frozenset(),
        specs: Iterable[ClaimSpec] = (),
    ) -> None:
        names = named_attributes([*classes, *specs])
        self.names = None if names is None else names | also
        self._shared: dict[object, Device] = {}

    def reads(self, device_class: DeviceClass) -> bool:
        """Return True if what the selectors of a class read is kept."""
        names = named_attributes([device_class])
        return self.names is None or (names is not None and names <= self.names)

    def slice(self, raw: Object) -> ResourceSlice:
        """Read a ResourceSlice. Raises DeviceError."""
        spec = as_mapping(raw.get("spec"))
        driver, pool = text_member(spec, "driver"), as_mapping(spec.get("pool"))
        if not driver or not text_member(pool, "name"):
            raise DeviceError(f"it has no {'pool' if driver else 'driver'}")
        try:
            devices = tuple(self._device(device, driver) for device in object_items(spec.get("devices")))
            counters = _read_counters(spec.get("sharedCounters"), "name")
            nodes = _read_selection(spec)
        except (PodError, QuantityError, TooLargeError) as error:
            raise DeviceError(str(error)) from None
        if len({device.name for device in devices}) < len(devices):
            raise DeviceError("it has two devices of one name")
        return ResourceSlice(
            name=text_member(as_mapping(raw.get("metadata")), "name"),
            driver=intern(driver),
            pool=intern(text_member(pool, "name")),
            generation=integer_member(pool, "generation"),
            slice_count=integer_member(pool, "resourceSliceCount"),
            nodes=nodes,
            counters=counters,
            devices=devices,
        )

    def _device(self, raw: Object, driver: str) -> Device:
        """Read a device; equal devices become one object, which is faster than reading a million."""
        shared = raw.get("allowMultipleAllocations") is True
        members = {**raw, "attributes": self._reduced(raw.get("attributes"))}
        key = driver, encode(members)
        device = self._shared.get(key)
        if device is None:
            if len(self._shared) >= MAX_SHARED:
                self._shared.clear()
            device = self._shared[key] = Device(
                name=intern(text_member(raw, "name")),
                attributes=_by_domain(members["attributes"], driver, _read_attribute),
                capacity=_by_domain(
                    raw.get("capacity") if shared else self._reduced(raw.get("capacity")), driver, _read_quantity
                ),
                policies=_read_policies(raw.get("capacity"), driver) if shared else {},
                consumes=_read_counters(raw.get("consumesCounters"), "counterSet"),
                taints=_read_taints(raw.get("taints")),
                shared=shared,
                conditional=bool(as_list(raw.get("bindingConditions"))),
                nodes=_read_selection(raw),
            )
        return device

    def _reduced(self, raw: Json) -> Json:
        """Return attributes or capacities; the ones that no selector reads get an empty name.

        One that fails every selector stays.
        """
        names = self.names
        if names is None:
            return raw
        reduced: dict[str, Json] = {}
        for key, member in as_mapping(raw).items():
            domain, _, name = key.rpartition("/")
            if name not in names and isinstance(member, dict) and not _VALUE_MEMBERS.isdisjoint(member):
                reduced[f"{domain}/"] = None
            else:
                reduced[key] = member
        return reduced


def _by_domain(raw: Json, driver: str, read: Callable[[Json], T]) -> Mapping[str, Mapping[str, T]]:
    """Return the members by domain; a name without one is in the domain of the driver."""
    domains: dict[str, dict[str, T]] = {}
    for key, member in as_mapping(raw).items():
        domain, sign, name = key.partition("/")
        values = domains.setdefault(intern(domain if sign and domain else driver), {})
        if name or not sign:
            values[intern(name or key)] = read(member)
    return domains


def _read_selection(raw: Object) -> NodeSelection | None:
    """Read the nodes of a slice or of a device. Raises PodError and TooLargeError."""
    if name := text_member(raw, "nodeName"):
        return NodeSelection(name=name)
    if raw.get("allNodes") is True:
        return NodeSelection(every=True)
    if "nodeSelector" in raw:
        return NodeSelection(terms=read_node_terms(raw["nodeSelector"], ("spec", "nodeSelector")))
    return None


def _read_attribute(raw: Json) -> Attribute:
    members = as_mapping(raw)
    for name, kind in _KINDS_OF_VALUE:
        value = members.get(name)
        if type(value) is kind:
            return Version(str(value)) if name == "version" else cast(Attribute, value)
    return None


_KINDS_OF_VALUE: Sequence[tuple[str, type]] = (("string", str), ("version", str), ("int", int), ("bool", bool))

_VALUE_MEMBERS = {"value", *(name for name, _ in _KINDS_OF_VALUE)}
"""One of these is in each capacity, and in each attribute with which not every selector fails."""


def _read_quantity(raw: Json) -> Quantity:
    return _read_amount(as_mapping(raw).get("value"))


def _read_policies(raw: Json, driver: str) -> Mapping[CapacityKey, RequestPolicy]:
    policies: dict[CapacityKey, RequestPolicy] = {}
    for domain, members in _by_domain(raw, driver, as_mapping).items():
        for name, capacity in members.items():
            if "requestPolicy" in capacity:
                policy = as_mapping(capacity["requestPolicy"])
                bounds = as_mapping(policy.get("validRange"))
                amounts = {key: _read_amount(bounds[key]).nanos for key in ("min", "max", "step") if key in bounds}
                policies[domain, name] = RequestPolicy(
                    default=_read_amount(policy["default"]).nanos if "default" in policy else None,
                    values=tuple(_read_amount(each).nanos for each in as_list(policy.get("validValues"))),
                    minimum=amounts.get("min", 0) if bounds else None,
                    maximum=amounts.get("max"),
                    step=amounts.get("step", 0),
                )
    return policies


def _read_amount(value: Json) -> Quantity:
    return parse_quantity(str(value) if isinstance(value, str | int | float) else "")


def _read_counters(raw: Json, name: str) -> Counters:
    """Read counters of named sets. Raises QuantityError."""
    counters: dict[tuple[str, str], int] = {}
    for counter_set in object_items(raw):
        set_name = text_member(counter_set, name)
        for counter, value in as_mapping(counter_set.get("counters")).items():
            counters[intern(set_name), intern(counter)] = _read_quantity(value).nanos
    return counters
