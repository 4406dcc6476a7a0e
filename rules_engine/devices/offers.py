"""Nodes with what drivers offer on them: amounts of extended resources, and whether several fit together.

One thing differs from the scheduler: the requests of a pod are tried by resource, not by container. It matters only if
a selector fails, or a tainted device keeps counters.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from msgspec import Struct

from rules_engine.devices.allocation import Count, Matches, Request, StepsExceededError, allocate, count_devices
from rules_engine.devices.pools import Pool, Pools
from rules_engine.devices.selectors import SelectorError, class_matches
from rules_engine.model.kubernetes.cluster import Cluster, Node, Served
from rules_engine.model.kubernetes.devices import MAX_CLAIM_DEVICES, Device, DeviceClass, DeviceKey, Devices
from rules_engine.model.kubernetes.quantity import NANOS, Quantity

MAX_VERDICTS = 200_000
"""Verdicts of selectors on devices that are cached. Devices of equal shape are one value: a cluster has hundreds."""

MAX_COUNTS = 20_000
"""Counts of devices that are cached, by the devices of a node and those in use."""


def with_device_offers(cluster: Cluster) -> Cluster:
    """Return a cluster whose nodes offer what its drivers allocate for extended resources."""
    offers = DeviceOffers(cluster.devices)
    return replace(cluster, nodes=tuple(map(offers.node, cluster.nodes)))


class _Cache(Struct):
    """Answers that depend on values only."""

    verdicts: dict[tuple[tuple[str, ...], str, int], tuple[Device, bool | SelectorError]] = {}
    counts: dict[object, tuple[object, Count]] = {}


class DeviceOffers:
    """The offers of a cluster's drivers. `earlier`: those of an earlier state of it, whose cached answers are used."""

    def __init__(self, devices: Devices, earlier: "DeviceOffers | None" = None) -> None:
        self._classes = devices.class_by_resource
        self._allocated = devices.allocated
        self._slices = devices.slices
        if earlier is None:
            self._pools, self._cache = Pools(devices), _Cache()
        else:
            same = earlier._slices is devices.slices  # noqa: SLF001 - its own class
            self._pools = earlier._pools if same else Pools(devices)  # noqa: SLF001
            self._cache = earlier._cache  # noqa: SLF001

    def node(self, node: Node) -> Node:
        """Return a node with its offers.

        A resource of which a node has a positive allocatable amount is a device plugin's there. For each other resource
        with a DeviceClass, `allocatable` becomes the number of devices that fit together, up to MAX_CLAIM_DEVICES, and
        `used` how many fewer fit beside those of claims.
        """
        classes = {name: each for name, each in self._classes.items() if not node.allocatable.get(name)}
        if not classes:
            return node
        pools = self._pools.reaching(node)
        keys = (pool.key(device) for pool in pools for device in (*pool.devices, *pool.others))
        taken = {key for key in keys if key in self._allocated} if self._allocated else set[DeviceKey]()
        taken |= {*self._taken_by_pods(node, pools, classes, taken)}
        service = _Service(pools, classes, taken, self._matches, self._count)
        allocatable, used = dict(node.allocatable), dict(node.used)
        for name in classes:
            most, free = service.amounts(name)
            if most:
                allocatable[name] = Quantity.of(most)
                used[name] = Quantity.of(most - free)
        return replace(node, allocatable=allocatable, used=used, service=service)

    def _matches(self, device_class: DeviceClass, pool: Pool, device: Device) -> bool:
        verdicts = self._cache.verdicts
        key = device_class.selectors, pool.driver, id(device)
        _, verdict = verdicts.get(key, (device, None))
        if verdict is None:
            try:
                verdict = class_matches(device_class, device, pool.driver)
            except SelectorError as error:
                verdict = error
            if len(verdicts) >= MAX_VERDICTS:
                verdicts.clear()
            # With the device, so that no other one gets its id.
            verdicts[key] = device, verdict
        if isinstance(verdict, SelectorError):
            raise verdict
        return verdict

    def _count(self, pools: Sequence[Pool], device_class: DeviceClass, taken: Set[DeviceKey]) -> Count:
        """Count devices; those of nodes that are alike but for names are counted once."""
        counts = self._cache.counts
        key = device_class.selectors, tuple([_shape(pool, taken) for pool in pools])
        _, count = counts.get(key, (pools, None))
        if count is None:
            count = count_devices(pools, device_class, taken, self._matches)
            if len(counts) >= MAX_COUNTS:
                counts.clear()
            counts[key] = pools, count
        return count

    def _taken_by_pods(
        self, node: Node, pools: Sequence[Pool], classes: Mapping[str, DeviceClass], claimed: Set[DeviceKey]
    ) -> Iterator[DeviceKey]:
        """Yield devices for the pods of a node that have no claim, as those of an inventory."""
        taken = set(claimed)
        for name, device_class in sorted(classes.items()):
            for _ in range(self._unclaimed(node, name, device_class, pools)):
                try:
                    found = allocate(pools, [Request(device_class, 1)], taken, self.matches)
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
                if self.allocated.get(pool.key(device)):
                    try:
                        claimed += self.matches(device_class, pool, device)
                    except SelectorError:
                        return 0
        return max(0, requested.nanos // NANOS - claimed)


def _shape(pool: Pool, taken: Set[DeviceKey]) -> object:
    """Return what the count of a pool's devices depends on; equal devices are one value, which lives as long as it."""
    return (
        pool.driver,
        tuple(map(id, pool.devices)),
        tuple(map(id, pool.others)),
        tuple(pool.counters.items()),
        tuple([index for index, device in enumerate((*pool.devices, *pool.others)) if pool.key(device) in taken]),
    )


CountDevices = Callable[[Sequence[Pool], DeviceClass, Set[DeviceKey]], Count]


class _Service:
    """What drivers offer on one node."""

    def __init__(
        self,
        pools: Sequence[Pool],
        classes: Mapping[str, DeviceClass],
        taken: Set[DeviceKey],
        matches: Matches,
        count: CountDevices,
    ) -> None:
        self.node = node
        self.resources: Set[str] = classes.keys()
        self._pools = pools
        self._classes = classes
        self._matches = matches
        self._taken: Mapping[bool, Set[DeviceKey]] = {False: frozenset(), True: taken}
        self._counts = {
            (name, free): count(pools, each, self._taken[free])
            for name, each in classes.items()
            for free in (False, True)
        }
        self._counts = {
            (name, free): counted[each.name, free] for name, each in classes.items() for free in (False, True)
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
        found_alone = [self._served_alone(self._counts[name, free], number) for name, number in counts.items()]
        if len(counts) == 1:
            return found_alone[0]
        # With a failing selector, the order of the requests decides whether it is evaluated.
        if Served.NO in found_alone and not any(self._counts[name, free].failure for name in counts):
            return Served.NO
        requests = [Request(self._classes[name], number) for name, number in sorted(counts.items())]
        try:
            found = allocate(self._pools, requests, self._taken[free], self._matches)
        except SelectorError:
            return Served.GIVEN_UP
        except StepsExceededError:
            return Served.UNKNOWN
        return Served.NO if found is None else Served.YES

    @staticmethod
    def _served_alone(count: Count, number: int) -> Served:
        if number > count.most:
            return Served.GIVEN_UP if count.failure else Served.NO
        return Served.YES if count.exact else Served.UNKNOWN
