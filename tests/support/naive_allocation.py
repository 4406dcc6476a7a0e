"""The scheduler's search for devices, written from its source without regard to time."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rules_engine.cluster.devices.allocation import DeviceRequest
from rules_engine.cluster.devices.pools import Pool
from rules_engine.cluster.devices.selectors import SelectorError
from rules_engine.model.kubernetes.devices import Device, DeviceKey
from tests.support.devices import has_kind

Outcome = tuple[DeviceKey, ...] | str | None
"""Devices, None, or the message of a failing selector."""


def naive_search(pools: Sequence[Pool], allocated: Collection[DeviceKey], requests: Sequence[DeviceRequest]) -> Outcome:
    """Return the outcome of a search for the devices of requests."""
    return _Naive(pools, allocated).search(requests)


class _Naive:
    """The scheduler's search, step by step as its source has it."""

    def __init__(self, pools: Sequence[Pool], allocated: Collection[DeviceKey]) -> None:
        self.pools = pools
        self.allocated = allocated
        self.consumed: dict[str, Counter[tuple[str, str]]] = {each.name: Counter() for each in pools}
        self.available = {each.name: available(each, allocated) for each in pools}
        self.result: list[DeviceKey] = []

    def search(self, requests: Sequence[DeviceRequest]) -> Outcome:
        try:
            return tuple(self.result) if self._allocate_one(requests, (0, 0), (0, 0)) else None
        except SelectorError as error:
            return str(error)

    def _allocate_one(self, requests: Sequence[DeviceRequest], at: tuple[int, int], start: tuple[int, int]) -> bool:
        index, number = at
        if index >= len(requests):
            return True
        if number >= (requests[index].count or 0):
            return self._allocate_one(requests, (index + 1, 0), (0, 0))
        for pool_index, each in enumerate(self.pools):
            for device_index, tried in enumerate(each.devices):
                if (pool_index, device_index) < start:
                    continue
                key = (each.driver, each.name, tried.name)
                if key in self.allocated or key in self.result:
                    continue
                if not has_kind(requests[index].device_class, each, tried):
                    continue
                if not self._allocate_device(each, tried):
                    continue
                self.result.append(key)
                if self._allocate_one(requests, (index, number + 1), (pool_index, device_index + 1)):
                    return True
                self.result.remove(key)
                self.consumed[each.name].subtract(tried.consumes)
        return False

    def _allocate_device(self, each: Pool, tried: Device) -> bool:
        if tried.consumes:
            self.consumed[each.name].update(tried.consumes)
            for counter, amount in self.available[each.name].items():
                if amount < self.consumed[each.name][counter]:
                    self.consumed[each.name].subtract(tried.consumes)
                    return False
        # The counters of a tainted device are not given back.
        return not tried.tainted


def available(each: Pool, allocated: Collection[DeviceKey]) -> Mapping[tuple[str, str], int]:
    """Return a pool's counters less those of devices in use."""
    left = Counter(dict(each.counters))
    for item in [*each.devices, *each.others]:
        if (each.driver, each.name, item.name) in allocated:
            left.subtract(item.consumes)
    return left
