"""Pools: the devices that reach a node, in the order in which the scheduler tries them.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating (pools_incubating.go). One thing differs: a
device that does not reach the node, in a slice of which other devices do, is left out, so no selector fails on it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.devices import (
    Counters,
    Device,
    DeviceKey,
    Devices,
    NodeSelection,
    PoolKey,
    ResourceSlice,
)
from rules_engine.model.kubernetes.placement import NodeExpression, NodeTerm, parse_label_integer


class Pool(Struct, frozen=True, kw_only=True):
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

    def key(self, device: Device) -> DeviceKey:
        return self.driver, self.name, device.name


class Pools:
    """All pools of a cluster."""

    def __init__(self, devices: Devices) -> None:
        self._slices: dict[PoolKey, list[ResourceSlice]] = defaultdict(list)
        self._named: dict[str, set[PoolKey]] = defaultdict(set)
        self._general: set[PoolKey] = set()
        self._everywhere: dict[PoolKey, Pool | None] = {}
        for each in devices.slices:
            key = each.pool_key
            self._slices[key].append(each)
            if each.nodes is not None and each.nodes.name and not each.counters:
                self._named[each.nodes.name].add(key)
            elif not each.counters:
                self._general.add(key)

    def reaching(self, node: Node) -> Sequence[Pool]:
        """Return the pools with devices that reach a node; conditional ones come last.

        A pool that has only counters there is left out: it changes no answer, only the scheduler's message.
        """
        keys = sorted(self._named.get(node.name, set()) | self._general)
        pools = [pool for key in keys if (pool := self._pool(key, node)) is not None]
        return sorted(pools, key=lambda pool: pool.conditional)

    def _pool(self, key: PoolKey, node: Node) -> Pool | None:
        """Return a pool as a node sees it; None if no device reaches it, or if slices are newer elsewhere."""
        if not all(each.nodes is not None and each.nodes.every for each in self._slices[key]):
            return self._pool_at(key, node)
        # Each node sees the same.
        if key not in self._everywhere:
            self._everywhere[key] = self._pool_at(key, node)
        return self._everywhere[key]

    def _pool_at(self, key: PoolKey, node: Node) -> Pool | None:
        driver, name = key
        every = self._slices[key]
        relevant = [each for each in every if each.counters or _slice_reaches(each, node)]
        if all(each.counters for each in relevant):
            return None
        generation = max(each.generation for each in relevant)
        relevant = [each for each in relevant if each.generation == generation]
        remote: Sequence[ResourceSlice] = ()
        if len(relevant) != relevant[0].slice_count:
            if any(each.generation > generation for each in every):
                return None
            all_current = [each for each in every if each.generation == generation]
            if len(all_current) != relevant[0].slice_count:
                problem = f"it has {len(all_current)} of {relevant[0].slice_count} slices of generation {generation}"
                return Pool(driver=driver, name=name, problem=problem)
            remote = [each for each in all_current if each not in relevant]
        return _build_pool(driver, name, sorted(relevant, key=lambda each: each.name), remote, node)


def _build_pool(
    driver: str, name: str, slices: Sequence[ResourceSlice], remote: Sequence[ResourceSlice], node: Node
) -> Pool:
    counters: dict[tuple[str, str], int] = {}
    for each in slices:
        counters.update(each.counters)
    device_slices = [each for each in slices if not each.counters]
    problem = _pool_problem(slices, device_slices, [*device_slices, *remote], counters)
    if problem:
        return Pool(driver=driver, name=name, problem=problem, invalid=True)
    return Pool(
        driver=driver,
        name=name,
        devices=tuple(
            device
            for each in device_slices
            for device in each.devices
            if each.nodes is not None or (device.nodes is not None and reaches(device.nodes, node))
        ),
        counters=counters,
        others=tuple(
            device
            for each in (*device_slices, *remote)
            for device in each.devices
            if device.consumes
            and (each in remote or (each.nodes is None and not (device.nodes and reaches(device.nodes, node))))
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
    if each.nodes is not None:
        return reaches(each.nodes, node)
    return any(device.nodes is not None and reaches(device.nodes, node) for device in each.devices)


def reaches(selection: NodeSelection, node: Node) -> bool:
    """Return True if a selection has a node."""
    if selection.name:
        return selection.name == node.name
    return selection.every or any(_term_matches(term, node) for term in selection.terms)


def _term_matches(term: NodeTerm, node: Node) -> bool:
    fields: Mapping[str, str] = {"metadata.name": node.name}
    return all(_expression_matches(each, node.labels) for each in term.expressions) and all(
        _expression_matches(each, fields) for each in term.fields
    )


def _expression_matches(expression: NodeExpression, values: Mapping[str, str]) -> bool:
    value = values.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
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
