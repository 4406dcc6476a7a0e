"""Nodes with what drivers offer on them: amounts of extended resources, and whether several fit together.

One thing differs from the scheduler: the requests of a pod are tried by resource, not by container. It matters only if
a selector fails, or a tainted device keeps counters.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import mul
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace as replace_struct

from rules_engine.cluster.devices.allocation import (
    STEP_COST,
    Count,
    DeviceRequest,
    Numbers,
    PartCapacity,
    Uses,
    allocate,
    claim_of,
    consumption,
    count_devices,
    fit_together,
    free_counters,
    pack,
    split,
)
from rules_engine.cluster.devices.pools import DeviceShape, Pool, Pools
from rules_engine.cluster.devices.selectors import CostlyError, SelectorError, class_matches
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.kubernetes.cluster import Cluster, Node, Served
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.devices import (
    MAX_CLAIM_DEVICES,
    CapacityKey,
    Consumption,
    Device,
    DeviceClass,
    DeviceKey,
    Devices,
    PoolKey,
    Spend,
    Use,
    too_many_devices,
)
from rules_engine.model.kubernetes.quantity import NANOS, Quantity

ANSWER_COST = 5_000
"""Cost of an answer that is published, at most: whether a device matches a class, or how many devices of a class a part
of a pool has. So the work is in proportion to what drivers publish, and costly devices of one leave others their
answers. A usual selector costs some 20, the parts of a card some 10."""

MAX_VERDICTS = 50_000
"""Verdicts of selectors on devices that are cached. Devices of equal shape are one value: a cluster has hundreds."""

MAX_CHOICES = 100_000
"""Numbers of devices of several classes in parts of pools that are cached, some 100 bytes each. A card has up to 20."""

MAX_SHAPED = 1_000_000
"""Devices in the shapes that are cached, some 40 bytes each. A node has up to 200, and most nodes have few shapes."""

_VIEW = "rules"
"""The name of `cluster_view` among the views of objects."""

TOO_COSTLY = "it costs too much to evaluate the selectors of DeviceClasses on all devices"
"""A verdict: it is unknown whether the device matches."""


def with_device_offers(cluster: Cluster) -> Cluster:
    """Return a cluster whose nodes offer what its drivers allocate for extended resources."""
    offers = DeviceOffers(cluster.devices)
    return replace(cluster, nodes=tuple(map(offers.node, cluster.nodes)))


def cluster_view(objects: ClusterObjects) -> Cluster:
    """Return the cluster as rules see it: with the nodes that an autoscaler can add, and what drivers offer."""
    view = objects.views.get(_VIEW)
    if not isinstance(view, Cluster):
        view = replace(objects.view, nodes=(*objects.view.nodes, *objects.declared))
        view = objects.views[_VIEW] = with_device_offers(view) if view.devices.classes else view
    return view


def keep_view(objects: ClusterObjects, cluster: Cluster) -> None:
    """Keep a cluster that was built with the objects as their `cluster_view`, apart from classes that were not read."""
    objects.views[_VIEW] = replace(cluster, classes=objects.classes)


def without_device_offers(node: Node) -> Node:
    """Return a node as it was before `with_device_offers`."""
    return node.service.node if node.service else node


_UsedNames: TypeAlias = frozenset[tuple[str, Consumption | None]]
"""The names of a pool's devices in use, and what is consumed of each in all; None: it is in use whole."""


class NodeShape(Struct, frozen=True, cache_hash=True):
    """Key of answers about the pools of a node: their shapes, and the names of their devices in use."""

    pools: tuple[tuple[DeviceShape, _UsedNames], ...]


class _Cache(Struct):
    """Verdicts and counts, shared by successive states of a cluster.

    `parts`: the parts of pools, by the shape of the pool. `devices`: the number of devices in all of them. `choices`:
    the largest numbers of devices of several classes in a part, and `chosen`, the number of all.
    """

    verdicts: dict[tuple[DeviceClass, str, int], tuple[Device, bool | str]] = {}
    counts: dict[object, Count] = {}
    choices: dict[object, Sequence[PartCapacity]] = {}
    chosen: int = 0
    shapes: dict[NodeShape, NodeShape] = {}
    parts: dict[DeviceShape, tuple[DeviceShape, Sequence[Pool]]] = {}
    devices: int = 0


class DeviceOffers:
    """The offers of a cluster's drivers.

    `allocated`: the devices of claims with their uses.
    `earlier`: offers of an earlier state of the cluster, whose cached answers are used.
    """

    def __init__(self, devices: Devices, earlier: "DeviceOffers | None" = None) -> None:
        self._classes = devices.class_by_resource
        self._second_names = devices.second_names
        self._slices = devices.slices, devices.taint_rules
        self.allocated = dict(devices.allocated)
        self._claimed: dict[PoolKey, set[str]] = defaultdict(set)
        """The names of the devices of claims, by pool."""
        for driver, pool, name in devices.allocated:
            self._claimed[driver, pool].add(name)
        if earlier is None:
            self.pools, self._cache = Pools(devices), _Cache()
        else:
            slices, taint_rules = earlier._slices  # noqa: SLF001 - its own class
            same = slices is devices.slices and taint_rules == devices.taint_rules
            self.pools = earlier.pools if same else Pools(devices)
            self._cache = earlier._cache if earlier._classes == self._classes else _Cache()  # noqa: SLF001

    def claim(self, uses: Iterable[tuple[DeviceKey, Use]]) -> None:
        """Add the devices of a claim, unless they are known."""
        for key, use in uses:
            driver, pool, name = key
            self.allocated[key] = (*(each for each in self.allocated.get(key, ()) if each != use), use)
            self._claimed[driver, pool].add(name)

    def give_back(self, uses: Iterable[tuple[DeviceKey, Use]]) -> None:
        """Remove the devices of a claim."""
        for key, use in uses:
            driver, pool, name = key
            self.allocated[key] = tuple([each for each in self.allocated.get(key, ()) if each != use])
            if not self.allocated[key]:
                del self.allocated[key]
                self._claimed[driver, pool].discard(name)

    def node(self, node: Node) -> Node:
        """Return a node with its offers.

        If a node has a positive allocatable amount of a resource, a device plugin offers it there. For each other
        resource with a DeviceClass, `allocatable` becomes the number of devices that fit together, up to
        MAX_CLAIM_DEVICES. `used` becomes how many of them no longer fit once the devices in use are taken.
        """
        classes = self._served(node)
        if not classes:
            return node
        pools = self.pools.reaching(node)
        taken = self.taken(pools)
        self._take_for_pods(node, pools, classes, taken)
        service = _PoolDevices(node, pools, classes, taken, self)
        allocatable, used = dict(node.allocatable), dict(node.used)
        for name in classes:
            most, free = service.amounts(name)
            if most or free:
                allocatable[name] = Quantity.of(most)
                used[name] = Quantity.of(most - free)
        return replace(node, allocatable=allocatable, used=used, service=service)

    def taken(self, pools: Iterable[Pool]) -> dict[DeviceKey, tuple[Use, ...]]:
        """Return the devices of pools that are in use."""
        return {
            key: self.allocated[key]
            for pool in pools
            for name in self._claimed.get(pool.pool_key, ())
            if name in pool.names and (key := (*pool.pool_key, name))
        }

    def capacity(self, node: Node) -> Node:
        """Return a node whose allocatable amounts are all devices that fit together, also more than one claim can have.

        A class with an extended resource does not count a second time by its implicit name.
        """
        pools = self.pools.reaching(node)
        shape = self.shape(pools, {})
        counted = {
            name: Quantity.of(self.count(pools, each, shape, sys.maxsize).most)
            for name, each in self._served(node).items()
            if name not in self._second_names
        }
        return replace(node, allocatable={**node.allocatable, **counted})

    def matches(self, device_class: DeviceClass, pool: Pool, device: Device, spend: Spend = lambda _: None) -> bool:
        """Return True if a device matches a class. `spend` is charged for new verdicts.

        Raises SelectorError, CostlyError, and what `spend` raises.
        """
        verdict = self.verdict(device_class, pool.driver, device, spend)
        if verdict is TOO_COSTLY:
            raise CostlyError
        if isinstance(verdict, str):
            # A new error each time: an error that is raised again keeps the frames of every earlier raise.
            raise SelectorError(verdict)
        return verdict

    def verdict(
        self, device_class: DeviceClass, driver: str, device: Device, spend: Spend = lambda _: None
    ) -> bool | str:
        """Return True if a driver's device matches a class, or the message of a selector that fails, or TOO_COSTLY."""
        cache = self._cache
        key = device_class, driver, id(device)
        _, verdict = cache.verdicts.get(key, (device, None))
        if verdict is None:
            if len(cache.verdicts) >= MAX_VERDICTS:
                cache.verdicts.clear()
            budget = Budget(ANSWER_COST)
            try:
                verdict = class_matches(device_class, device, driver, budget)
            except SelectorError as error:
                verdict = str(error)
            except CostlyError:
                verdict = TOO_COSTLY
            # With the device, so that no other one gets its id.
            cache.verdicts[key] = device, verdict
            spend(ANSWER_COST - budget.left)
        return verdict

    def count(
        self, pools: Sequence[Pool], device_class: DeviceClass, shape: NodeShape, limit: int = MAX_CLAIM_DEVICES
    ) -> Count:
        """Return how many devices of a class fit together; pools of one shape are counted once.

        Parts of pools that share no counters are counted apart, since equal cards are on many nodes.
        """
        counts = self._cache.counts
        key = device_class.selectors, limit, shape
        count = counts.get(key)
        if count is None:
            parts = [
                self._count_part(part, names, device_class, limit)
                for pool, (_, names) in zip(pools, shape.pools, strict=True)
                for part in self._parts(pool)[1]
            ]
            if all(part.apart for part in parts):
                count = Count(
                    min(sum(part.most for part in parts), limit),
                    exact=all(part.exact for part in parts),
                    least=min((part.least for part in parts if part.most), default=0),
                    room=sum(part.room for part in parts),
                )
            else:
                pairs = zip(pools, shape.pools, strict=True)
                used = {key: uses for pool, (_, names) in pairs for key, uses in _uses(pool, names).items()}
                count = count_devices(pools, device_class, used, self.matches, Budget(ANSWER_COST).spend, limit)
            counts[key] = count
        return count

    def _count_part(self, part: Pool, used: _UsedNames, device_class: DeviceClass, limit: int) -> Count:
        cache = self._cache
        names = _used_of(part, used)
        key = device_class.selectors, limit, part.shape, names
        count = cache.counts.get(key)
        if count is None:
            taken, spend = _uses(part, names), Budget(ANSWER_COST).spend
            count = cache.counts[key] = count_devices([part], device_class, taken, self.matches, spend, limit)
        return count

    def fit_together(
        self, pools: Sequence[Pool], shape: NodeShape, wanted: Mapping[DeviceClass, int], sizes: Numbers, spend: Spend
    ) -> bool | None:
        """Return True if devices of classes that are counted apart fit together; None if a device is of two classes.

        `sizes`: of a device of each class. Raises CostlyError, and what `spend` raises.
        """
        parts: list[PartCapacity] = []
        for pool, (_, names) in zip(pools, shape.pools, strict=True):
            for part in self._parts(pool)[1]:
                spend(STEP_COST)
                choices = self._choose(part, _used_of(part, names), tuple(wanted), sizes, spend)
                if choices is None:
                    return None
                parts += choices
        return fit_together(parts, tuple(wanted.values()), sizes, spend)

    def _choose(
        self, part: Pool, used: _UsedNames, classes: Sequence[DeviceClass], sizes: Numbers, spend: Spend
    ) -> Sequence[PartCapacity] | None:
        """Return the numbers of free devices of classes in a part; None if a device is of two classes."""
        cache = self._cache
        key = tuple([each.selectors for each in classes]), sizes, part.shape, used
        choices = cache.choices.get(key)
        if choices is None:
            fitting, taken = [], _uses(part, used)
            for device in part.devices:
                uses = taken.get(part.key(device))
                if device.tainted or consumption(part.driver, device, uses or ()) is None:
                    continue
                spend(len(classes))
                matched = [index for index, each in enumerate(classes) if self.matches(each, part, device)]
                if len(matched) > 1:
                    return None
                if matched:
                    fitting.append((device if uses is None else replace_struct(device, consumes={}), matched[0]))
            left = free_counters(part, taken)
            packed = pack(left, fitting, len(classes), spend)
            choices = [(numbers, max(sum(map(mul, each, sizes)) for each in numbers)) for numbers in packed]
            cache.chosen += sum(map(len, packed))
            if cache.chosen > MAX_CHOICES:
                cache.choices.clear()
                cache.chosen = sum(map(len, packed))
            cache.choices[key] = choices
        return choices

    def shape(self, pools: Sequence[Pool], taken: Uses) -> NodeShape:
        """Return the key of answers about pools. Nodes that differ only in names have equal keys."""
        used: dict[PoolKey, set[tuple[str, Consumption | None]]] = defaultdict(set)
        for (driver, pool_name, name), uses in taken.items():
            used[driver, pool_name].add((name, _total(uses)))
        shape = NodeShape(tuple([(self._parts(pool)[0], frozenset(used.get(pool.pool_key, ()))) for pool in pools]))
        return self._cache.shapes.setdefault(shape, shape)

    def _parts(self, pool: Pool) -> tuple[DeviceShape, Sequence[Pool]]:
        """Return one shape for all pools of equal shape, and the parts of the first of them."""
        cache = self._cache
        parts = cache.parts.get(pool.shape)
        if parts is None:
            cache.devices += len(pool.devices) + len(pool.others)
            if cache.devices > MAX_SHAPED:
                cache.parts.clear()
                cache.shapes.clear()
                cache.counts.clear()
                cache.choices.clear()
                cache.devices = 0
            # The parts have all devices, so that no other device gets an id of theirs.
            parts = cache.parts[pool.shape] = pool.shape, split(pool)
        return parts

    def _served(self, node: Node) -> Mapping[str, DeviceClass]:
        """Return the classes of resources that no device plugin offers on a node."""
        return {name: each for name, each in self._classes.items() if not node.allocatable.get(name)}

    def _take_for_pods(
        self,
        node: Node,
        pools: Sequence[Pool],
        classes: Mapping[str, DeviceClass],
        taken: dict[DeviceKey, tuple[Use, ...]],
    ) -> None:
        """Take devices for a node's pods that have no claim, such as an inventory's pods."""
        for name, device_class in sorted(classes.items()):
            claim = claim_of([DeviceRequest(device_class, 1)])
            for _ in range(self._unclaimed(node, name, device_class, pools)):
                try:
                    found = allocate(pools, [claim], taken, self.matches, Budget(ANSWER_COST).spend)
                except (SelectorError, CostlyError, CostExceeded):
                    break
                if found is None:
                    break
                for device in found[0]:
                    key, use = device.use("")
                    taken[key] = (*taken.get(key, ()), use)

    def _unclaimed(self, node: Node, name: str, device_class: DeviceClass, pools: Sequence[Pool]) -> int:
        """Return how many devices the pods of a node request beyond what claims for extended resources hold."""
        requested = node.used.get(name)
        if not requested:
            return 0
        claimed = 0
        for pool in pools:
            for device in pool.devices:
                extended = sum(use.extended for use in self.allocated.get(pool.key(device), ()))
                if extended:
                    try:
                        claimed += self.matches(device_class, pool, device) and extended
                    except (SelectorError, CostlyError):
                        return 0
        return max(0, requested.nanos // NANOS - claimed)


def _used_of(part: Pool, used: _UsedNames) -> _UsedNames:
    return frozenset([each for each in used if each[0] in part.names])


def _uses(pool: Pool, used: _UsedNames) -> Uses:
    return {(*pool.pool_key, name): (Use("", extended=True, consumed=consumed),) for name, consumed in used}


def _total(uses: Sequence[Use]) -> Consumption | None:
    total: Counter[CapacityKey] = Counter()
    for use in uses:
        if use.consumed is None:
            return None
        total.update(dict(use.consumed))
    return tuple(sorted(total.items()))


class _PoolDevices:
    """The devices that drivers can allocate on one node."""

    def __init__(
        self,
        node: Node,
        pools: Sequence[Pool],
        classes: Mapping[str, DeviceClass],
        taken: Uses,
        offers: DeviceOffers,
    ) -> None:
        self.node = node
        self.resources: frozenset[str] = frozenset(classes)
        self._pools = pools
        self._classes = classes
        self._offers = offers
        self._taken: Mapping[bool, Uses] = {False: {}, True: taken}
        # By class, since most classes serve two resources: their own and the implicit one.
        shape = offers.shape(pools, {})
        self._shapes = {False: shape, True: offers.shape(pools, taken) if taken else shape}
        counted = {
            (each.name, free): offers.count(pools, each, self._shapes[free])
            for each in {each.name: each for each in classes.values()}.values()
            for free in (False, True)
        }
        self._counts = {
            (name, free): counted[each.name, free] for name, each in classes.items() for free in (False, True)
        }

    @property
    def simple(self) -> bool:
        """True if the amounts of single resources say all."""
        return all(count.exact and not count.failure for count in self._counts.values())

    def shape(self, *, free: bool) -> Hashable:
        """Return what `serve` depends on."""
        return self._shapes[free], self.resources

    def amounts(self, resource: str) -> tuple[int, int]:
        """Return how many devices of a resource fit together, in all and with the devices in use."""
        return self._counts[resource, False].most, self._counts[resource, True].most

    def serve(self, counts: Mapping[str, int], spend: Spend, *, free: bool) -> Served:
        if sum(counts.values()) > MAX_CLAIM_DEVICES:
            return Served.GIVEN_UP
        alone = {name: self._counts[name, free] for name in counts}
        found_alone = [
            (Served.YES if alone[name].exact else Served.UNKNOWN)
            if number <= alone[name].most
            else (Served.GIVEN_UP if alone[name].failure else Served.NO)
            for name, number in counts.items()
        ]
        if len(counts) == 1:
            return found_alone[0]
        # With a failing selector, the order of the requests decides whether it is evaluated.
        if not any(count.failure for count in alone.values()):
            consumed = sum(alone[name].least * number for name, number in counts.items())
            if Served.NO in found_alone or consumed > max((count.room for count in alone.values()), default=0):
                return Served.NO
        try:
            if all(count.apart for count in alone.values()):
                sizes = {self._classes[name]: self._counts[name, False].least for name in counts}
                wanted = dict.fromkeys(sizes, 0)
                for name, number in counts.items():
                    wanted[self._classes[name]] += number
                fits = self._offers.fit_together(self._pools, self._shapes[free], wanted, tuple(sizes.values()), spend)
                # None: a device matches two of the classes, so only a search can tell.
                if fits is not None:
                    return Served.YES if fits else Served.NO
            requests = [DeviceRequest(self._classes[name], number) for name, number in sorted(counts.items())]
            spend(sum(len(pool.devices) for pool in self._pools))
            allocation = allocate(self._pools, [claim_of(requests)], self._taken[free], self._offers.matches, spend)
        except SelectorError:
            return Served.GIVEN_UP
        except CostlyError:
            return Served.UNKNOWN
        return Served.NO if allocation is None else Served.YES

    def failure(self, counts: Mapping[str, int], *, free: bool) -> str:
        failures = (self._counts[name, free].failure for name in counts)
        return too_many_devices(counts) or next(filter(None, failures), "")
