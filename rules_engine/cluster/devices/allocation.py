"""The search for devices of claims: the first that fit, as kube-scheduler finds them.

Source: the documentation of resource.k8s.io/v1. What it leaves open is as in Kubernetes 1.36
(k8s.io/dynamic-resource-allocation/structured/internal/incubating), whose quirks are kept: all counters of a pool are
compared for each device that consumes any; a device that is refused for a taint or a constraint keeps the counters that
it was tried with; a constraint that not all devices satisfy which a request asks for ends the whole attempt; a device
with admin access is in use for later requests of the same pod, and its counters count twice.

Compared with 1.36 on random claims, this differs:
- pools of one name and of two drivers have their own counters;
- 1.36 may not find the counters of a shared device again that it tried before and gave back;
- 1.36 may accept equal values of a distinctAttribute if some device has a value of another type;
- 1.36 compares names of capacities as they are written; here, published names in the driver's own domain equal those
  without a domain.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import ge, mul
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.cluster.devices.pools import Pool, pool_devices
from rules_engine.cluster.devices.selectors import CostlyError, SelectorError
from rules_engine.language.cel import CostExceeded
from rules_engine.model.kubernetes.devices import (
    MAX_CLAIM_DEVICES,
    Alternative,
    Attribute,
    CapacityKey,
    ClaimSpec,
    Constraint,
    Consumption,
    CounterKey,
    Device,
    DeviceClass,
    DeviceKey,
    PoolKey,
    RequestPolicy,
    Spend,
    Use,
)

MAX_KINDS = 200
"""Different consumptions packed together, since packing recurses once for each. A card has some 20."""

STEP_COST = 4
"""Cost of a combination of devices, which takes as many µs."""

Matches = Callable[[DeviceClass, Pool, Device], bool]
"""A predicate: a device matches a class. It may raise SelectorError and CostlyError."""

Uses: TypeAlias = Mapping[DeviceKey, Sequence[Use]]
"""The devices of claims with their uses."""

_CounterUse: TypeAlias = tuple[tuple[CounterKey, int], ...]
"""The counters that a device consumes, in nanos."""

_NO_POLICY = RequestPolicy()

Numbers: TypeAlias = tuple[int, ...]
"""Numbers of devices, one for each of several classes."""

PartCapacity: TypeAlias = tuple[Sequence[Numbers], int]
"""The largest numbers of devices that a part of a pool has together, and the size of the largest."""


class DeviceRequest(Struct, frozen=True):
    """A number of devices of a class, or all that match if `count` is None; `also`: the selectors of the request."""

    device_class: DeviceClass
    count: int | None
    also: DeviceClass | None = None
    detail: Alternative = Alternative(name="", device_class="")


class DeviceClaim(Struct, frozen=True):
    """The requests of a claim, each with its alternatives in order, and their constraints."""

    requests: tuple[tuple[DeviceRequest, ...], ...]
    constraints: tuple[Constraint, ...] = ()


class AllocatedDevice(Struct, frozen=True):
    """A device for a request. `consumed`: the capacity that the claim consumes of a shared device."""

    key: DeviceKey
    request: str = ""
    admin: bool = False
    consumed: Consumption | None = None

    def use(self, claim: str, *, extended: bool = False) -> tuple[DeviceKey, Use]:
        """Return the use of the device by a claim."""
        return self.key, Use(claim, extended, self.consumed)


class ClaimError(Exception):
    """A claim for which the scheduler gives up the pod. The message says why."""


class NotModelledError(Exception):
    """A claim whose devices are unknown, since the search does not support it. The message says what."""


def resolve_claim(spec: ClaimSpec, classes: Mapping[str, DeviceClass]) -> DeviceClaim:
    """Return a claim with its classes, by their names. Raises ClaimError and NotModelledError."""
    if spec.unsupported:
        raise NotModelledError(spec.unsupported)

    def resolve(one: Alternative) -> DeviceRequest:
        if one.device_class not in classes:
            raise ClaimError(f"the DeviceClass {one.device_class} of the request {one.name} not found")
        also = DeviceClass(name="", selectors=one.selectors) if one.selectors else None
        return DeviceRequest(classes[one.device_class], one.count, also, one)

    return DeviceClaim(tuple(tuple(map(resolve, each)) for each in spec.requests), spec.constraints)


def claim_of(requests: Iterable[DeviceRequest]) -> DeviceClaim:
    """Return the claim of requests without alternatives, as for extended resources."""
    return DeviceClaim(tuple((each,) for each in requests))


def allocate(
    pools: Sequence[Pool],
    claims: Sequence[DeviceClaim],
    allocated: Uses,
    matches: Matches,
    spend: Spend,
) -> Sequence[Sequence[AllocatedDevice]] | None:
    """Return the devices of each claim of a pod, in the order of their requests; None if they do not fit.

    `allocated`: the devices of other claims. `spend` is charged for each device that is tried, and for its counters,
    capacities and constraints. People's claims need a few thousand. Raises SelectorError, ClaimError, NotModelledError,
    CostlyError and CostExceeded.
    """
    return _AllocationSearch(pools, claims, allocated, matches, spend).find()


def lacks_devices(
    pools: Sequence[Pool], claims: Sequence[DeviceClaim], allocated: Uses, matches: Matches, spend: Spend
) -> bool:
    """Return True if too few devices match requests; a search would try all combinations to find that out.

    False for claims that the search may give up. Raises CostlyError and CostExceeded.
    """
    if any(one.count is None for claim in claims for request in claim.requests for one in request):
        return False
    for claim in claims:
        if sum(min([one.count or 0 for one in request]) for request in claim.requests) > MAX_CLAIM_DEVICES:
            return False
        # Only requests that accept the same devices compete for them in any case.
        wanted: Counter[tuple[DeviceClass, Alternative]] = Counter()
        for one, *others in claim.requests:
            if others or one.detail.admin:
                continue
            alike = one.device_class, replace(one.detail, name="", count=None)
            wanted[alike] += one.count or 0
            free = 0
            for pool, device in pool_devices(pools):
                spend(1)
                uses = allocated.get(pool.key(device), ())
                if _is_taken(device, uses):
                    continue
                try:
                    fits = _matches(one, pool, device, matches) and _fits(one.detail, pool.driver, device, uses)
                except SelectorError:
                    return False  # only the search knows whether it evaluates the selector there
                # Several requests may use one shared device.
                free += wanted[alike] if fits and device.shared else fits
            if free < wanted[alike]:
                return True
    return False


def consumption(
    driver: str, device: Device, uses: Sequence[Use], requested: Iterable[tuple[str, int]] = ()
) -> Consumption | None:
    """Return what a claim consumes of a device beside other uses; None if it lacks capacity or is in use.

    The consumption of a device that is not shared is empty. `requested`: amounts by the name of a capacity; a name
    without a domain is in that of the driver.
    """
    if _is_taken(device, uses):
        return None
    asked = _qualified(driver, requested)
    consumed: dict[CapacityKey, int] = {}
    for domain, members in device.capacity.items() if asked or device.shared else ():
        for name, capacity in members.items():
            key = domain, name
            policy = device.policies.get(key, _NO_POLICY)
            amount = policy.consumed(asked.pop(key, None), capacity.nanos)
            used = sum(nanos for use in uses for other, nanos in use.consumed or () if other == key)
            if amount is None or used + amount > capacity.nanos:
                return None
            consumed[key] = amount
    if asked:
        return None
    return tuple(consumed.items()) if device.shared else ()


def _qualified(driver: str, requested: Iterable[tuple[str, int]]) -> dict[CapacityKey, int]:
    split = ((*name.rpartition("/"), nanos) for name, nanos in requested)
    # The scheduler compares names as they are written, and drivers omit their own domain.
    return {("" if domain == driver else domain or driver, name): nanos for domain, _, name, nanos in split}


def _is_taken(device: Device, uses: Sequence[Use]) -> bool:
    return bool(uses) and (not device.shared or any(use.consumed is None for use in uses))


def _matches(request: DeviceRequest, pool: Pool, device: Device, matches: Matches) -> bool:
    return matches(request.device_class, pool, device) and (request.also is None or matches(request.also, pool, device))


def _fits(request: Alternative, driver: str, device: Device, uses: Sequence[Use]) -> bool:
    return _tolerates(request, device) and consumption(driver, device, uses, request.capacity) is not None


def _tolerates(request: Alternative, device: Device) -> bool:
    return all(any(each.tolerates(taint) for each in request.tolerations) for taint in device.taints)


_Steps: TypeAlias = Iterator["_Steps | None"]
"""The ways to continue a search, each undone when the next is requested; None: all is found."""


class _AllocationSearch:
    def __init__(
        self,
        pools: Sequence[Pool],
        claims: Sequence[DeviceClaim],
        allocated: Uses,
        matches: Matches,
        spend: Spend,
    ) -> None:
        self._pools = pools
        self._devices = [(pool, device, pool.key(device)) for pool, device in pool_devices(pools)]
        self._every: Sequence[int] = range(len(self._devices))
        self._all: dict[DeviceRequest, Sequence[int]] = {}
        """The positions of the devices of requests for all that match."""
        self._claims = claims
        self._allocated = allocated
        self._own: dict[DeviceKey, tuple[Use, ...]] = {}
        """The uses of devices that are chosen."""
        self._matches = matches
        self._left = {pool.pool_key: free_counters(pool, allocated) for pool in pools}
        self._overdrawn = {key: sum(nanos < 0 for nanos in left.values()) for key, left in self._left.items()}
        """The number of counters below zero, by pool."""
        self._chosen: list[list[tuple[Device, AllocatedDevice]]] = [[] for _ in claims]
        self._spend = spend
        self.most = 0
        """The most devices chosen at a time."""

    def find(self) -> Sequence[Sequence[AllocatedDevice]] | None:
        self._prepare()
        stack: list[_Steps] = [self._satisfy(0, 0)]
        while stack:
            for following in stack[-1]:
                if following is None:
                    return [[allocated for _, allocated in chosen] for chosen in self._chosen]
                stack.append(following)
                break
            else:
                stack.pop()
        return None

    def _satisfy(self, claim: int, request: int) -> "_Steps":
        """Choose the devices of a request and of all later ones."""
        if claim == len(self._claims):
            yield None
        elif request == len(self._claims[claim].requests):
            yield self._satisfy(claim + 1, 0)
        else:
            for alternative in self._claims[claim].requests[request]:
                count, positions = alternative.count, self._every
                if count is None:
                    positions = self._all[alternative]
                    count = len(positions)
                if not (count and positions):  # no device is tried, and thus charged
                    self._spend(1)
                if positions:
                    yield self._choose(claim, request, alternative, positions, count, 0)

    def _prepare(self) -> None:
        """Find the devices of requests for all that match. Raises ClaimError, also if a claim has too many devices."""
        for claim in self._claims:
            least = 0
            for request in claim.requests:
                for each in request:
                    if each.count is None and each not in self._all:
                        self._all[each] = self._find_all(each)
                least += min([len(self._all[each]) if each.count is None else each.count for each in request])
            if least > MAX_CLAIM_DEVICES:
                raise ClaimError(f"number of requested devices {least} exceeds the claim limit of {MAX_CLAIM_DEVICES}")

    def _find_all(self, request: DeviceRequest) -> Sequence[int]:
        for pool in self._pools:
            if pool.problem:
                state = "invalid" if pool.invalid else "being updated"
                name = f"{pool.driver}/{pool.name}"
                raise ClaimError(f"asks for all devices, but resource pool {name} is currently {state}")
        self._spend(len(self._devices))
        return [
            position
            for position, (pool, device, key) in enumerate(self._devices)
            if _matches(request, pool, device, self._matches)
            # Devices without the requested capacity do not match, nor shared ones with too little left.
            and consumption(pool.driver, device, self._shares(device, key), request.detail.capacity) is not None
        ]

    def _shares(self, device: Device, key: DeviceKey) -> Sequence[Use]:
        """Return the uses of a device by other pods that leave something for another one."""
        return [use for use in self._allocated.get(key, ()) if use.consumed is not None] if device.shared else ()

    def _choose(
        self, claim: int, request: int, alternative: DeviceRequest, positions: Sequence[int], left: int, start: int
    ) -> "_Steps":
        """Choose the remaining devices of a request, from one of its positions on, and those of later requests."""
        if not left:
            yield self._satisfy(claim, request + 1)
            return
        chosen = self._chosen[claim]
        if len(chosen) + left > MAX_CLAIM_DEVICES:
            return
        for index in range(start, len(positions)):
            self._spend(1)
            pool, device, key = self._devices[positions[index]]
            before = self._own.get(key, ())
            # Another request has consumed the counters of a shared device.
            counts = not (device.shared and (before or self._shares(device, key)))
            allocated = self._allocate(claim, alternative, pool, device, counts)
            if allocated is not None:
                chosen.append((device, allocated))
                self._own[key] = (*before, allocated.use(str(claim))[1])
                self.most = max(self.most, sum(map(len, self._chosen)))
                yield self._choose(claim, request, alternative, positions, left - 1, index + 1)
                chosen.pop()
                self._own[key] = before
                if counts:
                    self._consume(pool, device, -1)
            if alternative.count is None:
                return  # it needs each of its positions

    def _allocate(
        self, claim: int, request: DeviceRequest, pool: Pool, device: Device, counts: bool
    ) -> AllocatedDevice | None:
        """Return a device for a request, with its counters consumed if it counts; None if it cannot have it."""
        key, detail, name = pool.key(device), request.detail, str(claim)
        own = self._own.get(key, ())
        if detail.admin:
            # Within a claim, only shared devices are for several requests.
            uses = [*self._shares(device, key), *(own if device.shared else [use for use in own if use.claim == name])]
        else:
            uses = [*self._allocated.get(key, ()), *own]
        if _is_taken(device, uses) or not _matches(request, pool, device, self._matches):
            return None
        # Without its requested capacity, a device is not tried with its counters.
        consumed = consumption(pool.driver, device, self._shares(device, key), detail.capacity)
        if consumed is None:
            return None
        if device.consumes and counts:
            self._spend(STEP_COST * len(device.consumes) + sum(map(len, self._chosen)))
            self._consume(pool, device, 1)
            if self._overdrawn[pool.pool_key]:
                self._consume(pool, device, -1)
                return None
        if not _tolerates(detail, device):
            return None
        if not self._meets_constraints(claim, detail.name, device):
            if request.count is None:
                raise ClaimError(f"cannot add device {'/'.join(key)} because a claim constraint would not be satisfied")
            return None
        consumed = consumption(pool.driver, device, uses, detail.capacity) if own else consumed
        if consumed is None:
            if counts:
                self._consume(pool, device, -1)
            return None
        return AllocatedDevice(key, detail.name, detail.admin, consumed if device.shared else None)

    def _meets_constraints(self, claim: int, name: str, device: Device) -> bool:
        for constraint in self._claims[claim].constraints:
            if not constraint.applies(name):
                continue
            value = _attribute(device, constraint)
            others = [
                _attribute(other, constraint)
                for other, allocated in self._chosen[claim]
                if constraint.applies(allocated.request)
            ]
            self._spend(1 + len(others))
            if value is None or (value in others if constraint.distinct else others[:1] not in ([], [value])):
                return False
        return True

    def _consume(self, pool: Pool, device: Device, sign: int) -> None:
        left = self._left[pool.pool_key]
        for counter, nanos in device.consumes.items():
            before = left[counter]
            left[counter] = before - sign * nanos
            self._overdrawn[pool.pool_key] += (left[counter] < 0) - (before < 0)


def _attribute(device: Device, constraint: Constraint) -> tuple[type, Attribute] | None:
    """Return the attribute of a constraint, with its type; None if the device lacks it. Raises NotModelledError."""
    domain, _, name = constraint.attribute.rpartition("/")
    members = device.attributes.get(domain, {})
    if name not in members:
        return None
    if members[name] is None:
        raise NotModelledError(f"the list {constraint.attribute} in a constraint")
    return type(members[name]), members[name]


def free_counters(pool: Pool, allocated: Container[DeviceKey]) -> dict[CounterKey, int]:
    """Return what is left of a pool's counters; it may be negative."""
    left = dict(pool.counters)
    for device in (*pool.devices, *pool.others):
        if device.consumes and pool.key(device) in allocated:
            for counter, nanos in device.consumes.items():
                left[counter] -= nanos
    return left


class Count(Struct, frozen=True):
    """The most devices that fit together. With more, the scheduler finds none or, if there is a `failure`, gives up.

    `exact` False: as many may fit, but too many steps are needed to find out. `apart` False: the number may change if
    devices of other counters are tried before, or counters of the same pool are below zero. `least`: the smallest sum
    of counters that a device consumes. `room`: the sum of all counters that are left.
    """

    most: int
    failure: str = ""
    exact: bool = True
    apart: bool = True
    least: int = 0
    room: int = 0


def count_devices(
    pools: Sequence[Pool],
    device_class: DeviceClass,
    allocated: Uses,
    matches: Matches,
    spend: Spend,
    limit: int = MAX_CLAIM_DEVICES,
) -> Count:
    """Return how many devices of a class fit together, `limit` at most. `spend` is charged for each combination."""
    fitting: list[tuple[Pool, Device]] = []
    failure = ""
    leaking = False
    exact = True
    for pool, device in pool_devices(pools):
        uses = allocated.get(pool.key(device))
        if _is_taken(device, uses or ()):
            continue
        try:
            if not matches(device_class, pool, device) or consumption(pool.driver, device, uses or ()) is None:
                continue
        except SelectorError as error:
            # The scheduler gives up at this device, so later ones do not count.
            failure = str(error)
            break
        except CostlyError:
            exact = False
        # The scheduler keeps the counters of a tainted device that it tried.
        leaking |= device.tainted and bool(device.consumes)
        if not device.tainted:
            # Another claim has consumed the counters of a shared device.
            fitting.append((pool, device if uses is None else replace(device, consumes={})))
    left = {pool.pool_key: free_counters(pool, allocated) for pool in pools}
    # The scheduler compares all counters of a pool: if one is below zero, no device that consumes any fits.
    overdrawn = {key for key, each in left.items() if min(each.values(), default=0) < 0}
    most = min(len(fitting), limit)
    try:
        # A search that meets a failing device before it has found enough is given up.
        if leaking or failure:
            claim = claim_of([DeviceRequest(device_class, min(most, MAX_CLAIM_DEVICES))])
            search = _AllocationSearch(pools, [claim], allocated, matches, spend)
            with suppress(SelectorError):
                search.find()
            most = search.most
        else:
            by_pool: dict[PoolKey, list[tuple[Device, int]]] = defaultdict(list)
            for pool, device in fitting:
                if not device.consumes or pool.pool_key not in overdrawn:
                    by_pool[pool.pool_key].append((device, 0))
            packed = [part for key, devices in by_pool.items() for part in pack(left[key], devices, 1, spend)]
            most = min(sum(number for ((number,),) in packed), limit)
    except (CostlyError, CostExceeded):
        exact = False
    return Count(
        most,
        failure,
        exact,
        apart=not (leaking or failure or overdrawn),
        least=min((sum(device.consumes.values()) for _, device in fitting), default=0),
        room=sum(max(nanos, 0) for each in left.values() for nanos in each.values()),
    )


def split(pool: Pool) -> Sequence[Pool]:
    """Return a pool in parts that have no counter set in common: the devices of each are counted apart."""
    joined = _joined_sets((*pool.devices, *pool.others))
    devices, others = defaultdict[str, list[Device]](list), defaultdict[str, list[Device]](list)
    counters: dict[str, dict[CounterKey, int]] = defaultdict(dict)
    for device in pool.devices:
        devices[_part_of(device, joined)].append(device)
    for device in pool.others:
        others[_part_of(device, joined)].append(device)
    for key, nanos in pool.counters.items():
        counters[joined.get(key[0], "")][key] = nanos
    return [
        replace(pool, devices=tuple(devices[part]), others=tuple(others[part]), counters=counters[part])
        for part in dict.fromkeys((*devices, *others, *counters))
    ]


def _part_of(device: Device, joined: Mapping[str, str]) -> str:
    return next((joined[name] for name, _ in device.consumes), "")


def _joined_sets(devices: Iterable[Device]) -> Mapping[str, str]:
    """Return one counter set for all that devices join, by each of them."""
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while (higher := above.setdefault(name, name)) != name:
            above[name] = above[higher]
            name = higher
        return name

    for device in devices:
        tops = [top(name) for name, _ in device.consumes]
        for each in tops:
            above[top(each)] = top(tops[0])
    return {name: top(name) for name in [*above]}


def pack(
    left: Mapping[CounterKey, int], devices: Sequence[tuple[Device, int]], classes: int, spend: Spend
) -> Sequence[Sequence[Numbers]]:
    """Return, for each part of the devices, the largest numbers of each class that the counters allow together.

    Devices without a common counter set are in different parts. `devices`: each with the index of its class.
    Raises CostlyError and CostExceeded.
    """
    joined = _joined_sets(device for device, _ in devices)
    parts: dict[str, Counter[tuple[_CounterUse, int]]] = defaultdict(Counter)
    for device, index in devices:
        parts[_part_of(device, joined)][tuple(sorted(device.consumes.items())), index] += 1
    return [_pack_part(left, part, classes, spend) for part in parts.values()]


def _pack_part(
    left: Mapping[CounterKey, int], numbers: Counter[tuple[_CounterUse, int]], classes: int, spend: Spend
) -> Sequence[Numbers]:
    if len(numbers) > MAX_KINDS:
        raise CostlyError
    # Small devices first if all are of one class; else large ones, which leave few combinations of others.
    sign = 1 if classes == 1 else -1
    kinds = sorted(numbers.items(), key=lambda kind: (sign * sum(nanos for _, nanos in kind[0][0]), kind))
    left = dict(left)
    largest: list[Numbers] = []
    remaining = [(0,) * classes]
    """The numbers of devices of each kind and of the kinds after it."""
    for (_, index), count in reversed(kinds):
        remaining.insert(0, _add(remaining[0], index, count))

    def attempt(kind: int, taken: Numbers) -> None:
        spend(STEP_COST + len(largest))
        most = tuple(map(sum, zip(taken, remaining[kind], strict=True)))
        # Even with all remaining devices, it would not exceed what was found already.
        if any(_covers(each, most) for each in largest):
            return
        if kind == len(kinds):
            largest[:] = [*[each for each in largest if not _covers(taken, each)], taken]
            return
        (consumption, index), count = kinds[kind]
        fitting = min((left[counter] // nanos for counter, nanos in consumption if nanos), default=count)
        # Large numbers first, since they rule out most others; devices that consume nothing are all taken.
        for number in range(min(count, fitting), -1 if consumption else count - 1, -1):
            spend(len(consumption) // STEP_COST)
            for counter, nanos in consumption:
                left[counter] -= number * nanos
            attempt(kind + 1, _add(taken, index, number))
            for counter, nanos in consumption:
                left[counter] += number * nanos

    attempt(0, (0,) * classes)
    return largest


def _add(numbers: Numbers, index: int, number: int) -> Numbers:
    return (*numbers[:index], numbers[index] + number, *numbers[index + 1 :])


def _covers(numbers: Numbers, others: Numbers) -> bool:
    return all(map(ge, numbers, others))


def fit_together(parts: Sequence[PartCapacity], wanted: Numbers, sizes: Numbers, spend: Spend) -> bool:
    """Return True if parts have the wanted devices together, each of them one of its numbers.

    `sizes`: of a device of each class. Any sizes give the right answer; the nearer they are to what devices consume,
    the fewer combinations are tried, since none is tried whose rest exceeds the rest of the parts.
    """
    remaining_sizes = [*accumulate((size for _, size in reversed(parts)), initial=0)][::-1]
    tried = set()
    untried = [(0, wanted)]
    while untried:
        spend(STEP_COST)
        state = index, missing = untried.pop()
        if not any(missing):
            return True
        if sum(map(mul, missing, sizes)) <= remaining_sizes[index] and index < len(parts) and state not in tried:
            tried.add(state)
            for numbers in parts[index][0]:
                left = tuple([max(some - number, 0) for some, number in zip(missing, numbers, strict=True)])
                untried.append((index + 1, left))
    return False
