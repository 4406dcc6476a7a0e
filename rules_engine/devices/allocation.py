"""The search for devices of a claim: the first that fit, as kube-scheduler finds them.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating (allocator_incubating.go). Its quirks are
kept: all counters of a pool are compared for each device that consumes any, and a tainted device keeps the counters
that it was tried with. Two things differ: pools of one name and of two drivers have their own counters, and a shared
device, whose capacity several claims may consume, is taken whole by one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.devices.pools import Pool, pool_devices
from rules_engine.devices.selectors import SelectorError
from rules_engine.model.kubernetes.devices import (
    MAX_CLAIM_DEVICES,
    CounterKey,
    Counters,
    Device,
    DeviceClass,
    DeviceKey,
    PoolKey,
)

MAX_STEPS = 10_000
"""Devices tried in one search, some 10 ms. kube-scheduler gives up after 10 s; people's claims need a few hundred."""

MAX_COUNT_STEPS = 2_000_000
"""Steps of many counts together, some 4 s. The parts of one card need some 10."""

FEW_STEPS = 200
"""Steps of one count after MAX_COUNT_STEPS."""

MAX_KINDS = 200
"""Different consumptions packed together, since packing recurses once for each. A card has some 20."""

Matches = Callable[[DeviceClass, Pool, Device], bool]
"""A predicate: a device matches a class. It may raise SelectorError."""


class StepsExceededError(Exception):
    """A search that takes too many steps: it is unknown whether the devices fit."""


class Steps:
    """The steps of many counts together, after which each may take only FEW_STEPS."""

    def __init__(self) -> None:
        self._left = MAX_COUNT_STEPS
        self._end = 0

    def begin(self) -> None:
        """Begin a count."""
        self._end = self._left - (MAX_STEPS if self._left > 0 else FEW_STEPS)

    def take(self) -> None:
        self._left -= 1
        if self._left < self._end:
            raise StepsExceededError


class Request(Struct, frozen=True):
    """A number of devices of a class."""

    device_class: DeviceClass
    count: int


def allocate(
    pools: Sequence[Pool], requests: Sequence[Request], allocated: Container[DeviceKey], matches: Matches
) -> tuple[DeviceKey, ...] | None:
    """Return the devices of the requests, in order; None if they do not fit.

    `allocated`: the devices of other claims. Raises SelectorError and StepsExceededError.
    """
    return _Search(pools, allocated, matches).find(requests)


class _Search:
    def __init__(self, pools: Sequence[Pool], allocated: Container[DeviceKey], matches: Matches) -> None:
        self._devices = [(pool, device, pool.key(device)) for pool, device in pool_devices(pools)]
        self._allocated = allocated
        self._matches = matches
        self._left = {pool.pool_key: free_counters(pool, allocated) for pool in pools}
        self._overdrawn = {key: sum(nanos < 0 for nanos in left.values()) for key, left in self._left.items()}
        """The number of counters below zero, by pool."""
        self._chosen: list[DeviceKey] = []
        self._steps = 0

    def find(self, requests: Sequence[Request]) -> tuple[DeviceKey, ...] | None:
        return tuple(self._chosen) if self._continue(requests, 0, 0, 0) else None

    def _continue(self, requests: Sequence[Request], request: int, taken: int, start: int) -> bool:
        """Choose the remaining devices of a request, from a position on, and those of later requests."""
        if request == len(requests):
            return True
        if taken == requests[request].count:
            return self._continue(requests, request + 1, 0, 0)
        for position in range(start, len(self._devices)):
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise StepsExceededError
            pool, device, key = self._devices[position]
            if (
                key in self._allocated
                or key in self._chosen
                or not self._matches(requests[request].device_class, pool, device)
                or not self._take(pool, device)
            ):
                continue
            self._chosen.append(key)
            if self._continue(requests, request, taken + 1, position + 1):
                return True
            self._chosen.pop()
            self._consume(pool, device, -1)
        return False

    def _take(self, pool: Pool, device: Device) -> bool:
        if device.consumes:
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
    """The most devices that fit together; for more, the scheduler finds none or, if there is a `failure`, gives up.

    `exact` False: as many may fit, but it takes too many steps to say. `apart` False: devices of other counters that
    are tried before, or counters of the same pool below zero, may change it.
    """

    most: int
    failure: str = ""
    exact: bool = True
    apart: bool = True


def count_devices(
    pools: Sequence[Pool],
    device_class: DeviceClass,
    allocated: Container[DeviceKey],
    matches: Matches,
    limit: int = MAX_CLAIM_DEVICES,
    steps: Steps | None = None,
) -> Count:
    """Return how many devices of a class fit together, `limit` at most."""
    steps = steps or Steps()
    steps.begin()
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
            failure = str(error)
            break
        except StepsExceededError:
            exact = False
        leaking |= device.tainted and bool(device.consumes)
        if not device.tainted:
            fitting.append((pool, device))
    left = {pool.pool_key: free_counters(pool, allocated) for pool in pools if pool.counters}
    apart = not leaking and not failure and all(nanos >= 0 for each in left.values() for nanos in each.values())
    try:
        # A search that meets a failing device before it has found enough is given up.
        if leaking or failure:
            request = Request(device_class, min(len(fitting), limit, MAX_CLAIM_DEVICES))
            most = _most_in_order(pools, request, allocated, matches)
        else:
            most = min(_most_packed(fitting, left, steps), limit)
    except StepsExceededError:
        return Count(min(len(fitting), limit), failure, exact=False, apart=apart)
    return Count(most, failure, exact, apart)


def _most_in_order(pools: Sequence[Pool], request: Request, allocated: Container[DeviceKey], matches: Matches) -> int:
    """Return the most devices of a request that a search finds, where the order in which it tries them matters."""
    for number in range(1, request.count + 1):
        try:
            devices = allocate(pools, [Request(request.device_class, number)], allocated, matches)
        except SelectorError:
            devices = None
        if devices is None:
            return number - 1
    return request.count


def _most_packed(
    fitting: Sequence[tuple[Pool, Device]], left: Mapping[PoolKey, Mapping[CounterKey, int]], steps: Steps
) -> int:
    """Return the most devices that are within the counters of their pools together."""
    alone = sum(not device.consumes for _, device in fitting)
    by_pool: dict[PoolKey, list[Device]] = defaultdict(list)
    for pool, device in fitting:
        if device.consumes:
            by_pool[pool.pool_key].append(device)
    return alone + sum(_most_within(left[key], devices, steps) for key, devices in by_pool.items())


def _most_within(left: Mapping[CounterKey, int], devices: Sequence[Device], steps: Steps) -> int:
    """Return the most devices whose consumption is within counters. Devices of different sets are counted apart."""
    if min(left.values()) < 0:
        return 0
    joined = _joined_sets(devices)
    parts: dict[str, list[Counters]] = defaultdict(list)
    for device in devices:
        parts[_part_of(device, joined)].append(device.consumes)
    return sum(_Packing(left, consumptions, steps).most for consumptions in parts.values())


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


class _Packing:
    """The most of some consumptions that are within counters together, by trying the small ones first."""

    def __init__(self, left: Mapping[CounterKey, int], consumptions: Sequence[Counters], steps: Steps) -> None:
        self._kinds = sorted(Counter(tuple(sorted(each.items())) for each in consumptions).items())
        if len(self._kinds) > MAX_KINDS:
            raise StepsExceededError
        self._kinds.sort(key=lambda kind: sum(nanos for _, nanos in kind[0]))
        self._left = {counter: left[counter] for consumption, _ in self._kinds for counter, _ in consumption}
        self._steps = steps
        self.most = 0
        self._remaining = [sum(count for _, count in self._kinds[index:]) for index in range(len(self._kinds) + 1)]
        self._try(0, 0)

    def _try(self, index: int, taken: int) -> None:
        self._steps.take()
        self.most = max(self.most, taken)
        if index == len(self._kinds) or taken + self._remaining[index] <= self.most:
            return
        consumption, count = self._kinds[index]
        fitting = min((self._left[counter] // nanos for counter, nanos in consumption if nanos), default=count)
        for number in range(min(count, fitting), -1, -1):
            for counter, nanos in consumption:
                self._left[counter] -= number * nanos
            self._try(index + 1, taken + number)
            for counter, nanos in consumption:
                self._left[counter] += number * nanos
