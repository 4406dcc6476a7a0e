"""Queries for the amounts of resources that nodes offer, and classes of nodes that offer equal amounts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.rule import LabelSelector


class Offered(Enum):
    """The amounts that a node offers: all that it has, or what is free now."""

    ALLOCATABLE = "Allocatable"
    AVAILABLE = "Available"


class NodeRequirement(Enum):
    """A requirement of the nodes that count for a ladder."""

    READY = "Ready"
    SCHEDULABLE = "Schedulable"
    MATCHES_POD = "MatchesPod"


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """The nodes that count for a ladder. Default: all nodes."""

    selector: LabelSelector = LabelSelector()  # noqa: RUF009 - immutable
    require: frozenset[NodeRequirement] = frozenset()


EVERY_NODE = NodeFilter()

Demand = Mapping[str, int]
"""Nanos of each resource; one node must offer all of them together."""

NodeClass = tuple[int, ...]
"""A class of nodes: the nanos that each of them offers of a query's resources, in order; ABSENT for none."""

ABSENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuery:
    """A query for the amounts of `resources` that nodes offer, for nodes that pass a filter."""

    nodes: NodeFilter = EVERY_NODE
    offered: Offered
    resources: tuple[str, ...]

    @property
    def by_pod(self) -> bool:
        """True if a node counts only for the pods that may run on it."""
        return NodeRequirement.MATCHES_POD in self.nodes.require

    def with_resources(self, names: Iterable[str]) -> "NodeQuery":
        """Return the query for more resources, too."""
        return replace(self, resources=tuple(dict.fromkeys((*self.resources, *names))))

    def counts(self, node: Node) -> bool:
        """Return True if a node passes the filter, as far as it does not depend on the pod."""
        require = self.nodes.require
        return (
            (node.ready or NodeRequirement.READY not in require)
            and not (node.unschedulable and NodeRequirement.SCHEDULABLE in require)
            and self.nodes.selector.matches(node.labels)
        )

    def class_of(self, node: Node) -> NodeClass:
        """Return the amounts that a node offers."""
        allocatable, used = node.allocatable, node.used
        if self.offered is Offered.AVAILABLE:
            # Node.available without its Quantities, since this runs for every node.
            return tuple([_nanos_of(allocatable, name, 0) - _nanos_of(used, name, 0) for name in self.resources])
        return tuple([_nanos_of(allocatable, name, ABSENT) for name in self.resources])


def is_extended_resource(resource: str) -> bool:
    """Return True for an extended resource, such as a device: cpu, memory, storage and huge pages have no domain.

    Source: k8s.io/kubernetes/pkg/apis/core/v1/helper (IsExtendedResourceName).
    """
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def _nanos_of(amounts: Mapping[str, Quantity], resource: str, otherwise: int) -> int:
    return amounts[resource].nanos if resource in amounts else otherwise
