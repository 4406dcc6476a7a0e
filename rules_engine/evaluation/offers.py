"""What the nodes that count for a ladder offer."""

from dataclasses import replace

from rules_engine.evaluation.tallies import Demand, Question, Tally, label_keys, names_nodes, nodes_named, tally
from rules_engine.model.cluster import Cluster
from rules_engine.model.placement import Placement


class Offers:
    """The cluster in the eyes of one ladder, which asks `question`, and one pod."""

    __slots__ = ("_cluster", "_placement", "_question", "_tally")

    def __init__(self, question: Question, placement: Placement, cluster: Cluster) -> None:
        by_pod = question.by_pod
        self._question = replace(question, labels=label_keys(placement)) if by_pod else question
        self._placement = placement if by_pod else None
        self._cluster = cluster
        self._tally: Tally | None = None

    def cover(self, demand: Demand) -> bool:
        """Whether one node that counts has all of `demand`, which names resources of the ladder."""
        found = self._tally
        if found is None:
            found = self._tally = self._counted()
        return found.covers(demand, self._placement)

    def _counted(self) -> Tally:
        placement = self._placement
        if placement is None or not names_nodes(placement):
            return tally(self._cluster, self._question)
        # The few pods that choose a node by its name are those of DaemonSets.
        self._placement = None
        return Tally.of(self._question, nodes_named(placement, self._cluster.nodes))
