"""Nodes with what drivers offer on them: amounts of extended resources, and whether several fit together."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from rules_engine.devices.allocation import Matches, Request, StepsExceededError, allocate, count_devices
from rules_engine.devices.pools import Pool, Pools
from rules_engine.devices.selectors import SelectorError, class_matches
from rules_engine.model.kubernetes.cluster import Cluster, Node, Served
from rules_engine.model.kubernetes.devices import MAX_CLAIM_DEVICES, Device, DeviceClass, DeviceKey, Devices
from rules_engine.model.kubernetes.quantity import NANOS, Quantity


def with_device_offers(cluster: Cluster) -> Cluster:
    """Return a cluster whose nodes offer what drivers allocate for extended resources.

    A resource of which a node has a positive allocatable amount is a device plugin's there. For each other resource
    with a DeviceClass, `allocatable` becomes the number of devices that fit together, up to MAX_CLAIM_DEVICES, and
    `used` how many fewer fit beside those of claims.
    """
    offers = _Offers(cluster.devices)
    return replace(cluster, nodes=tuple(map(offers.node, cluster.nodes)))


class _Offers:
    """The offers of a cluster's drivers."""

    def __init__(self, devices: Devices) -> None:
        self._classes = devices.class_by_resource
        self._allocated = devices.allocated
        self._pools = Pools(devices)
        self._matched: dict[tuple[str, DeviceKey], bool] = {}

    def node(self, node: Node) -> Node:
        """Return a node with its offers."""
        classes = {name: each for name, each in self._classes.items() if not node.allocatable.get(name)}
        if not classes:
            return node
        pools = self._pools.reaching(node)
        taken = {*self._allocated, *self._taken_by_pods(node, pools, classes)}
        service = _Service(pools, classes, taken, self._matches)
        allocatable, used = dict(node.allocatable), dict(node.used)
        for name in classes:
            most, free = service.amounts(name)
            if most:
                allocatable[name] = Quantity.of(most)
                used[name] = Quantity.of(most - free)
        return replace(node, allocatable=allocatable, used=used, service=service)

    def _matches(self, device_class: DeviceClass, pool: Pool, device: Device) -> bool:
        key = device_class.name, pool.key(device)
        matched = self._matched.get(key)
        if matched is None:
            matched = self._matched[key] = class_matches(device_class, device, pool.driver)
        return matched

    def _taken_by_pods(
        self, node: Node, pools: Sequence[Pool], classes: Mapping[str, DeviceClass]
    ) -> Iterator[DeviceKey]:
        """Yield devices for the pods of a node that have no claim, as those of an inventory."""
        taken = set(self._allocated)
        for name, device_class in sorted(classes.items()):
            for _ in range(self._unclaimed(node, name, device_class, pools)):
                try:
                    found = allocate(pools, [Request(device_class, 1)], taken, self._matches)
                except (SelectorError, StepsExceededError):
                    break
                if found is None:
                    break
                taken.update(found)
                yield from found

    def _unclaimed(self, node: Node, name: str, device_class: DeviceClass, pools: Sequence[Pool]) -> int:
        """Return how many devices the pods of a node request beyond those of claims for extended resources."""
        requested = node.used.get(name)
        if not requested:
            return 0
        claimed = 0
        for pool in pools:
            for device in pool.devices:
                if self._allocated.get(pool.key(device)):
                    try:
                        claimed += self._matches(device_class, pool, device)
                    except SelectorError:
                        return 0
        return max(0, requested.nanos // NANOS - claimed)


class _Service:
    """What drivers offer on one node."""

    def __init__(
        self, pools: Sequence[Pool], classes: Mapping[str, DeviceClass], taken: Set[DeviceKey], matches: Matches
    ) -> None:
        self.resources: Set[str] = classes.keys()
        self._pools = pools
        self._classes = classes
        self._matches = matches
        self._taken: Mapping[bool, Set[DeviceKey]] = {False: frozenset(), True: taken}
        self._counts = {
            (name, free): count_devices(pools, each, self._taken[free], matches)
            for name, each in classes.items()
            for free in (False, True)
        }

    @property
    def simple(self) -> bool:
        """True if the amounts of single resources say all."""
        return all(count.exact and not count.failure for count in self._counts.values())

    def amounts(self, resource: str) -> tuple[int, int]:
        """Return the devices of a resource that fit together, and those that fit beside the ones in use."""
        return self._counts[resource, False].most, self._counts[resource, True].most

    def serve(self, counts: Mapping[str, int], *, free: bool) -> Served:
        if sum(counts.values()) > MAX_CLAIM_DEVICES:
            return Served.GIVEN_UP
        for name, number in counts.items():
            count = self._counts[name, free]
            if number > count.most:
                return Served.GIVEN_UP if count.failure else Served.NO
        exact = all(self._counts[name, free].exact for name in counts)
        if len(counts) == 1:
            return Served.YES if exact else Served.UNKNOWN
        requests = [Request(self._classes[name], number) for name, number in sorted(counts.items())]
        try:
            found = allocate(self._pools, requests, self._taken[free], self._matches)
        except SelectorError:
            return Served.GIVEN_UP
        except StepsExceededError:
            return Served.UNKNOWN
        return Served.NO if found is None else Served.YES
