"""State of the cluster, updated by watch events and published as immutable values."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from threading import Condition, Event, RLock
from time import monotonic
from typing import NamedTuple

from rules_engine.cel import EvaluationError
from rules_engine.evaluation.nodes import node_index_with_places
from rules_engine.evaluation.nodes.offers import node_predicate
from rules_engine.evaluation.nodes.reservations import (
    LIFETIME_SECONDS,
    MAX_RESERVATIONS,
    PodKey,
    Reservation,
    Reservations,
    Usage,
    device_usage,
)
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.devices import DeviceClass
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity
from server.cluster.device_store import DeviceObject, DeviceStore
from server.cluster.reading import HeldPod, Namespace

_POLL_SECONDS = 0.02


class Store:
    """Nodes, their usage by pods, and namespaces. Safe for use from several threads.

    An event marks the nodes that it changes; `publish` creates a new Cluster, in which only these nodes are rebuilt.
    Readers use the attribute `cluster` without a lock.
    """

    def __init__(self, declared: Sequence[Node] = ()) -> None:
        self._lock = RLock()
        self._published = Condition(self._lock)
        self.changed = Event()
        """Set while changes are unpublished."""
        self._declared = tuple(declared)
        self.cluster = Cluster(nodes=self._declared, namespaces_complete=False)
        self._facts: dict[str, Node] = {}
        self._used: dict[str, Counter[str]] = {}
        self._pods: dict[str, _BoundPod] = {}
        self._namespaces = self.cluster.namespaces
        self._reservations = Reservations(self._hold)
        self._calls = Reservations(self._hold, self._reservations.room)
        """Reservations of pods between /mutate and /validate: see `begin_call`."""
        self._earlier_content: dict[str, str] = {}
        """Digest of a pod when it was sent first, by its digest when it was sent again: webhooks are called twice."""
        self._touched: dict[str, None] = {}
        self._nodes: dict[str, Node] = {}
        self._devices = DeviceStore()

    @property
    def reservations(self) -> int:
        """Number of reservations of pods that /validate admitted."""
        return len(self._reservations)

    @property
    def expires(self) -> bool:
        """True if there are reservations, each of which expires."""
        return bool(self._reservations or self._calls)

    def publish(self, *, devices: bool = True) -> None:
        """Publish all changes so far; without `devices`, not those of classes, slices and claims."""
        with self._lock:
            self.changed.clear()
            if devices:
                self._touched.update(dict.fromkeys(self._devices.update(self._facts)))
            elif self._devices.changed:
                self.changed.set()
            old: dict[str, Node | None] = {}
            self._rebuild(old)
            for reservations in (self._reservations, self._calls):
                reservations.relocate([*old], lambda name: self._rebuild(old).get(name))
            self._rebuild(old)
            if old or self.cluster.namespaces is not self._namespaces:
                nodes = (*self._nodes.values(), *self._declared)
                changes = [(node, self._nodes.get(name)) for name, node in old.items()]
                cluster = self.cluster.changed(nodes, changes, self._namespaces)
                # Only the first view is indexed completely; no decision waits for that.
                node_index_with_places(cluster)
                self.cluster = cluster
                self._published.notify_all()

    def _rebuild(self, old: dict[str, Node | None]) -> Mapping[str, Node]:
        """Build touched nodes anew; `old` gets each changed node as it was. Return the nodes."""
        for name in self._touched:
            before, new = self._nodes.get(name), self._build_node(name)
            if new != before:
                old.setdefault(name, before)
                self._reservations.room.update(name, new)
                if new is None:
                    del self._nodes[name]
                else:
                    self._nodes[name] = new
        self._touched = {}
        return self._nodes

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

    def pod_usages(self) -> Sequence[tuple[str, str, Usage]]:
        """Return namespace/name, node and usage of each bound pod."""
        with self._lock:
            return [(name, pod.node, pod.usage) for name, pod in sorted(self._pods.items())]

    def begin_call(self, name: str, content_digest: Callable[[], str], parse: Callable[[], Pod | None]) -> None:
        """Release what an earlier call of /mutate reserved for a pod, since its decision must not depend on it.

        A pod without a name is not known by it: its key has the generateName, and its uid begins with a digest of the
        pod. Pods of one controller are equal when /mutate is called first, and one that is sent again was changed by
        another webhook: so a call releases one reservation of a pod with other content, unless that is a pod like
        this one that was already sent again.
        """
        with self._lock:
            calls = self._calls.named(name)
            content = content_digest() if calls else ""
            earlier = [
                call
                for call in calls
                if content not in (_content_of(call), self._earlier_content.get(_content_of(call)))
            ]
            pod = parse() if earlier else None
            if pod is None:
                return
            try:
                takes = node_predicate(pod.placement, self.cluster)
            except (PodError, TooLargeError, EvaluationError):
                return
            own = _likely_call(earlier, device_usage(pod.effective_requests()), takes)[0]
            self._earlier_content[content] = _content_of(own)
            self._calls.drop(own.key)
            self.publish(devices=False)

    def reserve_call(self, key: PodKey, pod: Pod, now: float) -> None:
        """Reserve the devices of a pod that /mutate admitted until /validate receives it."""
        self._reserve(self._calls, key, pod, now)

    def reserve(self, key: PodKey, pod: Pod, now: float) -> None:
        """Reserve the devices of a pod that /validate admitted, in place of those of its call of /mutate."""
        self._reserve(self._reservations, key, pod, now)

    def _reserve(self, into: Reservations, key: PodKey, pod: Pod, now: float) -> None:
        """Reserve a pod's devices and publish, so that later decisions do not see them as free.

        A pod that requests no device gets no reservation, nor does a pod that fits on no node: it stays pending and
        holds nothing. The same applies to a pod whose placement is malformed or exceeds a bound.
        """
        demand = device_usage(pod.effective_requests())
        if not demand:
            return
        self.publish(devices=False)
        # Before the lock is taken: slightly older labels and taints suffice for a guess.
        try:
            takes = node_predicate(pod.placement, self.cluster)
        except (PodError, TooLargeError, EvaluationError):
            return
        with self._lock:
            if key in into:
                return
            self.expire(now)
            if into is self._reservations:
                self._end_call(key, pod, demand, takes)
            self.publish(devices=False)
            into.reserve(key, demand, takes, now + LIFETIME_SECONDS)
            self.publish(devices=False)

    def _end_call(self, key: PodKey, pod: Pod, demand: Usage, takes: Callable[[str], bool]) -> None:
        """Release what a pod's call of /mutate reserved; of equal pods, it is the one that chose the same nodes."""
        base = text_member(as_mapping(pod.original.get("metadata")), "generateName")
        calls = self._calls.named(key.name, f"{key.namespace}/{base}")
        for call in _likely_call(calls, demand, takes):
            self._calls.drop(call.key)

    def expire(self, now: float) -> None:
        """Remove expired reservations."""
        with self._lock:
            self._reservations.expire(now)
            self._calls.expire(now)
            if len(self._earlier_content) > MAX_RESERVATIONS:
                self._earlier_content.clear()

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        facts = {node.name: node for node in nodes}
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

    def replace_pods(self, pods: Iterable[HeldPod]) -> None:
        bound: dict[str, _BoundPod] = {}
        seen = []
        for pod in pods:
            if pod.node:
                bound[pod.key.name] = _BoundPod(pod.node, _intern_usage(pod.usage))
            # A reservation made meanwhile is for a pod newer than this list.
            if (pod.node or pod.finished) and pod.key in self._reservations:
                seen.append(pod.key)
        used: dict[str, Counter[str]] = {}
        for held in bound.values():
            _add_usage(used, held.node, held.usage, 1)
        with self._lock:
            for key in seen:
                self._reservations.drop(key)
            self._touch(used.keys() | self._used.keys())
            self._pods, self._used = bound, used
            for reservation in (*self._reservations, *self._calls):
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
            new = None if gone or not pod.node else _BoundPod(pod.node, _intern_usage(pod.usage))
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

    def replace_devices(self, kind: type[DeviceObject], objects: Iterable[DeviceObject]) -> None:
        values = list(objects)
        with self._lock:
            self._devices.replace(kind, values)
            self.publish()

    def put_device(self, new: DeviceObject) -> None:
        with self._lock:
            self._devices.put(new)
            self.changed.set()

    def forget_device(self, kind: type[DeviceObject], raw: Object) -> None:
        """Remove a class or slice that cannot be read, or a claim, by the object's name."""
        metadata = as_mapping(raw.get("metadata"))
        name, namespace = text_member(metadata, "name"), text_member(metadata, "namespace")
        with self._lock:
            self._devices.forget(kind, f"{namespace}/{name}" if namespace else name)
            self.changed.set()

    def remove_device(self, old: DeviceObject) -> None:
        with self._lock:
            self._devices.remove(old)
            self.changed.set()

    @property
    def classes(self) -> Sequence[DeviceClass]:
        """The DeviceClasses, published or not."""
        with self._lock:
            return self._devices.classes

    def raw_cluster(self) -> Cluster:
        """Return the nodes without what drivers offer, and their devices."""
        with self._lock:
            return replace(self.cluster, nodes=(*self._facts.values(), *self._declared), devices=self._devices.devices)

    def _hold(self, node: str, usage: Usage, sign: int) -> None:
        _add_usage(self._used, node, usage, sign)
        self._touch((node,))

    def _touch(self, names: Iterable[str]) -> None:
        self._touched.update(dict.fromkeys(names))
        self.changed.set()

    def _build_node(self, name: str) -> Node | None:
        """Return a node with its usage, or None if it does not exist."""
        node = self._facts.get(name)
        used = self._used.get(name)
        if node is None:
            return None
        if used:
            node = replace(node, used={resource: Quantity(nanos) for resource, nanos in used.items() if nanos})
        return self._devices.offered(node)


def _content_of(call: Reservation) -> str:
    """Return the digest of a pod's content, with which the uid of its call begins."""
    return call.key.uid.partition(" ")[0]


def _likely_call(calls: Sequence[Reservation], demand: Usage, takes: Callable[[str], bool]) -> Sequence[Reservation]:
    """Return the oldest call that chose the same nodes as a pod, else the oldest; none if there are no calls."""
    return ([each for each in calls if each.usage == demand and takes(each.node)] or calls)[:1]


class _BoundPod(NamedTuple):
    """Node and usage of a bound pod."""

    node: str
    usage: Usage


@lru_cache(maxsize=4096)  # pods have the same few sizes
def _intern_usage(usage: Usage) -> Usage:
    return usage


def _add_usage(used: dict[str, Counter[str]], node: str, usage: Usage, sign: int) -> None:
    """Add a pod's usage to its node's sums; zeros are deleted."""
    sums = used.setdefault(node, Counter())
    for resource, nanos in usage:
        sums[resource] += sign * nanos
        if not sums[resource]:
            del sums[resource]
    if not sums:
        del used[node]
