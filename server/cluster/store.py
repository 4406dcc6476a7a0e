"""What is known of the cluster, kept up event by event, and published as a value that never changes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from threading import Condition, Event, RLock
from time import monotonic
from typing import NamedTuple

from rules_engine.cel import EvaluationError
from rules_engine.evaluation.nodes import placed_index_of
from rules_engine.evaluation.nodes.offers import nodes_for
from rules_engine.model.cluster import Change, Cluster, Node
from rules_engine.model.json.strict import PodError
from rules_engine.model.pod import Pod
from rules_engine.model.quantity import Quantity
from server.cluster.reading import (
    HeldPod,
    Namespace,
    PodKey,
    Usage,
    devices,
)
from server.cluster.reservations import LIFETIME_SECONDS, Reservation, Reservations, Room

_LOOK_SECONDS = 0.02


class Store:
    """Nodes, what pods hold of them, and namespaces. Its methods may be called from any thread.

    An event marks the nodes that it touches; `publish` makes a new Cluster, in which only these nodes are new. A
    reader takes `cluster`, which is an attribute, and waits for nobody.
    """

    def __init__(self, declared: Sequence[Node] = ()) -> None:
        self._lock = RLock()
        self._published = Condition(self._lock)
        self.changed = Event()
        """Set while there is something to publish."""
        self._declared = tuple(declared)
        self.cluster = Cluster(nodes=self._declared, namespaces_complete=False)
        self._facts: dict[str, Node] = {}
        self._used: dict[str, Counter[str]] = {}
        self._pods: dict[str, _Held] = {}
        self._namespaces = self.cluster.namespaces
        self._reservations = Reservations()
        self._touched: dict[str, None] = {}
        self._nodes: dict[str, Node] = {}
        self._room = Room()

    @property
    def reservations(self) -> int:
        """How many promises stand."""
        return len(self._reservations)

    def publish(self) -> None:
        """Make everything so far visible to readers."""
        with self._lock:
            self.changed.clear()
            changes: list[Change] = []
            for name in self._touched:
                old, new = self._nodes.get(name), self._built(name)
                if new == old:
                    continue
                changes.append((old, new))
                self._room.update(name, new)
                if new is None:
                    del self._nodes[name]
                else:
                    self._nodes[name] = new
            self._touched = {}
            if changes or self.cluster.namespaces is not self._namespaces:
                nodes = (*self._nodes.values(), *self._declared)
                cluster = self.cluster.changed(nodes, changes, self._namespaces)
                # Only the first view is indexed whole; no decision waits for it.
                placed_index_of(cluster)
                self.cluster = cluster
                self._published.notify_all()

    def wait_until(self, holds: Callable[[Cluster], bool], seconds: float) -> bool:
        """Wait for a published cluster of which something holds; what else `holds` reads is looked at now and then."""
        end = monotonic() + seconds
        with self._published:
            while not holds(self.cluster):
                left = end - monotonic()
                if left <= 0:
                    return False
                self._published.wait(min(left, _LOOK_SECONDS))
            return True

    def held(self) -> Sequence[tuple[str, str, Usage]]:
        """Every pod that holds something: namespace/name, node and what."""
        with self._lock:
            return [(name, held.node, held.usage) for name, held in sorted(self._pods.items())]

    def reserve(self, key: PodKey, pod: Pod, now: float) -> None:
        """Promise the pod's devices to it, and publish: what is asked from now on does not see them free.

        Nothing is kept for a pod that asks for no device, or that no node has room for: it will wait, and holds
        nothing while it does. The same goes for a pod whose placement is malformed or larger than what is read of it.
        """
        demand = devices(pod)
        if not demand:
            return
        self.publish()
        # Before the lock is taken: labels and taints as of a moment ago will do for what is a guess.
        try:
            takes = nodes_for(pod, self.cluster)
        except (PodError, EvaluationError):
            return
        with self._lock:
            if key in self._reservations:
                return
            self.expire(now)
            self.publish()
            node = self._room.tightest(demand, lambda name: takes(name) and _is_open(self._nodes[name]))
            if node is None:
                return
            reservation = Reservation(key=key, node=node, usage=demand, expires=now + LIFETIME_SECONDS)
            gave_way = self._reservations.add(reservation)
            self._hold(node, demand, 1)
            if gave_way is not None:
                self._hold(gave_way.node, gave_way.usage, -1)
            self.publish()

    def expire(self, now: float) -> None:
        """End the promises whose time has come."""
        with self._lock:
            for reservation in self._reservations.expire(now):
                self._hold(reservation.node, reservation.usage, -1)

    def replace_nodes(self, found: Iterable[Node]) -> None:
        facts = {node.name: node for node in found}
        with self._lock:
            self._touch(facts.keys() | self._facts.keys())
            self._facts = facts
            self.publish()

    def put_node(self, node: Node) -> None:
        self._set_node(node.name, node)

    def remove_node(self, node: Node) -> None:
        self._set_node(node.name, None)

    def _set_node(self, name: str, node: Node | None) -> None:
        with self._lock:
            # Most events of a node are heartbeats.
            if self._facts.get(name) != node:
                if node is None:
                    del self._facts[name]
                else:
                    self._facts[name] = node
                self._touch((name,))

    def replace_pods(self, found: Iterable[HeldPod]) -> None:
        pods: dict[str, _Held] = {}
        seen = []
        for pod in found:
            if pod.node:
                pods[pod.key.name] = _Held(pod.node, _shared(pod.usage))
            # A promise that is made meanwhile is for a pod that this list is too old to have.
            if (pod.node or pod.finished) and pod.key in self._reservations:
                seen.append(pod.key)
        used: dict[str, Counter[str]] = {}
        for held in pods.values():
            _add(used, held.node, held.usage, 1)
        with self._lock:
            for key in seen:
                self._reservations.drop(key)
            self._touch(used.keys() | self._used.keys())
            self._pods, self._used = pods, used
            for reservation in self._reservations:
                self._hold(reservation.node, reservation.usage, 1)
            self.publish()

    def put_pod(self, pod: HeldPod) -> None:
        self._set_pod(pod, gone=False)

    def remove_pod(self, pod: HeldPod) -> None:
        self._set_pod(pod, gone=True)

    def _set_pod(self, pod: HeldPod, *, gone: bool) -> None:
        with self._lock:
            name = pod.key.name
            old = self._pods.get(name)
            new = None if gone or not pod.node else _Held(pod.node, _shared(pod.usage))
            if new is not None:
                self._pods[name] = new
            else:
                self._pods.pop(name, None)
            if new != old:
                if old is not None:
                    self._hold(old.node, old.usage, -1)
                if new is not None:
                    self._hold(new.node, new.usage, 1)
            # Bound, gone or finished; while it waits for a node its devices stay promised.
            if new is not None or gone or pod.finished:
                reservation = self._reservations.drop(pod.key)
                if reservation is not None:
                    self._hold(reservation.node, reservation.usage, -1)

    def replace_namespaces(self, found: Iterable[Namespace]) -> None:
        namespaces = {namespace.name: namespace.labels for namespace in found}
        with self._lock:
            self._namespaces = namespaces
            self.publish()

    def put_namespace(self, namespace: Namespace) -> None:
        self._set_namespace(namespace.name, namespace.labels)

    def remove_namespace(self, namespace: Namespace) -> None:
        self._set_namespace(namespace.name, None)

    def _set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        with self._lock:
            if self._namespaces.get(name) != labels:
                others = {other: kept for other, kept in self._namespaces.items() if other != name}
                self._namespaces = others if labels is None else {**others, name: labels}
                self.changed.set()

    def _hold(self, node: str, usage: Usage, sign: int) -> None:
        _add(self._used, node, usage, sign)
        self._touch((node,))

    def _touch(self, names: Iterable[str]) -> None:
        self._touched.update(dict.fromkeys(names))
        self.changed.set()

    def _built(self, name: str) -> Node | None:
        """A node with what is in use on it; None where it is not there."""
        node = self._facts.get(name)
        used = self._used.get(name)
        if node is None or not used:
            return node
        return replace(node, used={resource: Quantity(nanos) for resource, nanos in used.items() if nanos})


class _Held(NamedTuple):
    """What a pod holds, on which node."""

    node: str
    usage: Usage


@lru_cache(maxsize=4096)  # pods come in the same few sizes
def _shared(usage: Usage) -> Usage:
    return usage


def _add(used: dict[str, Counter[str]], node: str, usage: Usage, sign: int) -> None:
    """Add what a pod holds to its node's sums; what comes to nothing is not kept."""
    sums = used.setdefault(node, Counter())
    for resource, nanos in usage:
        sums[resource] += sign * nanos
        if not sums[resource]:
            del sums[resource]
    if not sums:
        del used[node]


def _is_open(node: Node) -> bool:
    """Whether the scheduler puts any pod there."""
    return node.ready and not node.unschedulable
