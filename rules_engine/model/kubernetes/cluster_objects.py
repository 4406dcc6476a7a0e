"""Objects of a cluster as its API shows them, with the indexes that a diagnosis needs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property

from rules_engine.model.json.lenient import Object, controller, mapping, objects, strings, text
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.node import read_node
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError

RESOURCES: Mapping[str, str] = {
    "Node": "nodes",
    "Pod": "pods",
    "Event": "events",
    "DaemonSet": "daemonsets",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "Job": "jobs",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "RuntimeClass": "runtimeclasses",
    "ResourceQuota": "resourcequotas",
    "Namespace": "namespaces",
}
"""The kinds of objects that a diagnosis reads, with their names in `kubectl get`."""

PRIORITY_CLASS = "PriorityClass"

FILE_KINDS = (*RESOURCES, PRIORITY_CLASS)
"""The kinds of objects that an inventory or the output of kubectl may have: a simulation reads one more."""

GROUPS: Mapping[str, str] = {
    **dict.fromkeys(RESOURCES, ""),
    "DaemonSet": "apps",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "Job": "batch",
    "RuntimeClass": "node.k8s.io",
    PRIORITY_CLASS: "scheduling.k8s.io",
    "ReplicationController": "",
    "ControllerRevision": "apps",
    "LimitRange": "",
}
"""The API groups of kinds, which are all read in version v1. "": the core group. A diff reads the last three."""


class ApiObject(dict[str, Json]):
    """An object of the API, reduced to the members that a diagnosis reads; `cluster` holds the others."""

    __slots__ = ("cluster",)
    cluster: "ClusterObjects"

    @property
    def metadata(self) -> Object:
        return mapping(self.get("metadata"))

    @property
    def spec(self) -> Object:
        return mapping(self.get("spec"))

    @property
    def status(self) -> Object:
        return mapping(self.get("status"))

    def condition(self, kind: str) -> Object:
        """Return the condition of a type; empty if there is none."""
        return next((found for found in objects(self.status.get("conditions")) if found.get("type") == kind), {})

    @property
    def name(self) -> str:
        return text(self.metadata, "name")

    @property
    def namespace(self) -> str:
        return text(self.metadata, "namespace")

    @property
    def object_name(self) -> ObjectName:
        return ObjectName(text(self, "kind"), self.name, self.namespace)


class NodeObject(ApiObject):
    """A Node."""

    __slots__ = ()


class PodObject(ApiObject):
    """A Pod."""

    __slots__ = ()

    @property
    def node_name(self) -> str:
        return text(self.spec, "nodeName")


class DaemonSetObject(ApiObject):
    """A DaemonSet."""

    __slots__ = ()


CLASSES: Mapping[str, type[ApiObject]] = {"Node": NodeObject, "Pod": PodObject, "DaemonSet": DaemonSetObject}
"""The classes of the kinds that have functions in CEL; objects of other kinds are ApiObjects."""


def involved_object(event: Object) -> ObjectName:
    """Return the object that an Event is about. A Node has no namespace, but some programs write one."""
    involved = mapping(event.get("involvedObject"))
    kind = text(involved, "kind")
    return ObjectName(kind, text(involved, "name"), "" if kind == "Node" else text(involved, "namespace"))


class ClusterObjects:
    """The objects of a cluster at one moment; they never change. Indexes are made on first use.

    `absent`: the kinds that were not read, which is not the same as a cluster without such objects. `partial`: those of
    which only the objects in some namespaces were read. `now`: the moment, from which ages are counted: of a recording,
    that of its newest timestamp.
    """

    def __init__(
        self,
        by_kind: Mapping[str, Iterable[dict[str, Json]]],
        *,
        absent: frozenset[str] = frozenset(),
        partial: frozenset[str] = frozenset(),
        now: datetime,
    ) -> None:
        self.absent = absent
        self.partial = partial
        self.now = now
        self.requests: dict[str, Mapping[str, int]] = {}
        """Requests of pods by the text of the members that they are read from."""
        self.views: dict[str, object] = {}
        """Values that other layers compute from the objects, by name; they live as long as these."""
        self._by_kind: dict[str, tuple[ApiObject, ...]] = {
            kind: tuple(self._wrapped(kind, raw) for raw in raws) for kind, raws in by_kind.items()
        }

    def _wrapped(self, kind: str, raw: dict[str, Json]) -> ApiObject:
        found = CLASSES.get(kind, ApiObject)(raw)
        found.setdefault("kind", kind)  # the items of a NodeList have none
        found.cluster = self
        return found

    def unread(self, kind: str) -> str:
        """Return a name for the objects of a kind that were not read, or "" if all were."""
        if kind in self.absent:
            return RESOURCES[kind]
        return f"{RESOURCES[kind]} of other namespaces" if kind in self.partial else ""

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

    @cached_property
    def _by_name(self) -> Mapping[ObjectName, ApiObject]:
        return {found.object_name: found for found_of in self._by_kind.values() for found in found_of}

    def find(self, kind: str, name: str, namespace: str = "") -> ApiObject | None:
        """Return the object of this name, or None."""
        return self._by_name.get(ObjectName(kind, name, namespace))

    @cached_property
    def _by_node(self) -> Mapping[str, Sequence[PodObject]]:
        found: dict[str, list[PodObject]] = {}
        for pod in self.pods:
            if pod.node_name and not is_finished(pod):
                found.setdefault(pod.node_name, []).append(pod)
        return found

    def pods_on(self, node: str) -> Sequence[PodObject]:
        """Return the unfinished pods that are bound to a node: those that hold its resources."""
        return self._by_node.get(node, ())

    @cached_property
    def _by_controller(self) -> Mapping[ObjectName, Sequence[PodObject]]:
        found: dict[ObjectName, list[PodObject]] = {}
        for pod in self.pods:
            owner = controller(pod)
            if owner is not None:
                name = ObjectName(text(owner, "kind"), text(owner, "name"), pod.namespace)
                found.setdefault(name, []).append(pod)
        return found

    def controlled_by(self, owner: ObjectName) -> Sequence[PodObject]:
        """Return the pods that an object of their namespace controls, finished ones included."""
        return self._by_controller.get(owner, ())

    @cached_property
    def _about(self) -> Mapping[ObjectName, Sequence[ApiObject]]:
        found: dict[ObjectName, list[ApiObject]] = {}
        for event in self.events:
            found.setdefault(involved_object(event), []).append(event)
        return found

    def events_about(self, found: ApiObject) -> Sequence[ApiObject]:
        """Return the Events that are recorded about an object, and not about an earlier one of its name."""
        return [event for event in self._about.get(found.object_name, ()) if is_about(event, found)]

    @cached_property
    def view(self) -> Cluster:
        """The cluster as rules see it."""
        nodes = []
        for raw in self.nodes:
            node = read_node(raw, _unread)
            nodes.append(replace(node, used=self._used(node)))
        return Cluster(
            nodes=tuple(nodes),
            namespaces={found.name: strings(found.metadata.get("labels")) for found in self.of("Namespace")},
            namespaces_complete="Namespace" not in self.absent,
        )

    def _used(self, node: Node) -> Mapping[str, Quantity]:
        sums: dict[str, int] = {}
        for pod in self.pods_on(node.name):
            for resource, nanos in requests_of(pod).items():
                sums[resource] = sums.get(resource, 0) + nanos
        return {resource: Quantity(nanos) for resource, nanos in sums.items()}

    @cached_property
    def _viewed(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.view.nodes}

    def node_view(self, name: str) -> Node | None:
        """Return a node as rules see it, with what its pods use."""
        return self._viewed.get(name)


def is_about(event: Object, found: ApiObject) -> bool:
    """Return False if an Event with the name of an object is about an earlier object of that name."""
    ours, others = text(found.metadata, "uid"), text(mapping(event.get("involvedObject")), "uid")
    # Kubelets write the name of their node in place of its UID.
    return not ours or not others or ours == others or text(found, "kind") == "Node"


MAX_CACHED_REQUESTS = 10_000
"""Different requests that are cached for one cluster: the pods of a workload have equal ones. Each takes a kilobyte."""


def requests_of(pod: PodObject) -> Mapping[str, int]:
    """Return the amounts that the scheduler counts for a pod, in nanos; none if they are malformed."""
    spec, cached = pod.spec, pod.cluster.requests
    read: dict[str, Json] = {name: spec.get(name) for name in ("overhead", "resources")}
    for member in ("containers", "initContainers"):
        read[member] = [
            {"restartPolicy": container.get("restartPolicy"), "resources": container.get("resources")}
            for container in objects(spec.get(member))
        ]
    # By their text, which takes a fraction of the time of reading the amounts.
    key = repr(read)
    found = cached.get(key)
    if found is None:
        try:
            found = Pod.parse({"spec": read}).effective_requests()
        except PodError:
            found = {}
        if len(cached) < MAX_CACHED_REQUESTS:
            cached[key] = found
    return found


def _unread(_node: str, _resource: str, _error: QuantityError) -> None:
    """Leave out an amount that is malformed: the API server writes none."""


MEMBERS = ("creationTimestamp", "lastTimestamp", "eventTime", "lastHeartbeatTime", "lastTransitionTime")
"""Members of an object, of its metadata and of its conditions. Others may be in the future, as deletionTimestamp."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")


def newest_change(found: Object, newest: str) -> str:
    """Return the newest time at which an object was changed, if it is newer than another, as it is written.

    Times are compared as texts, since all are in UTC; what is not a time is passed over.
    """
    status = mapping(found.get("status"))
    for members in (found, mapping(found.get("metadata")), *objects(status.get("conditions"))):
        for name in MEMBERS:
            written = members.get(name)
            if isinstance(written, str) and written > newest and _is_time(written):
                newest = written
    return newest


def moment(written: str) -> datetime:
    """Return the time that `newest_change` found; 1970 for objects without any."""
    return datetime.fromisoformat(written) if written else datetime.fromtimestamp(0, UTC)


def _is_time(written: str) -> bool:
    if not _TIME.fullmatch(written):
        return False
    try:
        datetime.fromisoformat(written)
    except ValueError:  # such as the month 13
        return False
    return True
