"""Our own: what the cluster offers of a resource. The activation's `cluster` answers; without knowledge it raises."""

from typing import Protocol, runtime_checkable

from rules_engine.cel.functions import Library
from rules_engine.cel.types import CLUSTER, INT, STRING

LIBRARY = Library()


@runtime_checkable
class Cluster(Protocol):
    """What an activation's `cluster` can do; each may raise EvaluationError."""

    def allocatable(self, resource: str) -> int:
        """The most of a resource that one node has."""

    def available(self, resource: str) -> int:
        """The most of a resource that one node has free."""

    def total(self, resource: str) -> int:
        """What all nodes together have of a resource."""


@LIBRARY.method("allocatable", CLUSTER, STRING, gives=INT, constant=True)
def allocatable(cluster: Cluster, resource: str) -> int:
    return cluster.allocatable(resource)


@LIBRARY.method("available", CLUSTER, STRING, gives=INT, constant=True)
def available(cluster: Cluster, resource: str) -> int:
    return cluster.available(resource)


@LIBRARY.method("total", CLUSTER, STRING, gives=INT, constant=True)
def total(cluster: Cluster, resource: str) -> int:
    return cluster.total(resource)
