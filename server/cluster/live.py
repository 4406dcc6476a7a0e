"""The live cluster: one reflector for each collection, the published view, and its freshness."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from math import inf
from threading import Event, Thread
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.json import encode

from rules_engine.evaluation.nodes.reservations import PodKey, Usage
from rules_engine.evaluation.rule_set.rule_set import ClusterRequirements
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster, Freshness, Node
from rules_engine.model.kubernetes.device_objects import SliceReader
from rules_engine.model.kubernetes.devices import DeviceClass, ResourceSlice
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Decision
from server.cluster.connection import Cause, Connection, api_path
from server.cluster.device_store import Claim
from server.cluster.reading import (
    HeldPod,
    Namespace,
    read_claim,
    read_class,
    read_namespace,
    read_node,
    read_pod,
    read_slice,
)
from server.cluster.reflector import Collection, Reflector, Sink
from server.cluster.source import Health
from server.cluster.store import Store

_log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D", DeviceClass, ResourceSlice, Claim)

PUBLISH_SECONDS = 0.05
"""Interval in which events are batched: a thousand events in a second publish twenty views, not a thousand."""

WATCHES_PER_STALENESS = 3
"""A watch lasts a third of the maximum staleness, so that a half-open connection is detected in time."""

FAILED_PUBLISH_SECONDS = 5.0
"""Pause after a publication that failed by a bug, which may fail again."""

EXPIRY_SECONDS = 1.0
"""Interval between checks for expired reservations."""

STOP_SECONDS = 2.0
"""Timeout for all threads to stop: a watch is interrupted at once, but a list may wait for its page."""

ADOPTION_SECONDS = 20.0
"""Timeout for new rules to wait for the collections that they read."""

MAX_NAMES = 1_000
"""Names of attributes that are kept for classes that exist no more, so that a class may come back without a list."""

NODES = Collection("nodes", api_path("nodes"))
NAMESPACES = Collection("namespaces", api_path("namespaces"))
PODS = Collection(
    "pods",
    api_path("pods"),
    # A pod that finishes leaves this selection, so the watch sends a DELETED event. Pods without a node are included;
    # otherwise the deletion of a pod that was never bound would go unnoticed.
    MappingProxyType({"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}),
)


DEVICE_GROUP = "resource.k8s.io"
DEVICE_CLASSES = Collection("deviceclasses", api_path("deviceclasses", group=DEVICE_GROUP))
RESOURCE_SLICES = Collection("resourceslices", api_path("resourceslices", group=DEVICE_GROUP))
RESOURCE_CLAIMS = Collection("resourceclaims", api_path("resourceclaims", group=DEVICE_GROUP))

ABSENT = (Cause.FORBIDDEN, Cause.MISSING)
"""Causes after which classes of devices count as none: the cluster lacks the API, or the role the right."""


class LiveCluster:
    """ClusterSource of an API server, limited to `needs`; `declared` are nodes that an autoscaler can add."""

    def __init__(
        self,
        connection: Connection,
        needs: ClusterRequirements,
        *,
        max_staleness_seconds: float = 60.0,
        declared: Sequence[Node] = (),
        clock: Callable[[], float] = monotonic,
        stop_seconds: float = STOP_SECONDS,
        **reflector_options: Any,
    ) -> None:
        self._max_staleness_seconds = max_staleness_seconds
        self._stale = (UNKNOWN_CLUSTER, UNKNOWN_CLUSTER)
        """The last view found stale, and its copy marked as stale, so that one view has one copy."""
        self._clock = clock
        self._stop_seconds = stop_seconds
        self._store = Store(declared)
        self._slice_reader = SliceReader()
        self._publishes = True
        """False from a publication that failed until one succeeds."""
        self._publication_began = inf
        """Time at which the publication began that has not ended; infinite if there is none."""
        self._has_classes = Event()
        """Set once there is a DeviceClass."""
        self._stopping = Event()
        self._threads: dict[str, Thread] = {}
        watch_seconds = max_staleness_seconds / WATCHES_PER_STALENESS

        def reflector(collection: Collection, sink: Sink[T]) -> Reflector[T]:
            return Reflector(
                collection, sink, connection, watch_seconds=watch_seconds, clock=clock, **reflector_options
            )

        self._all_reflectors: Mapping[str, Reflector[Any]] = {
            "nodes": reflector(NODES, node_sink(self._store)),
            "pods": reflector(PODS, pod_sink(self._store)),
            "namespaces": reflector(NAMESPACES, namespace_sink(self._store)),
            "deviceclasses": reflector(DEVICE_CLASSES, self._class_sink()),
            "resourceslices": reflector(RESOURCE_SLICES, device_sink(self._store, ResourceSlice, self._read_slice)),
            "resourceclaims": reflector(RESOURCE_CLAIMS, device_sink(self._store, Claim, read_claim)),
        }
        self._device_reflectors = tuple(self._all_reflectors.values())[3:]
        self._reflectors = self._reflectors_for(needs)
        """The reflectors that the view depends on."""

    def start(self) -> None:
        self._run(self._publish, "views")
        for reflector in self._reflectors:
            self._read(reflector)

    def stop(self) -> None:
        self._stopping.set()
        self._has_classes.set()
        self._store.changed.set()
        for reflector in self._all_reflectors.values():
            reflector.stop()
        end = monotonic() + self._stop_seconds
        for thread in self._threads.values():
            thread.join(max(end - monotonic(), 0.0))

    def need(self, needs: ClusterRequirements, seconds: float = ADOPTION_SECONDS) -> bool:
        """Start reading the collections that other rules need. Return True if they are read in time.

        Until then the view stays as it was: it never depends on a collection that was not read. Collections that are no
        longer needed are still read.
        """
        missing = [reflector for reflector in self._reflectors_for(needs) if reflector not in self._reflectors]
        for reflector in missing:
            self._read(reflector)
        synced = self._store.wait_until(
            lambda _: all(reflector.synced or self._is_unused(reflector) for reflector in missing), seconds
        )
        if synced:
            self._reflectors = (*self._reflectors, *missing)
        return synced

    def _is_unused(self, reflector: Reflector[Any]) -> bool:
        """Return True for devices of a cluster without classes, or whose classes the server may not read."""
        classes = self._device_reflectors[0]
        absent = classes.cause in ABSENT
        if reflector not in self._device_reflectors or self._has_classes.is_set():
            return False
        return absent or (classes.synced and reflector is not classes)

    def _reflectors_for(self, needs: ClusterRequirements) -> tuple[Reflector[Any], ...]:
        reflectors = [
            reflector for name, reflector in self._all_reflectors.items() if getattr(needs, name, needs.devices)
        ]
        return tuple(reflectors)

    def raw_cluster(self) -> Cluster:
        """Return the nodes without what drivers offer, and their devices."""
        return self._store.raw_cluster()

    def _class_sink(self) -> Sink[DeviceClass]:
        """Return a sink of classes. A class whose selectors read more of devices than before first needs all slices."""
        store = self._store

        def prepare(classes: Sequence[DeviceClass]) -> None:
            before = self._slice_reader.names
            reader = SliceReader(classes, before if before and len(before) < MAX_NAMES else frozenset())
            if before is not None and reader.names != before:
                self._slice_reader = reader
                self._all_reflectors["resourceslices"].relist()
            if classes:
                self._has_classes.set()

        def replace_all(objects: Iterable[DeviceClass]) -> None:
            classes = list(objects)
            prepare(classes)
            store.replace_devices(DeviceClass, classes)

        def put(new: DeviceClass) -> None:
            prepare((*store.classes, new))
            store.put_device(new)

        return Sink(read_class, replace_all, put, store.remove_device, partial(store.forget_device, DeviceClass))

    def _read_slice(self, raw: Object) -> ResourceSlice:
        return read_slice(raw, self._slice_reader)

    def _read(self, reflector: Reflector[Any]) -> None:
        """Read a collection in a thread of its own; slices and claims once there is a class, as in few clusters."""

        def run() -> None:
            if reflector in self._device_reflectors[1:]:
                self._has_classes.wait()
            reflector.run()

        self._run(run, reflector.name)

    def _run(self, target: Callable[[], None], name: str) -> None:
        if name not in self._threads:
            self._threads[name] = Thread(target=target, name=f"cluster-{name}", daemon=True)
            self._threads[name].start()

    def current(self) -> Cluster:
        # The order matters: the view, read last, is at least as new as the contact times checked before.
        oldest = self._clock() - self._max_staleness_seconds
        is_late = self._publication_began < oldest
        freshness = Freshness.SYNCED if self._publishes and not is_late else Freshness.STALE
        for reflector in self._reflectors:
            if self._is_unused(reflector):
                continue
            if not reflector.synced:
                return UNKNOWN_CLUSTER
            if reflector.contact < oldest:
                freshness = Freshness.STALE
        cluster = self._store.cluster
        if freshness is Freshness.SYNCED:
            return cluster
        seen, stale = self._stale
        if seen is not cluster:
            stale = replace(cluster, freshness=freshness)
            self._stale = (cluster, stale)
        return stale

    @property
    def health(self) -> tuple[Health, ...]:
        """Health of each collection that is read."""
        return tuple(reflector.health for name, reflector in self._all_reflectors.items() if name in self._threads)

    @property
    def problems(self) -> Sequence[str]:
        started = [each for name, each in self._all_reflectors.items() if name in self._threads]
        failures = [each.health.failure for each in started if not self._is_unused(each)]
        return [failure for failure in failures if failure is not None]

    @property
    def absent(self) -> Sequence[str]:
        unread = [each for each in self._reflectors if self._is_unused(each)]
        return [failure for each in unread if (failure := each.health.failure) is not None]

    @property
    def reservations(self) -> int:
        """Number of admitted pods not yet bound to a node."""
        return self._store.reservations

    def pod_usages(self) -> Sequence[tuple[str, str, Usage]]:
        """Return namespace/name, node and usage of each bound pod."""
        return self._store.pod_usages()

    def reserve_devices(self, request: AdmissionRequest, decision: Decision) -> None:
        """Reserve the devices of an admitted pod; not for a dry run, a denial or an operation other than CREATE."""
        pod = self._pod_to_reserve(request, request.object) if decision.allowed else None
        if pod is None:
            return
        uid = text_member(as_mapping(pod.original.get("metadata")), "uid")
        name = pod.name or request.name
        if uid and name:
            key = PodKey(f"{pod.namespace or request.namespace}/{name}", uid)
            self._store.reserve(key, pod, self._clock())

    def begin_call(self, request: AdmissionRequest) -> None:
        if self._may_reserve(request):
            parse = partial(self._pod_to_reserve, request, request.object)
            self._store.begin_call(_call_name(request), partial(_content_digest, request), parse)

    def reserve_call(self, request: AdmissionRequest, decision: Decision) -> None:
        pod = self._pod_to_reserve(request, decision.result) if decision.allowed else None
        if pod is not None:
            key = PodKey(_call_name(request), f"{_content_digest(request)} {request.uid}")
            self._store.reserve_call(key, pod, self._clock())

    def _pod_to_reserve(self, request: AdmissionRequest, pod: Json) -> Pod | None:
        """Return a pod whose devices may be reserved."""
        try:
            return Pod.parse(pod) if self._may_reserve(request) else None
        except PodError:
            return None  # not a pod: pods that cannot be read were denied

    def _may_reserve(self, request: AdmissionRequest) -> bool:
        reads_pods = self._all_reflectors["pods"] in self._reflectors
        return reads_pods and not request.dry_run and request.operation == "CREATE"

    def wait_until(self, holds: Callable[[Cluster], bool], seconds: float) -> bool:
        """Wait for a view that satisfies `holds`. Return True if it came in time."""
        return self._store.wait_until(lambda _: holds(self.current()), seconds)

    def _publish(self) -> None:
        while not self._stopping.is_set():
            self._store.changed.wait(EXPIRY_SECONDS if self._store.expires else None)
            begin = monotonic()
            self._publication_began = self._clock()
            try:
                self._store.expire(self._clock())
                self._store.publish()
                self._publishes, self._publication_began = True, inf
            except Exception:
                # A bug must not end the thread, nor leave an old view that counts as current.
                self._publishes = False
                _log.exception("unexpected error while publishing a view of the cluster")
                self._store.changed.set()
                self._stopping.wait(FAILED_PUBLISH_SECONDS)
            # As long as the publication took: decisions need the interpreter as well.
            self._stopping.wait(max(PUBLISH_SECONDS, monotonic() - begin))


def _call_name(request: AdmissionRequest) -> str:
    """Return the name of a pod before the API server generates it: see `Store.begin_call`."""
    metadata = as_mapping(as_mapping(request.object).get("metadata"))
    name = text_member(metadata, "name") or request.name or text_member(metadata, "generateName")
    return f"{text_member(metadata, 'namespace') or request.namespace}/{name}"


def _content_digest(request: AdmissionRequest) -> str:
    """Return a digest of a pod without the times that the API server sets."""
    pod = as_mapping(request.object)
    metadata = {**as_mapping(pod.get("metadata")), "managedFields": None, "creationTimestamp": None}
    return blake2b(encode((metadata, pod.get("spec"))), digest_size=16).hexdigest()


def device_sink(store: Store, kind: type[D], read: Callable[[Object], D]) -> Sink[D]:
    return Sink(
        read,
        partial(store.replace_devices, kind),
        store.put_device,
        store.remove_device,
        partial(store.forget_device, kind),
    )


def node_sink(store: Store) -> Sink[Node]:
    return Sink(read_node, store.replace_nodes, store.put_node, store.remove_node)


def pod_sink(store: Store) -> Sink[HeldPod]:
    return Sink(read_pod, store.replace_pods, store.put_pod, store.remove_pod)


def namespace_sink(store: Store) -> Sink[Namespace]:
    return Sink(read_namespace, store.replace_namespaces, store.put_namespace, store.remove_namespace)
