"""Types and functions of the objects that Diagnostics read.

They are not with the other libraries, since the layer of CEL cannot import the scheduler.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from rules_engine.accelerators.nodes import profiles_of
from rules_engine.cluster.gpu_nodes import device_plugins, device_taints, gpus_of
from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.language.cel import Budget, EvaluationError, Optional, Type
from rules_engine.language.cel.library import cluster as amounts
from rules_engine.language.cel.values import types
from rules_engine.language.cel.values.functions import Library, no_overload
from rules_engine.language.cel.values.runtime_values import NONE, check_int
from rules_engine.language.cel.values.types import (
    BOOL,
    INT,
    STRING,
    ObjectType,
    list_of,
    object_of,
    optional_of,
    shape_type,
)
from rules_engine.model.json.lenient import Object
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.cluster_objects import (
    ApiObject,
    ClusterObjects,
    DaemonSetObject,
    NodeObject,
    PodObject,
)
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.rules.diagnostic.texts import bad_conditions, find_texts
from rules_engine.rules.diagnostic.value import ForEach
from rules_engine.rules.rule_set.context import ClusterFunctions

HIDDEN = frozenset(
    {
        ("EnvVar", "value"),
        ("EnvVar", "valueFrom"),
        ("ExecAction", "command"),
        ("HTTPHeader", "value"),
        ("ObjectMeta", "managedFields"),
        *(
            (container, name)
            for container in ("Container", "EphemeralContainer")
            for name in ("args", "command", "envFrom")
        ),
    }
)
"""Fields that are never read: objects have no values that often hold secrets, and no finding quotes them."""

NODE, POD, DAEMON_SET = shape_type("Node", HIDDEN), shape_type("Pod", HIDDEN), shape_type("DaemonSet", HIDDEN)
EVENT, NAMESPACE, RUNTIME_CLASS = (
    shape_type("Event", HIDDEN),
    shape_type("Namespace", HIDDEN),
    shape_type("RuntimeClass", HIDDEN),
)

LISTS: Mapping[str, ObjectType] = {
    "nodes": NODE,
    "pods": POD,
    "daemonSets": DAEMON_SET,
    "events": EVENT,
    "runtimeClasses": RUNTIME_CLASS,
    "namespaces": NAMESPACE,
}
"""The fields of `cluster`, each with the type of its items. A type's name is the kind of its objects."""

CLUSTER = object_of(types.CLUSTER.name, {name: list_of(item) for name, item in LISTS.items()})

OBJECTS: Mapping[ForEach, Type] = {
    ForEach.NODE: NODE,
    ForEach.POD: POD,
    ForEach.DAEMON_SET: DAEMON_SET,
    ForEach.CLUSTER: CLUSTER,
}
"""The type of `object`."""

GPUS = object_of(
    "GPUs",
    {
        **dict.fromkeys(("product", "vendor", "knownFrom"), STRING),
        **dict.fromkeys(("offered", "published"), BOOL),
        **dict.fromkeys(("profiles", "offeredTwice"), list_of(STRING)),
    },
)
"""The accelerators of a node. `published`: a driver has devices that reach the node."""

DEVICE_TAINT = object_of("DeviceTaint", dict.fromkeys(("device", "key", "value", "effect"), STRING))
"""A taint of a device. `device`: driver, pool and name."""

TEXT = object_of("Text", {"case": STRING, "words": STRING, "place": STRING})
"""A text of a program that tells the reason of a finding; `case`: that of the entry in the catalogue."""

CONDITION = shape_type("NodeCondition", HIDDEN)

LIBRARY = Library()

WAITING_COST = 1_000
"""Cost of a pod's comparison with all nodes, which takes about a millisecond on thousands of them."""


class ClusterView(Mapping[str, object]):
    """CEL's `cluster` in a Diagnostic: lists of objects, made on first use, and amounts of resources."""

    __slots__ = ("_functions", "_lists", "_objects")
    cel_type: ClassVar[Type] = types.CLUSTER

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self._lists: dict[str, list[ApiObject]] = {}
        self._functions: ClusterFunctions | None = None

    def __getitem__(self, name: str) -> object:
        items = self._lists.get(name)
        if items is None:
            items = self._lists[name] = [*self._objects.of(LISTS[name].name)]
        return items

    def __iter__(self) -> Iterator[str]:
        return iter(LISTS)

    def __len__(self) -> int:
        return len(LISTS)

    def allocatable(self, resource: str) -> int:
        return self._amounts().allocatable(resource)

    def available(self, resource: str) -> int:
        return self._amounts().available(resource)

    def total(self, resource: str) -> int:
        return self._amounts().total(resource)

    def _amounts(self) -> ClusterFunctions:
        if self._functions is None:
            self._functions = ClusterFunctions(self._objects.view)
        return self._functions


@LIBRARY.method("allocatable", CLUSTER, STRING, gives=INT, constant=True)
def allocatable(cluster: object, resource: str) -> int:
    """Return the largest amount that one node has."""
    if not isinstance(cluster, ClusterView):
        raise no_overload("allocatable()", cluster, resource)
    return amounts.allocatable(cluster, resource)


@LIBRARY.method("total", CLUSTER, STRING, gives=INT, constant=True)
def total(cluster: object, resource: str) -> int:
    """Return the amount that all nodes have in total."""
    if not isinstance(cluster, ClusterView):
        raise no_overload("total()", cluster, resource)
    return amounts.total(cluster, resource)


@LIBRARY.method("allocated", NODE, STRING, gives=INT, constant=True)
def allocated(node: object, resource: str) -> int:
    """Return the amount that the node's pods request, rounded up to whole units."""
    used = _node_view("allocated()", node, resource).used.get(resource)
    return 0 if used is None else check_int(-(-used.nanos // NANOS))


@LIBRARY.method("available", CLUSTER, STRING, gives=INT, constant=True)
@LIBRARY.method("available", NODE, STRING, gives=INT, constant=True)
def available(owner: object, resource: str) -> int:
    """Return the largest amount that one node has free; for a node, a negative amount if its pods request more."""
    if isinstance(owner, ClusterView):
        return amounts.available(owner, resource)
    return check_int(_node_view("available()", owner, resource).available(resource).nanos // NANOS)


def _node_view(name: str, node: object, resource: str) -> Node:
    """Return a node as the value that rules read; every NodeObject of a cluster has one."""
    view = node.cluster.node_view(node.name) if isinstance(node, NodeObject) else None
    if view is None:
        raise no_overload(name, node, resource)
    return view


@LIBRARY.method("pods", NODE, gives=list_of(POD), budgeted=True)
@LIBRARY.method("pods", DAEMON_SET, gives=list_of(POD), budgeted=True)
def pods(budget: Budget, owner: object) -> list[PodObject]:
    """Return the unfinished pods on a node, or all pods that a DaemonSet controls."""
    if isinstance(owner, NodeObject):
        items = owner.cluster.pods_on(owner.name)
    elif isinstance(owner, DaemonSetObject):
        items = owner.cluster.pods_of(owner.object_name)
    else:
        raise no_overload("pods()", owner)
    budget.spend(len(items))
    return [*items]


@LIBRARY.method("events", NODE, gives=list_of(EVENT), budgeted=True)
@LIBRARY.method("events", POD, gives=list_of(EVENT), budgeted=True)
@LIBRARY.method("events", DAEMON_SET, gives=list_of(EVENT), budgeted=True)
def events(budget: Budget, about: object) -> list[ApiObject]:
    """Return the Events that are recorded about an object."""
    if not isinstance(about, ApiObject):
        raise no_overload("events()", about)
    items = about.cluster.events_about(about)
    budget.spend(len(items))
    return [*items]


@LIBRARY.method("node", POD, gives=optional_of(NODE), constant=True)
def node(pod: object) -> Optional:
    """Return the node to which a pod is bound; none if the pod is not bound, or the node does not exist."""
    if not isinstance(pod, PodObject):
        raise no_overload("node()", pod)
    node_object = pod.cluster.find("Node", pod.node_name) if pod.node_name else None
    return NONE if node_object is None else Optional(True, node_object)


@LIBRARY.method("waitingFor", POD, gives=list_of(STRING), constant=True, cost=WAITING_COST)
def waiting_for(pod: object) -> list[str]:
    """Return the resources that keep a pod from every node that meets its other requirements."""
    if not isinstance(pod, PodObject):
        raise no_overload("waitingFor()", pod)
    if pod.node_name:
        return []
    try:
        return [*scheduler_of(pod.cluster).explain(pod).waiting_for]
    except (PodError, TooLargeError) as error:
        raise EvaluationError(f"waitingFor() of a pod that cannot be scheduled: {error}") from None


@LIBRARY.method("gpus", NODE, gives=optional_of(GPUS), constant=True)
def gpus(node: object) -> Optional:
    """Return the accelerators of a node, by devices of drivers, capacity, labels and plugins; none if it has none."""
    if not isinstance(node, NodeObject):
        raise no_overload("gpus()", node)
    found = gpus_of(node)
    if found is None:
        return NONE
    own = {"product": found.product, "vendor": found.vendor, "profiles": [*profiles_of(found.product)]}
    shown = {"knownFrom": found.known_from, "offered": found.offered, "published": bool(found.drivers)}
    return Optional(True, {**own, **shown, "offeredTwice": [*found.offered_twice]})


@LIBRARY.method("drivers", NODE, gives=list_of(STRING), constant=True)
def drivers(node: object) -> list[str]:
    """Return the drivers of accelerators that publish devices of a node, by name."""
    if not isinstance(node, NodeObject):
        raise no_overload("drivers()", node)
    found = gpus_of(node)
    return [*found.drivers] if found else []


@LIBRARY.method("deviceTaints", NODE, gives=list_of(DEVICE_TAINT), constant=True)
def taints_of_devices(node: object) -> list[Mapping[str, str]]:
    """Return the taints that repel pods from a node's own devices."""
    if not isinstance(node, NodeObject):
        raise no_overload("deviceTaints()", node)
    return [*device_taints(node.cluster).get(node.name, ())]


@LIBRARY.method("devicePlugins", NODE, gives=list_of(POD), budgeted=True)
def plugin_pods(budget: Budget, node: object) -> list[PodObject]:
    """Return the unfinished pods of device plugins on a node."""
    if not isinstance(node, NodeObject):
        raise no_overload("devicePlugins()", node)
    budget.spend(len(node.cluster.pods_on(node.name)))
    return [*device_plugins(node)]


@LIBRARY.method("texts", NODE, STRING, gives=list_of(TEXT), budgeted=True)
@LIBRARY.method("texts", POD, STRING, gives=list_of(TEXT), budgeted=True)
def texts(budget: Budget, about: object, reason: str) -> list[dict[str, str]]:
    """Return the texts of a reason in the Events and the status of an object, in its catalogue's words."""
    if not isinstance(about, ApiObject):
        raise no_overload("texts()", about, reason)
    return find_texts(about, reason, budget)


@LIBRARY.method("badConditions", NODE, gives=list_of(CONDITION), constant=True)
def unhealthy_conditions(node: object) -> list[Object]:
    """Return the conditions by which health checks report a fault of a node's accelerators."""
    if not isinstance(node, NodeObject):
        raise no_overload("badConditions()", node)
    return bad_conditions(node)
