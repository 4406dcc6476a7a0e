"""The filter DynamicResources: devices for extended resources that a DeviceClass serves.

Source: plugins/dynamicresources (extendeddynamicresources.go, dynamicresources.go), plugins/noderesources/fit.go
(shouldDelegateResourceToDRA). Claims that pods name themselves are not modelled, but their devices are in use.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from msgspec import Struct, field

from rules_engine.cluster.devices.allocation import AllocatedDevice, allocate, claim_of, lacks_devices
from rules_engine.cluster.devices.offers import DeviceOffers
from rules_engine.cluster.devices.requests import ExtendedResourceRequest, create_requests
from rules_engine.cluster.devices.selectors import CostlyError, SelectorError
from rules_engine.cluster.nodes import NodeSet, node_set, numbers_of, union
from rules_engine.cluster.scheduling import scheduling as reasons
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.devices import MAX_CLAIM_DEVICES, Devices, Held, PoolKey
from rules_engine.model.kubernetes.quantity import Quantity

MAX_KINDS = 1_000
"""Different requests whose nodes are cached; when there are more, all are dropped. One takes a few kilobytes."""

MAX_STEPS = 10_000
"""Devices tried in one search, some 10 ms. kube-scheduler gives up after 10 s; people's claims need a few hundred."""

CONDITIONAL = "binding conditions of devices"
TAINT_RULES = "devicetaintrules, which were not read"

STEPS_EXCEEDED = "it takes too many steps to find out which devices fit together"
"""The failure of a search that kube-scheduler may complete: it tries more steps."""

_UNLIMITED = Quantity.of(2**64)
"""More than a pod can request."""

Containers = tuple[ExtendedResourceRequest, ...]


class DevicesError(Exception):
    """A failure on one node that ends the whole attempt to schedule a pod: kube-scheduler's reason SchedulerError."""


class _EqualRequests(Struct, eq=False):
    """The nodes for pods of equal requests: nodes with a current answer, nodes without the devices, and failures."""

    known: NodeSet = 0
    excluded: dict[str, NodeSet] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    def forget(self, nodes: NodeSet) -> None:
        self.known &= ~nodes
        for why in self.excluded:
            self.excluded[why] &= ~nodes
        self.failures = {number: why for number, why in self.failures.items() if not nodes >> number & 1}


class DeviceUse:
    """The devices of a cluster's drivers: the ones in use, by claims and pods, and the nodes with enough free ones.

    Without DeviceClasses there is nothing to compute.
    """

    def __init__(self, devices: Devices, nodes: Sequence[Node]) -> None:
        self._classes = devices.class_by_resource
        self.offers = DeviceOffers(devices)
        self._served = {
            name: node_set([number for number, node in enumerate(nodes) if not node.allocatable.get(name)])
            for name in self._classes
        }
        """The nodes whose drivers serve a resource: nodes without a device plugin for it."""
        self._pools = [self.offers.pools.reaching(node) for node in nodes] if self._classes else []
        self._reached: dict[PoolKey, NodeSet] = {}
        for number, pools in enumerate(self._pools):
            for pool in pools:
                self._reached[pool.pool_key] = self._reached.get(pool.pool_key, 0) | 1 << number
        self._held: dict[str, Held] = {}
        """The devices of pods, by their names."""
        self._kinds: dict[Containers, _EqualRequests] = {}
        every = [(device, each.driver) for each in devices.slices for device in each.devices]
        self._rules_unread = devices.taint_rules is None
        self._special = {
            CONDITIONAL: [(device, driver) for device, driver in every if device.conditional],
        }

    def without_served(self, node: Node) -> Node:
        """Return a node as NodeResourcesFit sees it: it has any amount of what drivers serve."""
        served = {name: _UNLIMITED for name in self._classes if not node.allocatable.get(name)}
        return replace(node, allocatable={**node.allocatable, **served}) if served else node

    def change_node(self, number: int, node: Node) -> None:
        """Replace the allocatable amounts of a node."""
        bit = 1 << number
        for name, nodes in self._served.items():
            self._served[name] = nodes & ~bit if node.allocatable.get(name) else nodes | bit
        for kind in self._kinds.values():
            kind.forget(bit)

    def neighbours(self, number: int) -> Sequence[int]:
        """Return the other nodes that the pools of a node reach: they have the same devices."""
        if not self._pools:
            return ()
        nodes = union([self._reached[pool.pool_key] for pool in self._pools[number]])
        return numbers_of(nodes & ~(1 << number))

    def exclude(self, containers: Containers, among: NodeSet) -> Mapping[str, NodeSet]:
        """Return the nodes of `among` that have too few devices, by reason. Raises DevicesError."""
        if not containers or not self._classes:
            return {}
        served = among & union([self._served.get(each.resource, 0) for each in containers])
        if not served:
            return {}
        kind = self._kinds.get(containers)
        if kind is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            kind = self._kinds[containers] = _EqualRequests()
        for number in chain([each for each in kind.failures if served >> each & 1], numbers_of(served & ~kind.known)):
            kind.known |= 1 << number
            try:
                if number not in kind.failures and self._allocate(containers, number) is None:
                    why = reasons.INVALID_POOLS if self._sees_invalid_pool(number) else reasons.NO_DEVICES
                    kind.excluded[why] = kind.excluded.get(why, 0) | 1 << number
            except DevicesError as error:
                kind.failures[number] = f"{reasons.FAILURE_START}{error}"
            if number in kind.failures:
                raise DevicesError(kind.failures[number])
        return {why: excluded for why, nodes in kind.excluded.items() if (excluded := nodes & served)}

    def having(self, containers: Containers, among: NodeSet) -> NodeSet:
        """Return the nodes of `among` that have enough devices, each searched apart from the others."""
        if not containers or not self._classes:
            return among
        nodes = 0
        for number in numbers_of(among):
            try:
                nodes |= 0 if self.exclude(containers, 1 << number) else 1 << number
            except DevicesError:
                continue
        return nodes

    def _sees_invalid_pool(self, number: int) -> bool:
        pools = self._pools[number]
        reaching = {pool.pool_key for pool in pools}
        return any(pool.invalid for pool in pools) or not reaching.issuperset(self.offers.pools.invalid_elsewhere)

    def _allocate(self, containers: Containers, number: int) -> Sequence[AllocatedDevice] | None:
        """Return devices of a node for a pod; None if it has too few. Raises DevicesError."""
        classes = {
            each.resource: self._classes[each.resource]
            for each in containers
            if self._served.get(each.resource, 0) >> number & 1
        }
        requests = create_requests(containers, classes)
        count = sum(request.count or 0 for request in requests)
        if count > MAX_CLAIM_DEVICES:
            classes_text = ", ".join(sorted({request.device_class.name for request in requests}))
            limit = f"exceeds the claim limit of {MAX_CLAIM_DEVICES}"
            raise DevicesError(f"number of requested devices {count} of DeviceClass {classes_text} {limit}")
        search = (self._pools[number], [claim_of(requests)], self.offers.allocated, self.offers.matches)
        spend = Budget(MAX_STEPS).spend
        try:
            found = None if count > 1 and lacks_devices(*search, spend) else allocate(*search, spend)
            return None if found is None else found[0]
        except SelectorError as error:
            raise DevicesError(str(error)) from None
        except (CostlyError, CostExceeded):
            raise DevicesError(STEPS_EXCEEDED) from None

    @property
    def held(self) -> Mapping[str, Held]:
        """The devices of pods, by their names."""
        return {**self._held}

    def bind(self, name: str, number: int, containers: Containers, claimed: Held | None) -> None:
        """Allocate devices to a pod on its node: `claimed`, the devices of its claim, or else the first that fit."""
        if not containers or not self._classes:
            return
        if claimed is None:
            try:
                claimed = [each.use(name, extended=True) for each in self._allocate(containers, number) or ()]
            except DevicesError:
                claimed = ()
        self.offers.claim(claimed)
        self._forget(claimed)
        self._held[name] = claimed

    def release(self, name: str) -> None:
        """Give back the devices of a pod."""
        held = self._held.pop(name, ())
        self.offers.give_back(held)
        self._forget(held)

    def _forget(self, changed: Held) -> None:
        nodes = union([self._reached.get((driver, pool), 0) for (driver, pool, _), _ in changed])
        for kind in self._kinds.values():
            kind.forget(nodes)

    def not_modelled(self, containers: Containers) -> Iterator[str]:
        """Yield what is not modelled of devices that match the classes of a pod's resources."""
        classes = [self._classes[each.resource] for each in containers if each.resource in self._classes]
        if classes and self._rules_unread:
            yield TAINT_RULES
        for what, devices in self._special.items():
            # A selector that fails may be true.
            if any(self.offers.verdict(each, driver, device) for each in classes for device, driver in devices):
                yield what
