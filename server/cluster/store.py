"""State of the cluster, updated by watch events and published as immutable values."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from threading import Condition, Event, RLock
from time import monotonic
from typing import Any, NamedTuple

from rules_engine.cluster.devices.offers import without_device_offers
from rules_engine.cluster.nodes import NodeSet, node_index_with_places
from rules_engine.cluster.nodes.reservations import LIFETIME_SECONDS, PodKey, Reservations, ReservedAmounts
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.quantity import NanosByResource, Quantity
from rules_engine.server.cluster.device_store import DeviceStore
from rules_engine.server.cluster.reading import HeldPod, Namespace

_POLL_SECONDS = 0.02


class Store:
    """Nodes, their usage by pods, namespaces, and classes. Safe for use from several threads.

    An event marks the nodes that it changes; `publish` creates a new Cluster, in which only these nodes are rebuilt.
    Building takes seconds where drivers offer devices, so no decision waits for it: what a reservation holds is
    subtracted from its node as it is in the view. Readers use the attribute `cluster` without a lock.
    """

    def __init__(self, declared: Sequence[Node] = (), follow: Callable[[], None] = lambda: None) -> None:
        """Take what to call after each change of devices is applied."""
        self._follow = follow
        self._publishing = RLock()
        """Held while a view is built, and while devices change. It is taken before `_lock`, never after."""
        self._lock = RLock()
        self._published = Condition(self._lock)
        self.changed = Event()
        """Set while changes are unpublished."""
        self._declared = tuple(declared)
        self.cluster = Cluster(nodes=self._declared, namespaces_complete=False)
        self._facts: dict[str, Node] = {}
        self._used: dict[str, NanosByResource] = {}
        self._pods: dict[str, _PodUsage] = {}
        self._namespaces = self.cluster.namespaces
        self._classes = self.cluster.classes
        self._reservations = Reservations(self._hold)
        self._touched: dict[str, None] = {}
        self._nodes: dict[str, Node] = {}
        """The nodes of the view, with what was held or released since."""
        self._unshown: dict[str, Node] = {}
        """Nodes of which more or less is held than in the view, as they are there."""
        self._late: list[tuple[str, ReservedAmounts, int]] = []
        """Amounts held or released since the nodes that are being built were marked."""
        self.devices = DeviceStore()
        """The devices of drivers; only `change_devices` changes them."""

    @property
    def reservations(self) -> int:
        """Number of decided pods with reserved devices, not yet bound to a node."""
        return len(self._reservations)

    def publish(self) -> None:
        """Publish all changes so far."""
        with self._publishing:
            # Copied under the lock and built outside of it: decisions and events go on meanwhile.
            with self._lock:
                self.changed.clear()
                self._show()
                before, nodes = self.cluster, dict(self._nodes)
                namespaces, classes = self._namespaces, self._classes
                facts, used, touched = dict(self._facts), dict(self._used), self._touched
                self._touched, self._late = {}, []
            try:
                touched.update(dict.fromkeys(self.devices.update(facts)))
                self._follow()
                old: dict[str, Node | None] = {}
                for name in touched:
                    fact = facts.get(name)
                    new = None if fact is None else self._build_node(fact, used.get(name, {}))
                    if new != nodes.get(name):
                        old[name] = nodes.get(name)
                        if new is None:
                            del nodes[name]
                        else:
                            nodes[name] = new
                cluster, devices = before, self.devices.devices
                if before.classes is not classes or before.devices is not devices:
                    cluster = before.marked(before.freshness, before.unread, classes, devices)
                if old or before.namespaces is not namespaces:
                    changes = [(node, nodes.get(name)) for name, node in old.items()]
                    cluster = cluster.changed((*nodes.values(), *self._declared), changes, namespaces)
                    # Only the first view is indexed completely; no decision waits for that.
                    node_index_with_places(cluster)
            except Exception:
                # The next publication builds these nodes again.
                with self._lock:
                    self._touch(touched)
                raise
            for name in old:
                # Node by node, so that no decision waits for all of them.
                with self._lock:
                    self._reservations.room.update(name, nodes.get(name), cluster)
            with self._lock:
                if cluster is not before:
                    self.cluster, self._nodes, self._unshown = cluster, nodes, {}
                    # What was held while the view was built is not in it yet.
                    for held in self._late:
                        self._adjust(*held)
                self._reservations.relocate(touched, self._nodes.get)
                self._show()
                self._published.notify_all()

    def _show(self) -> None:
        """Publish the usage that pods and reservations have added or released since the last view."""
        if self._unshown:
            changes = [(node, self._nodes[name]) for name, node in self._unshown.items()]
            self._unshown = {}
            nodes = (*self._nodes.values(), *self._declared)
            self.cluster = self.cluster.changed(nodes, changes, self.cluster.namespaces)

    def wait_until(self, holds: Callable[[Cluster], bool], seconds: float) -> bool:
        """Wait for a published cluster that satisfies `holds`; other state that it reads is polled."""
        end = monotonic() + seconds
        with self._published:
            while not holds(self.cluster):
                left = end - monotonic()
                if left <= 0:
                    return False
                self._published.wait(min(left, _POLL_SECONDS))
            return True

    def without(self, key: PodKey) -> Cluster:
        """Return the view with a reservation's devices free again; the view itself if there is no such reservation."""
        with self._lock:
            self._show()
            reservation = self._reservations.get(key)
            if reservation is None or (node := self._nodes.get(reservation.node)) is None:
                return self.cluster
            used = _sum_usage(self._used[node.name], reservation.usage, -1)
            new = self._build_node(without_device_offers(node), used)
            nodes = ({**self._nodes, node.name: new}).values()
            return self.cluster.changed((*nodes, *self._declared), [(node, new)], self.cluster.namespaces)

    def holds(self, key: PodKey, now: float) -> bool:
        """Return True if there is a reservation of this key."""
        with self._lock:
            self.expire(now)
            return key in self._reservations

    def reserve(self, key: PodKey, demand: ReservedAmounts, nodes: NodeSet, now: float) -> bool:
        """Reserve devices on a node of a set; they replace what this key reserved before.

        Later decisions do not see them as free. Return False if no node has them: the pod stays pending, and holds
        nothing.
        """
        with self._lock:
            self.expire(now)
            self._reservations.drop(key)
            is_reserved = self._reservations.reserve(key, demand, nodes, now + LIFETIME_SECONDS)
            self._show()
            return is_reserved

    def rename(self, key: PodKey, to: PodKey, now: float) -> bool:
        """Give a reservation another key of its namespace, and restart its lifetime. Return False if there is none."""
        with self._lock:
            self.expire(now)
            return self._reservations.rename(key, to, now + LIFETIME_SECONDS)

    def expire(self, now: float) -> None:
        """Remove expired reservations."""
        with self._lock:
            self._reservations.expire(now)

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        facts = {node.name: node for node in nodes}
        with self._lock:
            self._touch((*facts, *self._facts))
            self._facts = facts
        self.publish()

    def set_node(self, node: Node, *, gone: bool = False) -> None:
        name, new = node.name, None if gone else node
        with self._lock:
            # Most events of a node are heartbeats.
            if self._facts.get(name) != new:
                if new is None:
                    del self._facts[name]
                else:
                    self._facts[name] = new
                self._touch((name,))

    def replace_pods(self, pods: Iterable[HeldPod]) -> None:
        bound: dict[str, _PodUsage] = {}
        seen = []
        for pod in pods:
            if pod.node:
                bound[pod.key.name] = _PodUsage(pod.node, _intern_usage(pod.usage))
            # A reservation made meanwhile is for a pod newer than this list.
            if (pod.node or pod.finished) and pod.key in self._reservations:
                seen.append(pod.key)
        used: dict[str, NanosByResource] = {}
        for held in bound.values():
            _add_usage(used, held.node, held.usage, 1)
        with self._lock:
            for key in seen:
                self._reservations.drop(key)
            # A list of pods does not show what reservations hold.
            for reservation in self._reservations:
                _add_usage(used, reservation.node, reservation.usage, 1)
            self._touch(used.keys() | self._used.keys())
            self._pods, self._used = bound, used
        self.publish()

    def set_pod(self, pod: HeldPod, *, gone: bool = False) -> None:
        with self._lock:
            name = pod.key.name
            old = self._pods.get(name)
            new = None if gone or not pod.node else _PodUsage(pod.node, _intern_usage(pod.usage))
            if new is not None:
                self._pods[name] = new
            else:
                self._pods.pop(name, None)
            if new != old:
                if old is not None:
                    self._hold(old.node, old.usage, -1)
                if new is not None:
                    self._hold(new.node, new.usage, 1)
            # Bound, deleted or finished; while the pod is pending, its reservation stays.
            if new is not None or gone or pod.finished:
                self._reservations.drop(pod.key)

    def replace_namespaces(self, namespaces: Iterable[Namespace]) -> None:
        labels = {namespace.name: namespace.labels for namespace in namespaces}
        with self._lock:
            self._namespaces = labels
        self.publish()

    def set_namespace(self, namespace: Namespace, *, gone: bool = False) -> None:
        name, labels = namespace.name, None if gone else namespace.labels
        with self._lock:
            if self._namespaces.get(name) != labels:
                # A new mapping: published views share the former one.
                others = {other: kept for other, kept in self._namespaces.items() if other != name}
                self._namespaces = others if labels is None else {**others, name: labels}
                self.changed.set()

    def replace_classes(self, member: str, classes: Iterable[tuple[str, Any]]) -> None:
        """Replace a member of Classes."""
        by_name = dict(classes)
        with self._lock:
            self._classes = replace(self._classes, **{member: by_name})
        self.publish()

    def set_class(self, member: str, named: tuple[str, Any], *, gone: bool = False) -> None:
        name, value = named
        with self._lock:
            by_name = {**getattr(self._classes, member), name: value}
            if gone:
                del by_name[name]
            self._classes = replace(self._classes, **{member: by_name})
            self.changed.set()

    def change_devices(self, change: Callable[..., None], *values: Any) -> None:
        """Change the devices of drivers by a method of DeviceStore."""
        with self._publishing:
            change(self.devices, *values)
            self.changed.set()

    def _hold(self, node: str, usage: ReservedAmounts, sign: int) -> None:
        """Add what a pod or a reservation holds to its node, or subtract it with the sign -1; `_show` publishes it."""
        _add_usage(self._used, node, usage, sign)
        self._late.append((node, usage, sign))
        self._adjust(node, usage, sign)
        self._touch((node,))

    def _adjust(self, name: str, usage: ReservedAmounts, sign: int) -> None:
        node = self._nodes.get(name)
        if node is not None:
            used = {resource: amount.nanos for resource, amount in node.used.items()}
            self._unshown.setdefault(name, node)
            self._nodes[name] = _with_used(node, _sum_usage(used, usage, sign))
            self._reservations.room.update(name, self._nodes[name], self.cluster)

    def _touch(self, names: Iterable[str]) -> None:
        self._touched.update(dict.fromkeys(names))
        self.changed.set()

    def _build_node(self, node: Node, used: NanosByResource) -> Node:
        """Return a node with its usage and what drivers offer on it."""
        return self.devices.offered(_with_used(node, used))


class _PodUsage(NamedTuple):
    """Node and usage of a bound pod."""

    node: str
    usage: ReservedAmounts


@lru_cache(maxsize=4096)  # pods have the same few sizes
def _intern_usage(usage: ReservedAmounts) -> ReservedAmounts:
    return usage


def _add_usage(used: dict[str, NanosByResource], node: str, usage: ReservedAmounts, sign: int) -> None:
    """Add a pod's usage to its node's sums, which a publication may be reading; zeros are deleted."""
    sums = _sum_usage(used.get(node, {}), usage, sign)
    if sums:
        used[node] = sums
    else:
        used.pop(node, None)


def _sum_usage(used: NanosByResource, usage: ReservedAmounts, sign: int) -> NanosByResource:
    sums = dict(used)
    for resource, nanos in usage:
        sums[resource] = sums.get(resource, 0) + sign * nanos
    return {resource: nanos for resource, nanos in sums.items() if nanos}


def _with_used(node: Node, used: NanosByResource) -> Node:
    return replace(node, used={resource: Quantity(nanos) for resource, nanos in used.items()})
