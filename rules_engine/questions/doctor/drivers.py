"""Devices that drivers offer by Dynamic Resource Allocation, and the claims that hold them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from rules_engine.cluster.devices.allocation import consumption, free_counters
from rules_engine.cluster.devices.offers import DeviceOffers
from rules_engine.cluster.devices.pools import Pool, pool_devices
from rules_engine.cluster.nodes import NodeSet, node_set, numbers_of
from rules_engine.model.json.lenient import controller_reference, object_items, text_member
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, once
from rules_engine.model.kubernetes.device_objects import read_allocated
from rules_engine.model.kubernetes.devices import Device, DeviceClass, DeviceKey, PoolKey
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.wording import join_names
from rules_engine.questions.doctor.wording import quote_message

MAX_CACHED = 64
"""Cached sets of devices, of some MiB each with 40,000 devices: waiting pods may mostly use the same nodes."""


class Matching(NamedTuple):
    """The devices of a class, by their state; `failures`: the errors of its selectors.

    `blocked`: neither allocated nor tainted, but other devices leave too little of their counters.
    """

    free: Sequence[tuple[Pool, Device]]
    allocated: Sequence[tuple[Pool, Device]]
    blocked: Sequence[tuple[Pool, Device]]
    tainted: Sequence[tuple[Pool, Device]]
    failures: Sequence[str]


class Drivers:
    """The drivers of a cluster. `view`: its nodes, with what drivers offer; `left_out`: objects that are unusable."""

    def __init__(self, objects: ClusterObjects) -> None:
        self.devices = objects.devices
        self.classes: Mapping[str, DeviceClass] = self.devices.class_by_resource
        self.left_out = tuple(map(quote_message, objects.unusable_slices))
        self.slices_read, self.classes_read = (kind not in objects.absent for kind in ("ResourceSlice", "DeviceClass"))
        self._offers = DeviceOffers(self.devices)
        # Without classes, the view keeps its indexes.
        self.view: Cluster = objects.view
        if self.classes:
            self.view = replace(objects.view, nodes=tuple(map(self._offers.node, objects.view.nodes)))
        self._objects = objects
        self._pools = self._offers.pools
        self.matching = lru_cache(MAX_CACHED)(self._find_matching)
        """Return the devices of a class that reach some nodes."""
        self.pools_of = lru_cache(MAX_CACHED)(self._find_pools)
        """Return the pools of all slices with a device that matches, used or not, and the errors of selectors."""

    def offered(self, node: Node) -> Mapping[str, tuple[int, int]]:
        """Return the amounts that drivers offer on a node of the view, and how much is in use, by resource.

        A class with an extended resource is not listed a second time by its implicit name.
        """
        names = node.service.resources if node.service else ()
        return {
            name: (node.allocatable[name].nanos // NANOS, node.used[name].nanos // NANOS)
            for name in names
            if name in node.allocatable and node.allocatable[name].nanos and name not in self.devices.second_names
        }

    @property
    def every(self) -> NodeSet:
        return (1 << len(self.view.nodes)) - 1

    @cached_property
    def nodes_by_resource(self) -> Mapping[str, NodeSet]:
        """The nodes on which only drivers can serve a resource, by its name."""
        numbers: dict[str, list[int]] = {}
        for number, node in enumerate(self.view.nodes):
            for name in node.service.resources if node.service else ():
                numbers.setdefault(name, []).append(number)
        return {name: node_set(each) for name, each in numbers.items()}

    def _find_matching(self, device_class: DeviceClass, nodes: NodeSet) -> Matching:
        free, allocated, blocked, tainted = (dict[DeviceKey, tuple[Pool, Device]]() for _ in range(4))
        failures: dict[str, None] = {}
        for number in numbers_of(nodes):
            pools = self._pools.reaching(self.view.nodes[number])
            left = {pool.pool_key: free_counters(pool, self.devices.allocated) for pool in pools}
            for pool, device in pool_devices(pools):
                key, counters = pool.key(device), left[pool.pool_key]
                matched = self._offers.verdict(device_class, pool.driver, device)
                if isinstance(matched, str):
                    failures[quote_message(matched)] = None
                elif matched:
                    state = free
                    if device.tainted:  # it stays so when its claim ends
                        state = tainted
                    elif consumption(pool.driver, device, self.devices.allocated.get(key, ())) is None:
                        state = allocated
                    elif any(counters[counter] < nanos for counter, nanos in device.consumes.items()):
                        state = blocked
                    state[key] = pool, device
        return Matching([*free.values()], [*allocated.values()], [*blocked.values()], [*tainted.values()], [*failures])

    def _find_pools(self, device_class: DeviceClass) -> tuple[Sequence[PoolKey], Sequence[str]]:
        pools: dict[PoolKey, None] = {}
        failures: dict[str, None] = {}
        for each in self.devices.slices:
            for device in each.devices:
                matched = self._offers.verdict(device_class, each.driver, device)
                if isinstance(matched, str):
                    failures[quote_message(matched)] = None
                elif matched:
                    pools[each.pool_key] = None
        return [*pools], [*failures]

    @cached_property
    def unusable_pools(self) -> Mapping[PoolKey, str]:
        """The pools that the scheduler does not use on some node, each with why."""
        problems: dict[PoolKey, str] = {}
        for node in self.view.nodes:
            for pool in self._pools.reaching(node):
                if pool.problem:
                    problems.setdefault(pool.pool_key, quote_message(pool.problem))
        generations: dict[PoolKey, list[int]] = {}
        for each in self.devices.slices:
            generations.setdefault(each.pool_key, []).append(each.generation)
        for key, every in generations.items():
            if min(every) < max(every):
                problems.setdefault(key, f"some of its slices are older than generation {max(every)}")
        return problems

    @cached_property
    def _claims(self) -> Mapping[DeviceKey, ApiObject]:
        return {key: claim for claim in self._objects.of("ResourceClaim") for key, _ in read_allocated(claim)}

    def holder(self, key: DeviceKey) -> str:
        """Return the claim that holds a device, and the pods that it is reserved for, or its owner."""
        claim = self._claims[key]
        pods = [
            f"Pod {claim.namespace}/{text_member(each, 'name')}"
            for each in object_items(claim.status.get("reservedFor"))
            if text_member(each, "resource") == "pods"
        ]
        owner = controller_reference(claim)
        words = f"ResourceClaim {claim.namespace}/{claim.name}"
        if pods:
            words += f", reserved for {join_names(pods)}"
        elif owner is not None:
            words += f" of {text_member(owner, 'kind')} {claim.namespace}/{text_member(owner, 'name')}"
        deleted = claim.metadata.get("deletionTimestamp") is not None
        return quote_message(words + (", which is being deleted" if deleted else ""))

    def blockers(self, pool: Pool, device: Device) -> Iterator[DeviceKey]:
        """Yield the allocated devices that consume counters which a device consumes, too."""
        sets = {name for name, _ in device.consumes}
        for other in (*pool.devices, *pool.others):
            if pool.key(other) in self.devices.allocated and not sets.isdisjoint(name for name, _ in other.consumes):
                yield pool.key(other)


drivers_of = once(Drivers)
"""Return the drivers of a cluster's objects."""
