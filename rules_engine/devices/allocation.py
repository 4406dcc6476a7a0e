"""The search for devices of a claim: the first that fit, as kube-scheduler finds them.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating (allocator_incubating.go). Its quirks are
kept: all counters of a pool are compared for each device that consumes any, and a tainted device keeps the counters
that it was tried with. Two things differ: pools of one name and of two drivers have their own counters, and a shared
device, whose capacity several claims may consume, is taken whole by one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from msgspec import Struct

from rules_engine.devices.pools import Pool, pool_devices
from rules_engine.devices.selectors import SelectorError
from rules_engine.model.kubernetes.devices import MAX_CLAIM_DEVICES, Device, DeviceClass, DeviceKey, PoolKey

MAX_STEPS = 10_000
"""Devices tried in one search, some 10 ms. kube-scheduler gives up after 10 s; people's claims need a few hundred."""

MAX_KINDS = 200
"""Different consumptions packed together, since packing recurses once for each. A card has some 20."""

Matches = Callable[[DeviceClass, Pool, Device], bool]
"""A predicate: a device matches a class. It may raise SelectorError."""


class StepsExceededError(Exception):
    """A search that takes too many steps: it is unknown whether the devices fit."""


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
            if min(self._left[pool.pool_key].values()) < 0:
                self._consume(pool, device, -1)
                return False
        return not device.tainted

    def _consume(self, pool: Pool, device: Device, sign: int) -> None:
        left = self._left[pool.pool_key]
        for counter, nanos in device.consumes.items():
            left[counter] -= sign * nanos


def free_counters(pool: Pool, allocated: Container[DeviceKey]) -> dict[tuple[str, str], int]:
    """Return what is left of a pool's counters; it may be negative."""
    left = dict(pool.counters)
    for device in (*pool.devices, *pool.others):
        if device.consumes and pool.key(device) in allocated:
            for counter, nanos in device.consumes.items():
                left[counter] -= nanos
    return left


class Count(Struct, frozen=True):
    """The most devices that fit together; for more, the scheduler finds none or, if there is a `failure`, gives up.

    `exact` False: as many may fit, but it takes too many steps to say.
    """

    most: int
    failure: str = ""
    exact: bool = True


def count_devices(
    pools: Sequence[Pool],
    device_class: DeviceClass,
    allocated: Container[DeviceKey],
    matches: Matches,
    limit: int = MAX_CLAIM_DEVICES,
) -> Count:
    """Return how many devices of a class fit together, `limit` at most."""
    fitting: list[tuple[Pool, Device]] = []
    failure = ""
    leaking = False
    for pool, device in pool_devices(pools):
        if pool.key(device) in allocated:
            continue
        try:
            if not matches(device_class, pool, device):
                continue
        except SelectorError as error:
            failure = str(error)
            break
        leaking |= device.tainted and bool(device.consumes)
        if not device.tainted:
            fitting.append((pool, device))
    try:
        # A search that meets a failing device before it has found enough is given up.
        if leaking or failure:
            request = Request(device_class, min(len(fitting), limit, MAX_CLAIM_DEVICES))
            most = _most_in_order(pools, request, allocated, matches)
        else:
            most = min(_most_packed(pools, fitting, allocated), limit)
    except StepsExceededError:
        return Count(min(len(fitting), limit), failure, exact=False)
    return Count(most, failure)


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


def _most_packed(pools: Sequence[Pool], fitting: Sequence[tuple[Pool, Device]], allocated: Container[DeviceKey]) -> int:
    """Return the most devices that are within the counters of their pools together."""
    alone = sum(not device.consumes for _, device in fitting)
    by_pool: dict[PoolKey, list[Device]] = defaultdict(list)
    for pool, device in fitting:
        if device.consumes:
            by_pool[pool.pool_key].append(device)
    packed = sum(
        _most_within(free_counters(pool, allocated), by_pool[pool.pool_key])
        for pool in pools
        if pool.pool_key in by_pool
    )
    return alone + packed


def _most_within(left: Mapping[tuple[str, str], int], devices: Sequence[Device]) -> int:
    """Return the most devices whose consumption is within counters. Devices of different sets are counted apart."""
    if min(left.values()) < 0:
        return 0
    return sum(_Packing(left, [device.consumes for device in part]).most for part in _connected_parts(devices))


def _connected_parts(devices: Iterable[Device]) -> Iterable[Sequence[Device]]:
    """Return devices in parts that have no counter set in common."""
    parts: list[tuple[set[str], list[Device]]] = []
    for device in devices:
        sets, members = {name for name, _ in device.consumes}, [device]
        separate = []
        for other_sets, others in parts:
            if sets & other_sets:
                sets |= other_sets
                members = [*others, *members]
            else:
                separate.append((other_sets, others))
        parts = [*separate, (sets, members)]
    return [members for _, members in parts]


class _Packing:
    """The most of some consumptions that are within counters together, by trying the small ones first."""

    def __init__(
        self, left: Mapping[tuple[str, str], int], consumptions: Sequence[Mapping[tuple[str, str], int]]
    ) -> None:
        self._kinds = sorted(Counter(tuple(sorted(each.items())) for each in consumptions).items())
        if len(self._kinds) > MAX_KINDS:
            raise StepsExceededError
        self._kinds.sort(key=lambda kind: sum(nanos for _, nanos in kind[0]))
        self._left = dict(left)
        self._steps = 0
        self.most = 0
        self._remaining = [sum(count for _, count in self._kinds[index:]) for index in range(len(self._kinds) + 1)]
        self._try(0, 0)

    def _try(self, index: int, taken: int) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise StepsExceededError
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
