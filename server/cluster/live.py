"""The live cluster: one reflector for each collection, the published view, and its freshness."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from secrets import token_hex
from threading import Event, Thread
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import structs

from rules_engine.cluster.nodes.offers import Reach
from rules_engine.cluster.nodes.reservations import PodKey, device_usage
from rules_engine.language.cel import Budget, EvaluationError
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import (
    UNKNOWN_CLUSTER,
    Cluster,
    Freshness,
    Node,
    read_priority_class,
    read_runtime_class,
)
from rules_engine.model.kubernetes.device_objects import DEVICE_GROUP, SliceReader
from rules_engine.model.kubernetes.devices import Claim, DeviceClass, DeviceTaintRule, ResourceSlice
from rules_engine.model.kubernetes.kept_fields import RESERVATION
from rules_engine.model.kubernetes.native_objects import annotation_of
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Decision
from rules_engine.rules.rule_set.rule_set import ClusterRequirements
from rules_engine.server.cluster.connection import Cause, Connection, api_path
from rules_engine.server.cluster.device_store import ClaimTemplate, DeviceStore
from rules_engine.server.cluster.reading import (
    read_claim,
    read_claim_template,
    read_class,
    read_namespace,
    read_node,
    read_pod,
    read_slice,
    read_taint_rule,
)
from rules_engine.server.cluster.reflector import Collection, Reflector, Sink
from rules_engine.server.cluster.source import Health
from rules_engine.server.cluster.store import Store

_log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D", DeviceClass, ResourceSlice, Claim, ClaimTemplate, DeviceTaintRule)

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

NODES = Collection("nodes", api_path("nodes"))
NAMESPACES = Collection("namespaces", api_path("namespaces"))
PODS = Collection(
    "pods",
    api_path("pods"),
    # A pod that finishes leaves this selection, so the watch sends a DELETED event. Pods without a node are included;
    # otherwise the deletion of a pod that was never bound would go unnoticed.
    MappingProxyType({"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}),
)


DEVICE_CLASSES = Collection("deviceclasses", api_path("deviceclasses", group=DEVICE_GROUP))
RESOURCE_SLICES = Collection("resourceslices", api_path("resourceslices", group=DEVICE_GROUP))
RESOURCE_CLAIMS = Collection("resourceclaims", api_path("resourceclaims", group=DEVICE_GROUP))
CLAIM_TEMPLATES = Collection("resourceclaimtemplates", api_path("resourceclaimtemplates", group=DEVICE_GROUP))
DEVICE_TAINT_RULES = Collection(
    "devicetaintrules",
    api_path("devicetaintrules", group=DEVICE_GROUP),
    older=tuple(api_path("devicetaintrules", group=DEVICE_GROUP, version=each) for each in ("v1beta2", "v1alpha3")),
)

PRIORITY_CLASSES = Collection("priorityclasses", api_path("priorityclasses", group="scheduling.k8s.io"))
RUNTIME_CLASSES = Collection("runtimeclasses", api_path("runtimeclasses", group="node.k8s.io"))

ABSENT = (Cause.FORBIDDEN, Cause.MISSING)
"""Causes after which the server is ready without the devices of drivers, and without the classes of pods. They are then
unknown; but if the API of devices is missing, there are none."""


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
        self._marked = (UNKNOWN_CLUSTER, UNKNOWN_CLUSTER)
        """The last view that was marked as stale or partly unread, and its marked copy, so that one view has one."""
        self._clock = clock
        self._stop_seconds = stop_seconds
        self._store = Store(declared, self._follow_classes)
        self._slice_reader = self._wanted_reader = self._store.devices.next_reader
        """The reader of slices, and the one that all classes need."""
        self._publishes = True
        """False from a publication that failed until one succeeds."""
        self._publication_began = inf
        """Time at which the publication began that has not ended; infinite if there is none."""
        self._is_complete = False
        """True once every collection was read that the view needs."""
        self._has_classes = Event()
        """Set once there is a DeviceClass."""
        self._stopping = Event()
        self._threads: dict[str, Thread] = {}
        watch_seconds = max_staleness_seconds / WATCHES_PER_STALENESS

        def reflector(collection: Collection, sink: Sink[T]) -> Reflector[T]:
            return Reflector(
                collection, sink, connection, watch_seconds=watch_seconds, clock=clock, **reflector_options
            )

        def class_sink(read: Callable[[Object], tuple[str, Any]], member: str) -> Sink[tuple[str, Any]]:
            return object_sink(read, partial(store.replace_classes, member), partial(store.set_class, member))

        store = self._store
        slices = device_sink(store, ResourceSlice, lambda raw: read_slice(raw, self._slice_reader), self._begin_slices)
        self._all_reflectors: Mapping[str, Reflector[Any]] = {
            "nodes": reflector(NODES, object_sink(read_node, store.replace_nodes, store.set_node)),
            "pods": reflector(PODS, object_sink(read_pod, store.replace_pods, store.set_pod)),
            "namespaces": reflector(
                NAMESPACES, object_sink(read_namespace, store.replace_namespaces, store.set_namespace)
            ),
            "deviceclasses": reflector(DEVICE_CLASSES, device_sink(store, DeviceClass, read_class)),
            "resourceslices": reflector(RESOURCE_SLICES, slices),
            "resourceclaims": reflector(RESOURCE_CLAIMS, device_sink(store, Claim, read_claim)),
            "devicetaintrules": reflector(DEVICE_TAINT_RULES, device_sink(store, DeviceTaintRule, read_taint_rule)),
            "resourceclaimtemplates": reflector(
                CLAIM_TEMPLATES, device_sink(store, ClaimTemplate, read_claim_template)
            ),
            "priorityclasses": reflector(PRIORITY_CLASSES, class_sink(read_priority_class, "priority")),
            "runtimeclasses": reflector(RUNTIME_CLASSES, class_sink(read_runtime_class, "runtime")),
        }
        self._optional_reflectors = tuple(self._all_reflectors.values())[3:]
        self._device_reflectors = self._optional_reflectors[:5]
        self._class_reflectors = dict(zip(("priority", "runtime"), self._optional_reflectors[5:], strict=True))
        """By their members of Classes."""
        self._reflectors = self._reflectors_for(needs)
        """The reflectors that the view depends on."""

    def start(self) -> None:
        self._run(self._publish, "views")
        for reflector in self._reflectors:
            self._read(reflector)

    def stop(self) -> None:
        self._stopping.set()
        # Wake the threads that wait for a class or for changes, so that they end.
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
        synced = self._store.wait_until(lambda _: all(map(self._is_read, missing)), seconds)
        if synced:
            self._reflectors = (*self._reflectors, *missing)
        return synced

    def _is_read(self, reflector: Reflector[Any]) -> bool:
        """Return True if a collection was read, or is optional and need not, or cannot, be read."""
        if reflector.synced or reflector not in self._optional_reflectors:
            return reflector.synced
        classes, *others = self._device_reflectors
        if reflector not in others or reflector.cause in ABSENT:
            return reflector.cause in ABSENT
        # Without a class, nobody reads the others.
        return self._is_read(classes) and not self._has_classes.is_set()

    def _reflectors_for(self, needs: ClusterRequirements) -> tuple[Reflector[Any], ...]:
        devices = dict.fromkeys(self._device_reflectors, needs.devices)
        needed = {**devices, **dict.fromkeys(self._class_reflectors.values(), needs.classes)}
        return tuple(each for name, each in self._all_reflectors.items() if getattr(needs, name, needed.get(each)))

    def _follow_classes(self) -> None:
        """Read the others once a class exists; list slices again for a class that selects by more attributes."""
        devices = self._store.devices
        if devices.next_reader is not self._wanted_reader:
            self._wanted_reader = devices.next_reader
            self._all_reflectors["resourceslices"].relist()
        if devices.resources:
            self._has_classes.set()

    def _begin_slices(self) -> SliceReader:
        """Return the reader for a new list of slices: it keeps all that classes select by at this moment."""
        self._slice_reader = self._store.devices.next_reader
        return self._slice_reader

    def _read(self, reflector: Reflector[Any]) -> None:
        """Start the reflector's thread; those of devices only once a DeviceClass exists."""

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
        return self._view(lambda: self._store.cluster)

    def view_for(self, request: AdmissionRequest) -> Cluster:
        key, now = _call_key(request), self._clock()
        if not (self._may_reserve(request) and self._store.holds(key, now)):
            return self.current()
        return self._view(lambda: self._store.without(key))

    def _view(self, newest: Callable[[], Cluster]) -> Cluster:
        # The order matters: the view, read last, is at least as new as the contact times checked before.
        self._is_complete = self._is_complete or all(map(self._is_read, self._reflectors))
        if not self._is_complete:
            return UNKNOWN_CLUSTER
        oldest = self._clock() - self._max_staleness_seconds
        is_late = self._publication_began < oldest or any(
            each.contact < oldest for each in self._reflectors if each not in self._optional_reflectors
        )
        freshness = Freshness.SYNCED if self._publishes and not is_late else Freshness.STALE
        unread = self._unread_resources(oldest)
        old_devices = {
            each.name: "" for each in self._device_reflectors if each in self._reflectors and each.contact < oldest
        }
        old_classes = {member: None for member, each in self._class_reflectors.items() if each.contact < oldest}
        cluster = newest()
        classes = replace(cluster.classes, **old_classes)
        if freshness is Freshness.SYNCED and not (unread or old_devices) and classes == cluster.classes:
            return cluster
        seen, marked = self._marked
        before = marked.freshness, marked.unread, marked.classes, marked.devices.unread
        if seen is not cluster or before != (freshness, unread, classes, old_devices):
            devices = structs.replace(cluster.devices, unread=old_devices)
            marked = cluster.marked(freshness, unread, classes, devices)
            self._marked = (cluster, marked)
        return marked

    def _unread_resources(self, oldest: float) -> frozenset[str]:
        """Return the resources whose offers by drivers were last confirmed before `oldest`; "" stands for all."""
        # Nodes offer nothing by templates.
        classes, *others, _ = self._device_reflectors
        # An API server without this API has no devices of drivers.
        if classes not in self._reflectors or (classes.cause is Cause.MISSING and not classes.synced):
            return frozenset()
        if classes.contact < oldest:
            return frozenset([""])
        is_old = any(each.contact < oldest for each in others)
        return self._store.devices.resources if is_old else frozenset()

    @property
    def health(self) -> tuple[Health, ...]:
        """Health of each collection that is read."""
        return tuple(reflector.health for name, reflector in self._all_reflectors.items() if name in self._threads)

    @property
    def problems(self) -> Sequence[str]:
        started = [each for name, each in self._all_reflectors.items() if name in self._threads]
        serious = [each for each in started if each not in self._optional_reflectors or not self._is_read(each)]
        return [failure for each in serious if (failure := each.health.failure) is not None]

    @property
    def absent(self) -> Sequence[str]:
        optional = [each for each in self._optional_reflectors if each in self._reflectors]
        return [failure for each in optional if (failure := each.health.failure) is not None]

    @property
    def reservations(self) -> int:
        """Number of decided pods with reserved devices, not yet bound to a node."""
        return self._store.reservations

    def reserve(
        self, request: AdmissionRequest, decision: Decision, budget: Callable[[], Budget], *, created: bool
    ) -> str | None:
        if not (decision.allowed and self._may_reserve(request)):
            return ""
        key, now = _call_key(request), self._clock()
        if created:
            # The pod is final: its reservation gets the key by which the watch of pods finds it.
            call, key = key, _pod_key(request)
            if not key.uid or self._store.rename(call, key, now):
                return ""
        elif not self._store.holds(key, now):
            # A reinvocation keeps the id that the pod already has.
            key = PodKey(key.name, token_hex(8))
        try:
            if decision.context is None:
                pod = Pod.parse(decision.result)
                reach = Reach(pod, self.current())
            else:
                context = decision.context()
                pod, reach = context.pod, context.reach
            demand = device_usage(pod.effective_requests())
            if not demand:
                return ""
            nodes = reach.nodes(budget())
        except (PodError, EvaluationError):
            return ""  # not a pod, or one whose placement is malformed or takes too long
        is_reserved = self._store.reserve(key, demand, nodes, now)
        return "" if created else key.uid if is_reserved else None

    def _may_reserve(self, request: AdmissionRequest) -> bool:
        reads_pods = self._all_reflectors["pods"] in self._reflectors
        return reads_pods and request.is_pod and not request.dry_run and request.operation == "CREATE"

    def wait_until(self, holds: Callable[[Cluster], bool], seconds: float) -> bool:
        """Wait for a view that satisfies `holds`. Return True if it came in time."""
        return self._store.wait_until(lambda _: holds(self.current()), seconds)

    def _publish(self) -> None:
        while not self._stopping.is_set():
            # Reservations expire without an event.
            self._store.changed.wait(EXPIRY_SECONDS if self._store.reservations else None)
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
            # Pause for as long as the publication took: decisions need the interpreter as well.
            self._stopping.wait(max(PUBLISH_SECONDS, monotonic() - begin))


def _call_key(request: AdmissionRequest) -> PodKey:
    """Return the key of a reservation between /mutate and /validate: namespace, caller, and the id in the pod."""
    caller = text_member(as_mapping(request.raw.get("userInfo")), "username")
    # No pod's name begins with "@".
    return PodKey(f"{request.namespace}/@{caller}", annotation_of(as_mapping(request.object), RESERVATION))


def _pod_key(request: AdmissionRequest) -> PodKey:
    """Return the key of a pod with its name and its uid; a pod without a uid is not created yet."""
    metadata = as_mapping(as_mapping(request.object).get("metadata"))
    name = text_member(metadata, "name") or request.name
    namespace = text_member(metadata, "namespace") or request.namespace
    return PodKey(f"{namespace}/{name}", text_member(metadata, "uid") if name else "")


def device_sink(
    store: Store, kind: type[D], read: Callable[[Object], D], begin: Callable[[], SliceReader | None] = lambda: None
) -> Sink[D]:
    """Return a sink of objects of one kind; `begin` returns the reader for a new list of slices."""
    change = store.change_devices

    def replace_all(objects: Iterable[D]) -> None:
        reader = begin()
        change(DeviceStore.replace, kind, list(objects), reader)
        store.publish()

    return Sink(
        read,
        replace_all,
        partial(change, DeviceStore.put),
        partial(change, DeviceStore.remove),
        partial(change, DeviceStore.forget, kind),
    )


def object_sink(
    read: Callable[[Object], T], replace: Callable[[Iterable[T]], None], put: Callable[..., None]
) -> Sink[T]:
    """Return a sink of objects that `put` removes if they are `gone`."""
    return Sink(read, replace, put, partial(put, gone=True))
