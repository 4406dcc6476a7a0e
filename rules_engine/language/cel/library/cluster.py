"""Resources of the cluster, an extension of this project. `cluster` raises EvaluationError while they are unknown."""

from rules_engine.language.cel.values.functions import Library
from rules_engine.language.cel.values.runtime_values import CelCluster, check_int
from rules_engine.language.cel.values.types import CLUSTER, INT, STRING

LIBRARY = Library()


@LIBRARY.method("allocatable", CLUSTER, STRING, gives=INT, constant=True)
def allocatable(cluster: CelCluster, resource: str) -> int:
    return check_int(cluster.allocatable(resource))


@LIBRARY.method("available", CLUSTER, STRING, gives=INT, constant=True)
def available(cluster: CelCluster, resource: str) -> int:
    return check_int(cluster.available(resource))


@LIBRARY.method("total", CLUSTER, STRING, gives=INT, constant=True)
def total(cluster: CelCluster, resource: str) -> int:
    return check_int(cluster.total(resource))
