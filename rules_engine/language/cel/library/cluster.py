"""Resources of the cluster and of the pod, an extension of this project.

`cluster` raises EvaluationError while its resources are unknown. `requested` is a receiver.
"""

from rules_engine.language.cel.budget import Budget
from rules_engine.language.cel.values.functions import Library
from rules_engine.language.cel.values.runtime_values import CelCluster, CelRequested, check_int
from rules_engine.language.cel.values.types import CLUSTER, INT, REQUESTED, STRING

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


@LIBRARY.method("requested", REQUESTED, STRING, gives=INT, budgeted=True)
def requested(budget: Budget, pod: CelRequested, resource: str) -> int:
    budget.spend(pod.cost)
    return check_int(pod.amount(resource))
