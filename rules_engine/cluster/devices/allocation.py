"""The search for devices of a claim: the first that fit, as kube-scheduler finds them.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating (allocator_incubating.go). Its quirks are
kept: all counters of a pool are compared for each device that consumes any, and a tainted device keeps the counters
that it was tried with. Two things differ: pools of one name and of two drivers have their own counters, and a shared
device, whose capacity several claims may consume, is taken whole by one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
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
    CounterKey,
    Device,
    DeviceClass,
    DeviceKey,
    PoolKey,
    Spend,
)

MAX_KINDS = 200
"""Different consumptions packed together, since packing recurses once for each. A card has some 20."""

STEP_COST = 4
"""Cost of a combination of devices, which takes as many µs."""

Matches = Callable[[DeviceClass, Pool, Device], bool]
"""A predicate: a device matches a class. It may raise SelectorError and CostlyError."""

Consumption: TypeAlias = tuple[tuple[CounterKey, int], ...]
"""The counters that a device consumes, in nanos."""

Numbers: TypeAlias = tuple[int, ...]
"""Numbers of devices, one for each of several classes."""

PartCapacity: TypeAlias = tuple[Sequence[Numbers], int]
"""The largest numbers of devices that a part of a pool has together, and the size of the largest."""


class DeviceRequest(Struct, frozen=True):
    """A number of devices of a class."""

    device_class: DeviceClass
    count: int


def allocate(
    pools: Sequence[Pool],
    requests: Sequence[DeviceRequest],
    allocated: Container[DeviceKey],
    matches: Matches,
    spend: Spend,
) -> tuple[DeviceKey, ...] | None:
    """Return the devices of the requests, in order; None if they do not fit.

    `allocated`: the devices of other claims. `spend` is charged for each device that is tried, and for its counters.
    People's claims need a few thousand. Raises SelectorError, CostlyError and CostExceeded.
    """
    return _AllocationSearch(pools, allocated, matches, spend).find(requests)


class _AllocationSearch:
    def __init__(self, pools: Sequence[Pool], allocated: Container[DeviceKey], matches: Matches, spend: Spend) -> None:
        self._devices = [(pool, device, pool.key(device)) for pool, device in pool_devices(pools)]
        self._allocated = allocated
        self._matches = matches
        self._left = {pool.pool_key: free_counters(pool, allocated) for pool in pools}
        self._overdrawn = {key: sum(nanos < 0 for nanos in left.values()) for key, left in self._left.items()}
        """The number of counters below zero, by pool."""
        self._chosen: list[DeviceKey] = []
        self._spend = spend
        self.most = 0
        """The most devices chosen at a time."""

    def find(self, requests: Sequence[DeviceRequest]) -> tuple[DeviceKey, ...] | None:
        return tuple(self._chosen) if self._continue(requests, 0, 0, 0) else None

    def _continue(self, requests: Sequence[DeviceRequest], request: int, taken: int, start: int) -> bool:
        """Choose the remaining devices of a request, from a position on, and the devices of later requests."""
        if request == len(requests):
            return True
        if taken == requests[request].count:
            return self._continue(requests, request + 1, 0, 0)
        for position in range(start, len(self._devices)):
            self._spend(1)
            pool, device, key = self._devices[position]
            if (
                key in self._allocated
                or key in self._chosen
                or not self._matches(requests[request].device_class, pool, device)
                or not self._take(pool, device)
            ):
                continue
            self._chosen.append(key)
            self.most = max(self.most, len(self._chosen))
            if self._continue(requests, request, taken + 1, position + 1):
                return True
            self._chosen.pop()
            self._consume(pool, device, -1)
        return False

    def _take(self, pool: Pool, device: Device) -> bool:
        if device.consumes:
            self._spend(STEP_COST * len(device.consumes) + len(self._chosen))
            self._consume(pool, device, 1)
            if self._overdrawn[pool.pool_key]:
                self._consume(pool, device, -1)
                return False
        return not device.tainted

    def _consume(self, pool: Pool, device: Device, sign: int) -> None:
        left = self._left[pool.pool_key]
        for counter, nanos in device.consumes.items():
            before = left[counter]
            left[counter] = before - sign * nanos
            self._overdrawn[pool.pool_key] += (left[counter] < 0) - (before < 0)


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
    allocated: Container[DeviceKey],
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
        if pool.key(device) in allocated:
            continue
        try:
            if not matches(device_class, pool, device):
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
            fitting.append((pool, device))
    left = {pool.pool_key: free_counters(pool, allocated) for pool in pools}
    # The scheduler compares all counters of a pool: if one is below zero, no device that consumes any fits.
    overdrawn = {key for key, each in left.items() if min(each.values(), default=0) < 0}
    most = min(len(fitting), limit)
    try:
        # A search that meets a failing device before it has found enough is given up.
        if leaking or failure:
            search = _AllocationSearch(pools, allocated, matches, spend)
            with suppress(SelectorError):
                search.find([DeviceRequest(device_class, min(most, MAX_CLAIM_DEVICES))])
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
    parts: dict[str, Counter[tuple[Consumption, int]]] = defaultdict(Counter)
    for device, index in devices:
        parts[_part_of(device, joined)][tuple(sorted(device.consumes.items())), index] += 1
    return [_pack_part(left, part, classes, spend) for part in parts.values()]


def _pack_part(
    left: Mapping[CounterKey, int], numbers: Counter[tuple[Consumption, int]], classes: int, spend: Spend
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
