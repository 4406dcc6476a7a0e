"""Objects of a cluster as its API returns them, with the indexes that a diagnosis needs."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, wraps
from marshal import dumps
from typing import TypeVar, cast

from msgspec import structs

from rules_engine.model.json.lenient import (
    Object,
    as_mapping,
    as_string_map,
    controller_reference,
    object_items,
    text_member,
)
from rules_engine.model.json.patch import EMPTY, Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import CLASS_KINDS, Classes, Cluster, Freshness, Node, read_classes
from rules_engine.model.kubernetes.device_objects import CLAIM_KINDS, DEVICE_KINDS, read_devices
from rules_engine.model.kubernetes.devices import Devices
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.native_objects import GROUP, OFFERS, OFFERS_RESOURCE
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ApiKind:
    """A kind of objects: its resource name, as in `kubectl get`, its API group, "": core, and its version.

    `diagnosed`: a diagnosis reads it. `namespaced`: its objects are in namespaces. `optional`: only some clusters have
    its API; it is read in any version, and an input without it counts as one without objects.
    """

    resource: str
    group: str = ""
    version: str = "v1"
    diagnosed: bool = True
    namespaced: bool = True
    optional: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


PRIORITY_CLASS = "PriorityClass"

ADMISSION_POLICIES: Mapping[str, str] = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
"""Kinds of the API server's own policies, with their resource names. Those that change pods are v1 since 1.36."""

FINDINGS = "gpu-rules-doctor"
"""The source of the Events of findings, which are not read: they would be findings themselves."""

POD_GROUPS: Mapping[str, ApiKind] = {
    f"PodGroup.{group}": ApiKind(f"podgroups.{group}", group, version, optional=True)
    for group, version in (
        ("scheduling.volcano.sh", "v1beta1"),
        ("scheduling.run.ai", "v2alpha2"),  # of KAI
        ("scheduling.x-k8s.io", "v1alpha1"),  # of the scheduler plugin coscheduling
    )
}
"""The kinds named PodGroup, of several schedulers."""

AUTOSCALER_STATUS = "ConfigMap.cluster-autoscaler-status"
"""The kind of the only ConfigMap that is read: others may be secret."""

STATUS_NAME = ObjectName("ConfigMap", "cluster-autoscaler-status", "kube-system")
"""The name of this ConfigMap, unless the cluster-autoscaler has the option --status-config-map-name or --namespace."""

API_KINDS: Mapping[str, ApiKind] = {
    "Node": ApiKind("nodes", namespaced=False),
    "Pod": ApiKind("pods"),
    "Event": ApiKind("events"),
    "DaemonSet": ApiKind("daemonsets", "apps"),
    "ReplicaSet": ApiKind("replicasets", "apps"),
    "StatefulSet": ApiKind("statefulsets", "apps"),
    "Job": ApiKind("jobs", "batch"),
    "PersistentVolumeClaim": ApiKind("persistentvolumeclaims"),
    "RuntimeClass": ApiKind("runtimeclasses", "node.k8s.io", namespaced=False),
    "ResourceQuota": ApiKind("resourcequotas"),
    "ResourceClaimTemplate": ApiKind("resourceclaimtemplates", "resource.k8s.io"),
    "DeviceClass": ApiKind("deviceclasses", "resource.k8s.io", namespaced=False),
    "ResourceSlice": ApiKind("resourceslices", "resource.k8s.io", namespaced=False),
    "ResourceClaim": ApiKind("resourceclaims", "resource.k8s.io"),
    "DeviceTaintRule": ApiKind("devicetaintrules", "resource.k8s.io", namespaced=False, optional=True),
    "Namespace": ApiKind("namespaces", namespaced=False),
    OFFERS: ApiKind(OFFERS_RESOURCE, GROUP, namespaced=False, optional=True),
    "Workload": ApiKind("workloads.kueue.x-k8s.io", "kueue.x-k8s.io", "v1beta2", optional=True),
    **POD_GROUPS,
    "NodePool": ApiKind("nodepools.karpenter.sh", "karpenter.sh", namespaced=False, optional=True),
    AUTOSCALER_STATUS: ApiKind("configmaps", namespaced=False, optional=True),
    PRIORITY_CLASS: ApiKind("priorityclasses", "scheduling.k8s.io", diagnosed=False, namespaced=False),
    "LimitRange": ApiKind("limitranges", diagnosed=False),
    "PersistentVolume": ApiKind("persistentvolumes", namespaced=False),
    "ReplicationController": ApiKind("replicationcontrollers", diagnosed=False),
    "ControllerRevision": ApiKind("controllerrevisions", "apps", diagnosed=False),
    "PodDisruptionBudget": ApiKind("poddisruptionbudgets", "policy", diagnosed=False),
    "ServiceAccount": ApiKind("serviceaccounts", diagnosed=False),
    "StorageClass": ApiKind("storageclasses", "storage.k8s.io", namespaced=False),
    **{
        kind: ApiKind(resource, "admissionregistration.k8s.io", diagnosed=False, namespaced=False)
        for kind, resource in ADMISSION_POLICIES.items()
    },
}
"""The kinds that commands read of a cluster. After a dot, a key has what tells the kind from others of its name."""

DIAGNOSED_RESOURCES: Mapping[str, str] = {kind: each.resource for kind, each in API_KINDS.items() if each.diagnosed}
"""The kinds that a diagnosis reads, with their resource names."""

API_RESOURCES: Mapping[str, str] = {k: name for k, name in DIAGNOSED_RESOURCES.items() if not API_KINDS[k].optional}
"""The same without the kinds that only some clusters have."""


def plain_kind(kind: str) -> str:
    """Return the kind that objects of a key of API_KINDS name."""
    return kind.partition(".")[0]


class ApiObject(dict[str, Json]):
    """An object of the API, reduced to the members that a diagnosis reads; `cluster` has the other objects."""

    __slots__ = ("cluster",)
    cluster: "ClusterObjects"

    @property
    def metadata(self) -> Object:
        return as_mapping(self.get("metadata"))

    @property
    def spec(self) -> Object:
        return as_mapping(self.get("spec"))

    @property
    def status(self) -> Object:
        return as_mapping(self.get("status"))

    def condition(self, kind: str) -> Object:
        """Return the condition of a type, else an empty one."""
        conditions = object_items(self.status.get("conditions"))
        return next((condition for condition in conditions if condition.get("type") == kind), {})

    @property
    def name(self) -> str:
        return text_member(self.metadata, "name")

    @property
    def namespace(self) -> str:
        return text_member(self.metadata, "namespace")

    @property
    def object_name(self) -> ObjectName:
        return ObjectName(text_member(self, "kind"), self.name, self.namespace)


class NodeObject(ApiObject):
    """A Node."""

    __slots__ = ()


class PodObject(ApiObject):
    """A Pod."""

    __slots__ = ()

    @property
    def node_name(self) -> str:
        return text_member(self.spec, "nodeName")


class DaemonSetObject(ApiObject):
    """A DaemonSet."""

    __slots__ = ()


OBJECT_CLASSES: Mapping[str, type[ApiObject]] = {"Node": NodeObject, "Pod": PodObject, "DaemonSet": DaemonSetObject}
"""The classes of the kinds that have functions of their own in CEL; objects of other kinds are ApiObjects."""


def involved_object(event: Object) -> ObjectName:
    """Return the name of the object that an Event is about. Nodes have no namespace, but some programs write one."""
    involved = as_mapping(event.get("involvedObject"))
    kind = text_member(involved, "kind")
    return ObjectName(kind, text_member(involved, "name"), "" if kind == "Node" else text_member(involved, "namespace"))


def component_of(event: Object) -> str:
    """Return the component that sent an Event."""
    return text_member(as_mapping(event.get("source")), "component") or text_member(event, "reportingComponent")


def owner_name(reference: Object, item: ApiObject) -> ObjectName:
    """Return the name in an owner reference of an object."""
    return ObjectName(text_member(reference, "kind"), text_member(reference, "name"), item.namespace)


class ClusterObjects:
    """The objects of a cluster at one moment; they never change. Indexes are built on first use.

    `absent`: the kinds that were not read, unlike kinds without objects. `partial`: the kinds of which only the objects
    in one namespace were read, with its name, or "" for some namespaces. `now`: the time from which ages are counted;
    None: the newest time of the objects. `declared`: nodes that do not exist yet, but an autoscaler can add. `plugins`:
    optional admission plugins of the API server that are known to be on.
    """

    def __init__(
        self,
        by_kind: Mapping[str, Iterable[dict[str, Json]]],
        *,
        absent: frozenset[str] = frozenset(),
        partial: Mapping[str, str] = EMPTY,
        now: datetime | None = None,
        declared: tuple[Node, ...] = (),
        plugins: frozenset[str] = frozenset(),
    ) -> None:
        self.absent = absent
        self.partial = partial
        self._now = now
        self.declared = declared
        self.plugins = plugins
        self._malformed: list[str] = []
        self.requests: dict[bytes, Mapping[str, int]] = {}
        """Cache of requests_of: the members that it reads, encoded, and the result."""
        self.views: dict[str, object] = {}
        """Values that other layers compute from the objects, by name; they live as long as the objects."""
        self._by_name: dict[str, Mapping[tuple[str, str], ApiObject]] = {}
        """The objects of kinds by namespace and name."""
        self._by_kind: dict[str, tuple[ApiObject, ...]] = {
            kind: tuple(self._wrap_object(kind, raw) for raw in raws) for kind, raws in by_kind.items()
        }

    def _wrap_object(self, kind: str, raw: dict[str, Json]) -> ApiObject:
        wrapper = OBJECT_CLASSES.get(kind, ApiObject)(raw)
        wrapper.setdefault("kind", plain_kind(kind))  # the items of a NodeList have none
        wrapper.cluster = self
        return wrapper

    @cached_property
    def now(self) -> datetime:
        """The time from which ages are counted."""
        if self._now is not None:
            return self._now
        newest = ""
        for of_kind in self._by_kind.values():
            for item in of_kind:
                newest = newest_change_time(item, newest)
        return parse_change_time(newest)

    def with_objects(
        self,
        by_kind: Mapping[str, Iterable[dict[str, Json]]],
        *,
        plugins: frozenset[str] = frozenset(),
        absent: frozenset[str] = frozenset(),
    ) -> "ClusterObjects":
        """Return the objects with others in place of some kinds, and with further plugins and absent kinds."""
        return ClusterObjects(
            {**self._by_kind, **by_kind},
            absent=self.absent | absent,
            partial=self.partial,
            now=self._now,
            declared=self.declared,
            plugins=self.plugins | plugins,
        )

    def unread(self, kind: str, namespace: str = "") -> str:
        """Return what was not read of a kind, as a plural noun; "" if all were, or all of a namespace."""
        if kind in self.absent:
            return API_KINDS[kind].resource
        is_read = kind not in self.partial or (namespace and self.partial[kind] == namespace)
        return "" if is_read else f"{API_KINDS[kind].resource} of other namespaces"

    def of(self, kind: str) -> Sequence[ApiObject]:
        """Return the objects of a kind; none if they were not read."""
        return self._by_kind.get(kind, ())

    @property
    def nodes(self) -> Sequence[NodeObject]:
        return self.of("Node")  # type: ignore[return-value]

    @property
    def pods(self) -> Sequence[PodObject]:
        return self.of("Pod")  # type: ignore[return-value]

    @property
    def daemon_sets(self) -> Sequence[DaemonSetObject]:
        return self.of("DaemonSet")  # type: ignore[return-value]

    @property
    def events(self) -> Sequence[ApiObject]:
        return self.of("Event")

    def find(self, kind: str, name: str, namespace: str = "") -> ApiObject | None:
        """Return the object of this name, or None."""
        by_name = self._by_name.get(kind)
        if by_name is None:
            by_name = self._by_name[kind] = {(item.namespace, item.name): item for item in self.of(kind)}
        return by_name.get((namespace, name))

    @property
    def devices(self) -> Devices:
        """The devices of drivers; slices that cannot be used are left out."""
        return self._device_reading[0]

    @property
    def unusable_slices(self) -> Sequence[str]:
        """Reasons for which slices are left out of `devices`."""
        return self._device_reading[1]

    @cached_property
    def _device_reading(self) -> tuple[Devices, Sequence[str]]:
        messages: list[str] = []
        objects = {kind: self.of(kind) for kind in DEVICE_KINDS}
        devices = read_devices(objects, lambda _, message: messages.append(message))
        rules = None if "DeviceTaintRule" in self.absent else devices.taint_rules
        unread = {API_KINDS[kind].resource: self.partial.get(kind, "") for kind in CLAIM_KINDS if self.unread(kind)}
        return structs.replace(devices, taint_rules=rules, unread=unread), messages

    @cached_property
    def _by_node(self) -> Mapping[str, Sequence[PodObject]]:
        pods: dict[str, list[PodObject]] = {}
        for pod in self.pods:
            if pod.node_name and not is_finished(pod):
                pods.setdefault(pod.node_name, []).append(pod)
        return pods

    def pods_on(self, node: str) -> Sequence[PodObject]:
        """Return the unfinished pods that are bound to a node, which hold its resources."""
        return self._by_node.get(node, ())

    @cached_property
    def pods_by_controller(self) -> Mapping[ObjectName, Sequence[PodObject]]:
        """The pods with a controller, including finished pods."""
        pods: dict[ObjectName, list[PodObject]] = {}
        for pod in self.pods:
            owner = controller_reference(pod)
            if owner is not None:
                pods.setdefault(owner_name(owner, pod), []).append(pod)
        return pods

    def pods_of(self, owner: ObjectName) -> Sequence[PodObject]:
        """Return the pods that an object of their namespace controls, including finished pods."""
        return self.pods_by_controller.get(owner, ())

    @cached_property
    def _events_by_object(self) -> Mapping[ObjectName, Sequence[ApiObject]]:
        events: dict[ObjectName, list[ApiObject]] = {}
        for event in self.events:
            events.setdefault(involved_object(event), []).append(event)
        return events

    def events_about(self, subject: ApiObject) -> Sequence[ApiObject]:
        """Return the Events about an object, without Events about an earlier object of the same name."""
        return [event for event in self._events_by_object.get(subject.object_name, ()) if is_about(event, subject)]

    @cached_property
    def empty_nodes(self) -> Sequence[Node]:
        """The nodes as rules see them, without the amounts that their pods use."""

        def unread(node: str, resource: str, error: QuantityError) -> None:
            self._malformed.append(f"node {node}, {resource}: {error}")

        return [read_node(raw, unread) for raw in self.nodes]

    @property
    def malformed(self) -> Sequence[str]:
        """Malformed amounts, which are left out of `view`: the API server accepts none."""
        return self._malformed if self.view.nodes else ()

    def leave_out(self, message: str) -> None:
        """Note what is left out of `view`."""
        self._malformed.append(message)

    @cached_property
    def view(self) -> Cluster:
        """The existing nodes and the namespaces as rules see them, without what drivers offer."""
        return Cluster(
            nodes=tuple(replace(node, used=self._total_requests(node)) for node in self.empty_nodes),
            namespaces={item.name: as_string_map(item.metadata.get("labels")) for item in self.of("Namespace")},
            namespaces_complete="Namespace" not in self.absent,
            freshness=Freshness.UNREAD if "Node" in self.absent else Freshness.SYNCED,
            unread=frozenset() if self.devices.taint_rules is not None else frozenset(self.devices.class_by_resource),
            devices=self.devices,
            classes=self.classes,
        )

    @property
    def classes(self) -> Classes:
        """PriorityClasses and RuntimeClasses as rules see them."""
        return read_classes({kind: self.of(kind) for kind in CLASS_KINDS if kind not in self.absent})

    def _total_requests(self, node: Node) -> Mapping[str, Quantity]:
        sums: dict[str, int] = {}
        for pod in self.pods_on(node.name):
            for resource, nanos in requests_of(pod).items():
                sums[resource] = sums.get(resource, 0) + nanos
        return {resource: Quantity(nanos) for resource, nanos in sums.items()}

    @cached_property
    def _node_views(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.view.nodes}

    def node_view(self, name: str) -> Node | None:
        """Return a node as rules see it, with the amounts that its pods use."""
        return self._node_views.get(name)


def once(make: Callable[[ClusterObjects], T]) -> Callable[[ClusterObjects], T]:
    """Return a function whose result is computed once for the objects of a cluster, and lives as long as they do."""
    key = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def find(objects: ClusterObjects) -> T:
        if key not in objects.views:
            objects.views[key] = make(objects)
        return cast(T, objects.views[key])

    return find


def is_about(event: Object, subject: ApiObject) -> bool:
    """Return False if an Event with the name of an object is about an earlier object of the same name."""
    uid, involved_uid = (
        text_member(subject.metadata, "uid"),
        text_member(as_mapping(event.get("involvedObject")), "uid"),
    )
    # Kubelets write the name of their node in place of its UID.
    return not uid or not involved_uid or uid == involved_uid or text_member(subject, "kind") == "Node"


MAX_CACHED_REQUESTS = 10_000
"""Distinct requests that are cached for one cluster: the pods of a workload share theirs. Each takes a kilobyte."""


def requests_of(pod: PodObject) -> Mapping[str, int]:
    """Return the amounts that the scheduler counts for a pod, in nanos; malformed requests count as none."""
    spec, cached = pod.spec, pod.cluster.requests
    members: dict[str, Json] = {name: spec.get(name) for name in ("overhead", "resources")}
    for member in ("containers", "initContainers"):
        members[member] = [
            {"restartPolicy": container.get("restartPolicy"), "resources": container.get("resources")}
            for container in object_items(spec.get(member))
        ]
    # Encoding takes a fraction of the time of parsing the amounts. In version 2 of the format, the last one without
    # references, equal values have equal bytes.
    key = dumps(members, 2)
    requests = cached.get(key)
    if requests is None:
        try:
            requests = Pod.parse({"spec": members}).effective_requests()
        except PodError as error:
            requests = {}
            pod.cluster.leave_out(f"pod {pod.namespace}/{pod.name} is left out: {error}")
        if len(cached) < MAX_CACHED_REQUESTS:
            cached[key] = requests
    return requests


TIME_MEMBERS = ("creationTimestamp", "lastTimestamp", "eventTime", "lastHeartbeatTime", "lastTransitionTime")
"""Members with past times, in objects, metadata and conditions. deletionTimestamp, for one, may be in the future."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")


def newest_change_time(item: Object, newest: str) -> str:
    """Return the later of `newest` and the newest time at which an object changed, in its original text.

    Times are compared as texts, since all are in UTC; malformed times are ignored.
    """
    status = as_mapping(item.get("status"))
    for members in (item, as_mapping(item.get("metadata")), *object_items(status.get("conditions"))):
        for name in TIME_MEMBERS:
            value = members.get(name)
            if isinstance(value, str) and value > newest and _is_time(value):
                newest = value
    return newest


def parse_change_time(text: str) -> datetime:
    """Parse a result of `newest_change_time`; 1970 for objects without any time."""
    return datetime.fromisoformat(text) if text else datetime.fromtimestamp(0, UTC)


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # such as the month 13
        return False
    return True
