"""What is known of a cluster: an immutable value, made from a file or from the live API."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from rules_engine.model.quantity import Quantity
from rules_engine.model.rules import EMPTY

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace (KEP-2161)."""


class Freshness(Enum):
    """Whether the view can be decided on: only SYNCED can."""

    SYNCED = "synced"
    STALE = "stale"
    NEVER = "never"

    @property
    def unknown(self) -> str:
        """Return why there is no deciding on a view that is not SYNCED, for messages."""
        why = "it has not been read yet" if self is Freshness.NEVER else "its view is stale"
        return f"the cluster is not known: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A node's taint; `value` "" where it has none."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as ladders see it. `used` is what the bound pods that are not finished request of each resource."""

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    allocatable: Mapping[str, Quantity] = field(default_factory=lambda: MappingProxyType({}))
    used: Mapping[str, Quantity] = field(default_factory=lambda: MappingProxyType({}))

    def available(self, resource: str) -> Quantity:
        """Allocatable less what is used; it may be negative."""
        nothing = Quantity(0)
        return self.allocatable.get(resource, nothing) - self.used.get(resource, nothing)


Change = tuple[Node | None, Node | None]
"""A node before and after; None where it is not there."""


class View(Protocol):
    """Something worked out from a cluster's nodes that need not be made anew when few of them change."""

    def after(self, changes: Sequence[Change]) -> "View":
        """The same of the cluster after these changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes and the labels of namespaces.

    `namespaces_complete`: a namespace that is not listed has no labels (a file says so); otherwise nothing is known
    of it, and to ask is an error. `views` remembers what was worked out from it: the one thing that changes, and no
    part of its value.
    """

    nodes: tuple[Node, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    namespaces_complete: bool = True
    freshness: Freshness = Freshness.SYNCED
    views: dict[Hashable, View] = field(default_factory=dict, init=False, compare=False, repr=False)

    def changed(
        self, nodes: tuple[Node, ...], changes: Sequence[Change], namespaces: Mapping[str, Mapping[str, str]]
    ) -> "Cluster":
        """The cluster with `nodes`, which differ from its own by `changes`; its views are carried on."""
        cluster = replace(self, nodes=nodes, namespaces=namespaces)
        cluster.views.update((key, view.after(changes)) for key, view in list(self.views.items()))
        return cluster

    @property
    def known(self) -> bool:
        return self.freshness is Freshness.SYNCED

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The namespace's labels, its name among them; None where the namespace is not known."""
        labels = self.namespaces.get(namespace)
        if labels is None:
            if not self.namespaces_complete:
                return None
            labels = EMPTY
        return {**labels, NAMESPACE_NAME_LABEL: namespace}


UNKNOWN_CLUSTER = Cluster(namespaces_complete=False, freshness=Freshness.NEVER)
"""No cluster knowledge at all."""
