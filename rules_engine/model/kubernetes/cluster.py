"""A view of a cluster: an immutable value, read from a file or from the live API."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, object_items, text_member
from rules_engine.model.json.patch import EMPTY
from rules_engine.model.kubernetes.devices import NO_DEVICES, Devices, Spend
from rules_engine.model.kubernetes.quantity import Quantity

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""The label with its name that the API server sets on every namespace (KEP-2161)."""


class Freshness(Enum):
    """Freshness of a view: rules are evaluated on SYNCED views only."""

    SYNCED = "synced"
    STALE = "stale"
    NEVER = "never"
    UNREAD = "unread"

    @property
    def unknown(self) -> str:
        """Return the message for a view that is not SYNCED."""
        reasons = {Freshness.NEVER: "it has not been read yet", Freshness.UNREAD: "its nodes were not read"}
        return f"the cluster is not known: {reasons.get(self, 'its view is stale')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A node's taint; `value` is "" if it has none."""

    key: str
    effect: str
    value: str = ""

    @property
    def text(self) -> str:
        """The taint as kubectl prints it."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


class Served(Enum):
    """Result of a request for several amounts on one node. GIVEN_UP: the scheduler rejects the pod on all nodes."""

    YES = "yes"
    NO = "no"
    GIVEN_UP = "given up"
    UNKNOWN = "unknown"


class DriverDevices(Protocol):
    """The devices that drivers can allocate on one node (Dynamic Resource Allocation).

    `node`: the node without it. `resources`: all that they may serve there. `simple`: whether the amounts of single
    resources say all.
    """

    @property
    def node(self) -> "Node": ...

    @property
    def resources(self) -> frozenset[str]: ...

    @property
    def simple(self) -> bool: ...

    def shape(self, *, free: bool) -> Hashable:
        """Return what `serve` depends on: equal shapes have equal answers."""

    def serve(self, counts: Mapping[str, int], spend: Spend, *, free: bool) -> Served:
        """Return whether numbers of devices fit together; `free`: among free devices. Raises what `spend` raises."""

    def failure(self, counts: Mapping[str, int], *, free: bool) -> str:
        """Return why the scheduler gives up these numbers, where `serve` says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The fields of a node that ladders read.

    `used`: by resource, the total requests of its bound, unfinished pods. Both amounts have what `service` offers.
    `scalable`: an inventory says that an autoscaler can create more of these nodes.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    allocatable: Mapping[str, Quantity] = field(default_factory=lambda: MappingProxyType({}))
    used: Mapping[str, Quantity] = field(default_factory=lambda: MappingProxyType({}))
    service: DriverDevices | None = None
    scalable: bool = False

    def available(self, resource: str) -> Quantity:
        """Return allocatable minus used; it may be negative."""
        nothing = Quantity(0)
        return self.allocatable.get(resource, nothing) - self.used.get(resource, nothing)


NodeUpdate = tuple[Node | None, Node | None]
"""A node before and after a change; None: it does not exist."""


@dataclass(frozen=True, slots=True)
class ClassScheduling:
    """Node labels and tolerations, as in JSON, that the API server adds to the pods of a RuntimeClass."""

    node_selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    tolerations: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Classes:
    """PriorityClasses and RuntimeClasses by name; None: they were not read.

    `priority`: True for the default of pods that name none, of which there may be several.
    """

    priority: Mapping[str, bool] | None = None
    runtime: Mapping[str, ClassScheduling] | None = None


CLASS_KINDS = ("PriorityClass", "RuntimeClass")


def read_priority_class(raw: Object) -> tuple[str, bool]:
    """Return the name of a PriorityClass, and True if it is a default."""
    return text_member(as_mapping(raw.get("metadata")), "name"), raw.get("globalDefault") is True


def read_runtime_class(raw: Object) -> tuple[str, ClassScheduling]:
    """Return the name of a RuntimeClass, and its `scheduling`."""
    scheduling = as_mapping(raw.get("scheduling"))
    selector, tolerations = as_string_map(scheduling.get("nodeSelector")), object_items(scheduling.get("tolerations"))
    return text_member(as_mapping(raw.get("metadata")), "name"), ClassScheduling(selector, tuple(tolerations))


def read_classes(by_kind: Mapping[str, Iterable[Object]]) -> Classes:
    """Read the objects of CLASS_KINDS; a kind that is missing was not read."""
    priority, runtime = map(by_kind.get, CLASS_KINDS)
    return Classes(
        None if priority is None else dict(map(read_priority_class, priority)),
        None if runtime is None else dict(map(read_runtime_class, runtime)),
    )


class View(Protocol):
    """A value computed from a cluster's nodes that is updated, not computed again, when a few nodes change."""

    def after(self, changes: Sequence[NodeUpdate]) -> "View":
        """Return the view of the cluster after these changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes, the labels of namespaces, the devices of drivers, and classes of pods.

    `namespaces_complete`: a namespace that is not listed has no labels (True for files); otherwise its labels are
    unknown, and reading them is an error. `unread`: the resources of which it is not known what drivers offer; ""
    stands for all. `views` caches values computed from the nodes: it is the only member that changes, and it does not
    count for equality.
    """

    nodes: tuple[Node, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    namespaces_complete: bool = True
    freshness: Freshness = Freshness.SYNCED
    devices: Devices = NO_DEVICES
    unread: frozenset[str] = frozenset()
    classes: Classes = field(default_factory=Classes)
    views: dict[Hashable, View] = field(default_factory=dict, init=False, compare=False, repr=False)

    def changed(
        self, nodes: tuple[Node, ...], changes: Sequence[NodeUpdate], namespaces: Mapping[str, Mapping[str, str]]
    ) -> "Cluster":
        """Return the cluster with `nodes`, which differ from its own by `changes`, and with its views updated."""
        cluster = replace(self, nodes=nodes, namespaces=namespaces)
        cluster.views.update((key, view.after(changes)) for key, view in list(self.views.items()))
        return cluster

    def marked(self, freshness: Freshness, unread: frozenset[str], classes: Classes, devices: Devices) -> "Cluster":
        """Return the cluster with these values, which do not concern its nodes: both share the cached views."""
        cluster = replace(self, freshness=freshness, unread=unread, classes=classes, devices=devices)
        object.__setattr__(cluster, "views", self.views)
        return cluster

    @property
    def known(self) -> bool:
        return self.freshness is Freshness.SYNCED

    def unread_problem(self, resource: str) -> str:
        """Return why it is not known what nodes offer of a resource, which drivers may serve; "" if it is."""
        is_unread = "/" in resource and not self.unread.isdisjoint(("", resource))
        return f"it is not known what drivers offer of {resource}" if is_unread else ""

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the namespace's labels, with NAMESPACE_NAME_LABEL; None if they are unknown."""
        labels = self.namespaces.get(namespace)
        if labels is None:
            if not self.namespaces_complete:
                return None
            labels = EMPTY
        return {**labels, NAMESPACE_NAME_LABEL: namespace}


UNKNOWN_CLUSTER = Cluster(namespaces_complete=False, freshness=Freshness.NEVER)
"""A cluster that has not been read."""
