"""Pools: the devices that reach a node, in the order in which the scheduler tries them.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating (pools_incubating.go). One thing differs: if
only some devices of a slice reach the node, the others are left out, so no selector fails on them.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.devices import (
    CounterKey,
    Counters,
    Device,
    DeviceKey,
    Devices,
    NodeSelection,
    PoolKey,
    ResourceSlice,
)
from rules_engine.model.kubernetes.placement import NodeExpression, parse_label_integer


class DeviceShape(Struct, frozen=True, cache_hash=True):
    """Key of counts of a pool's devices. Equal devices are one value, identified by its id while the pool exists."""

    driver: str
    devices: bytes
    others: bytes
    counters: tuple[CounterKey, ...]
    amounts: tuple[int, ...]


class Pool(Struct, frozen=True, kw_only=True, dict=True):
    """The devices of a pool that reach a node.

    `devices`: in order. `counters`: of the whole pool. `others`: devices that do not reach the node, but consume
    counters. `conditional`: claims of some devices wait for conditions. `problem`: why the pool has no devices; ""
    if it has some.
    """

    driver: str
    name: str
    devices: tuple[Device, ...] = ()
    counters: Counters = {}
    others: tuple[Device, ...] = ()
    conditional: bool = False
    problem: str = ""
    invalid: bool = False

    @property
    def pool_key(self) -> PoolKey:
        return self.driver, self.name

    @cached_property
    def shape(self) -> DeviceShape:
        devices, others = (array("Q", map(id, each)).tobytes() for each in (self.devices, self.others))
        return DeviceShape(self.driver, devices, others, tuple(self.counters), tuple(self.counters.values()))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all its devices."""
        return frozenset([device.name for device in (*self.devices, *self.others)])

    def key(self, device: Device) -> DeviceKey:
        return self.driver, self.name, device.name


class Pools:
    """All pools of a cluster."""

    def __init__(self, devices: Devices) -> None:
        slices: dict[PoolKey, list[ResourceSlice]] = defaultdict(list)
        for each in devices.tainted_slices:
            slices[each.pool_key].append(each)
        self._pools = {key: _Slices(key, parts) for key, parts in slices.items()}
        self._named: dict[str, set[PoolKey]] = defaultdict(set)
        self._general: set[PoolKey] = set()
        self._every: list[_Slices] = []
        self._alike: Sequence[Pool] | None = None
        for key, pool in self._pools.items():
            for name in pool.named:
                self._named[name].add(key)
            if pool.everywhere:
                self._every.append(pool)
            elif pool.general:
                self._general.add(key)

    def reaching(self, node: Node) -> Sequence[Pool]:
        """Return the pools with devices that reach a node; conditional ones come last."""
        keys = self._named.get(node.name, frozenset[PoolKey]()) | self._general
        pools = [pool for key in keys if (pool := self._pools[key].reaching(node)) is not None]
        if not pools:
            return self._everywhere(node)
        return sorted([*self._everywhere(node), *pools], key=_order)

    @cached_property
    def invalid_elsewhere(self) -> Sequence[PoolKey]:
        """The pools that are invalid on nodes that see their counters but have none of their devices.

        They change no answer, only the scheduler's message.
        """
        pools = [each.build(each.counting, Node(name="")) for each in self._pools.values() if each.counting]
        return [pool.pool_key for pool in pools if pool is not None and pool.invalid]

    def _everywhere(self, node: Node) -> Sequence[Pool]:
        """Return the pools that every node sees alike: there may be hundreds."""
        if self._alike is None:
            pools = [pool for each in self._every if (pool := each.reaching(node)) is not None]
            self._alike = sorted(pools, key=_order)
        return self._alike


def _order(pool: Pool) -> tuple[bool, PoolKey]:
    return pool.conditional, pool.pool_key


class _Slices:
    """The slices of one pool, by the nodes that they reach."""

    def __init__(self, key: PoolKey, slices: Sequence[ResourceSlice]) -> None:
        self._driver, self._name = key
        self._slices = slices
        self._sizes = Counter(each.generation for each in slices)
        self.counting = [index for index, each in enumerate(slices) if each.counters]
        self._consuming = [each for each in slices if any(device.consumes for device in each.devices)]
        self.named: dict[str, list[int]] = defaultdict(list)
        """The positions of slices by the name of a node that they reach."""
        self.general: list[int] = []
        """The positions of other slices: they or their devices reach all nodes, or nodes with some labels."""
        self.everywhere = all(each.counters or (each.nodes is not None and each.nodes.every) for each in slices)
        self._built: dict[tuple[int, ...], Pool | None] = {}
        for index, each in enumerate(slices):
            selections = [each.nodes] if each.nodes is not None else [device.nodes for device in each.devices]
            names = {selection.name for selection in selections if selection is not None}
            if not each.counters:
                for name in names - {""}:
                    self.named[name].append(index)
                if "" in names:
                    self.general.append(index)

    def reaching(self, node: Node) -> Pool | None:
        """Return the pool as a node sees it; None if no device reaches it, or if slices are newer elsewhere."""
        visible = {index for index in self.general if _slice_reaches(self._slices[index], node)}
        visible.update(self.named.get(node.name, ()))
        if not visible:
            return None
        visible.update(self.counting)
        indexes = tuple(sorted(visible))
        # Nodes that see the same slices see the same pool, unless devices have nodes of their own.
        if any(self._slices[index].nodes is None for index in indexes):
            return self.build(indexes, node)
        if indexes not in self._built:
            self._built[indexes] = self.build(indexes, node)
        return self._built[indexes]

    def build(self, indexes: Sequence[int], node: Node) -> Pool | None:
        """Return the pool of the slices at these positions as a node sees it."""
        driver, name = self._driver, self._name
        relevant = [self._slices[index] for index in indexes]
        generation = max(each.generation for each in relevant)
        relevant = [each for each in relevant if each.generation == generation]
        remote: Sequence[ResourceSlice] = ()
        if len(relevant) != relevant[0].slice_count:
            if generation < max(self._sizes):
                return None
            if self._sizes[generation] != relevant[0].slice_count:
                problem = (
                    f"it has {self._sizes[generation]} of {relevant[0].slice_count} slices of generation {generation}"
                )
                return Pool(driver=driver, name=name, problem=problem)
            near = set(map(id, relevant))
            remote = [each for each in self._consuming if each.generation == generation and id(each) not in near]
        return _build_pool(driver, name, sorted(relevant, key=lambda each: each.name), remote, node)


def _build_pool(
    driver: str, name: str, slices: Sequence[ResourceSlice], remote: Sequence[ResourceSlice], node: Node
) -> Pool:
    counting = [each.counters for each in slices if each.counters]
    # One mapping for all nodes that have it: a node's cards have a hundred counters.
    counters = counting[0] if len(counting) == 1 else {name: each[name] for each in counting for name in each}
    device_slices = [each for each in slices if not each.counters]
    problem = _pool_problem(slices, device_slices, [*device_slices, *remote], counters)
    if problem:
        return Pool(driver=driver, name=name, problem=problem, invalid=True)
    near_devices = [
        (device, each.nodes is not None or (device.nodes is not None and reaches(device.nodes, node)))
        for each in device_slices
        for device in each.devices
    ]
    return Pool(
        driver=driver,
        name=name,
        devices=tuple([device for device, near in near_devices if near]),
        counters=counters,
        others=tuple(
            [device for device, near in near_devices if device.consumes and not near]
            + [device for each in remote for device in each.devices if device.consumes]
        ),
        conditional=any(device.conditional for each in device_slices for device in each.devices),
    )


def _pool_problem(
    slices: Iterable[ResourceSlice],
    device_slices: Iterable[ResourceSlice],
    consumers: Iterable[ResourceSlice],
    counters: Counters,
) -> str:
    """Return why a pool is invalid, or ""."""
    twice = _repeated(device.name for each in device_slices for device in each.devices)
    if twice:
        return f"it has two devices {twice}"
    twice = _repeated(name for each in slices for name in {name for name, _ in each.counters})
    if twice:
        return f"it has two counter sets {twice}"
    for each in consumers:
        for device in each.devices:
            for counter in device.consumes:
                if counter not in counters:
                    return f"device {device.name} consumes the counter {'/'.join(counter)}, which it does not have"
    return ""


def _repeated(names: Iterable[str]) -> str:
    return next((name for name, count in Counter(names).items() if count > 1), "")


def _slice_reaches(each: ResourceSlice, node: Node) -> bool:
    selections = [each.nodes] if each.nodes is not None else [device.nodes for device in each.devices]
    return any(selection is not None and reaches(selection, node) for selection in selections)


def reaches(selection: NodeSelection, node: Node) -> bool:
    """Return True if a selection has a node."""
    if selection.name:
        return selection.name == node.name
    fields = {"metadata.name": node.name}
    return selection.every or any(
        all(_expression_matches(each, node.labels) for each in term.expressions)
        and all(_expression_matches(each, fields) for each in term.fields)
        for term in selection.terms
    )


def _expression_matches(expression: NodeExpression, values: Mapping[str, str]) -> bool:
    value = values.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.distinct
        case "NotIn":
            return value not in expression.distinct
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number = None if value is None else parse_label_integer(value)
    bound = parse_label_integer(expression.values[0]) if len(expression.values) == 1 else None
    if number is None or bound is None:
        return False
    return number > bound if expression.operator == "Gt" else number < bound


def pool_devices(pools: Iterable[Pool]) -> Iterator[tuple[Pool, Device]]:
    """Yield the devices of pools in order."""
    return ((pool, device) for pool in pools for device in pool.devices)
