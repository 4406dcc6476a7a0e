"""Resources that the nodes that count for a ladder offer to one pod."""

from collections.abc import Callable

from rules_engine.cel import Budget, EvaluationError
from rules_engine.evaluation.nodes import Demand, NodeQuery, NodeSet, matching_nodes, placed_index_of, tally
from rules_engine.model.cluster import Cluster
from rules_engine.model.json.strict import TooLargeError
from rules_engine.model.pod import Pod

AMOUNTS_PER_UNIT = 4
"""Amounts that are compared for one unit of the budget: those of nodes with a demand, or of containers."""


class Reach:
    """The nodes that a pod may run on. They are searched once for a request, when the first rule needs them."""

    __slots__ = ("_cluster", "_error", "_found", "_pod")

    def __init__(self, pod: Pod, cluster: Cluster) -> None:
        self._pod = pod
        self._cluster = cluster
        self._found: NodeSet | None = None
        self._error: EvaluationError | None = None

    def nodes(self, budget: Budget) -> NodeSet:
        """Raises PodError where the pod's placement is malformed, and EvaluationError where it is too large."""
        if self._error is not None:
            raise self._error
        found = self._found
        if found is None:
            try:
                placement = self._pod.placement
            except TooLargeError as error:
                self._error = EvaluationError(str(error))
                raise self._error from None
            # An error here is of the budget, and the next rule may have another one.
            found = self._found = matching_nodes(placed_index_of(self._cluster), placement, budget)
        return found


class Offers:
    """The cluster in the eyes of one ladder, which asks `question`."""

    __slots__ = ("_budget", "_cluster", "_query", "_reach")

    def __init__(self, query: NodeQuery, reach: Reach, cluster: Cluster, budget: Budget) -> None:
        self._query = query
        self._reach = reach
        self._cluster = cluster
        self._budget = budget

    def cover(self, demand: Demand) -> bool:
        """Return True if one node that counts has all of `demand`, which names resources of the ladder.

        Raises PodError and EvaluationError as Reach does, where it matters what nodes the pod may run on, and
        CostExceeded where the budget does not suffice to compare amounts.
        """
        among = self._reach.nodes(self._budget) if self._query.by_pod else None
        counted = tally(self._cluster, self._query)
        self._budget.spend(len(counted.groups) // AMOUNTS_PER_UNIT)
        return counted.covers(demand, among)


def nodes_for(pod: Pod, cluster: Cluster) -> Callable[[str], bool]:
    """Whether a pod may run on a node, by the node's name. Raises PodError and EvaluationError as Reach does."""
    found = Reach(pod, cluster).nodes(Budget())
    names = placed_index_of(cluster).by_name.values
    return lambda name: bool(names[name] & found)
