"""What the nodes that count for a ladder offer."""

from dataclasses import dataclass

from rules_engine.evaluation.tallies import Demand, Question, Tally, label_keys, names_nodes, nodes_named, tally
from rules_engine.model.cluster import Cluster
from rules_engine.model.placement import Placement
from rules_engine.model.rules import FallbackLadder, NodeRequirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """The cluster in the eyes of one ladder and one pod; `placement` None: where the pod may run does not matter."""

    cluster: Cluster
    question: Question
    placement: Placement | None

    @classmethod
    def to(cls, ladder: FallbackLadder, placement: Placement, cluster: Cluster) -> "Offers":
        matters = NodeRequirement.MATCHES_POD in ladder.nodes.require
        question = Question(
            nodes=ladder.nodes,
            offered=ladder.offered,
            resources=tuple([rung.resource for rung in ladder.rungs]),
            labels=label_keys(placement) if matters else (),
        )
        return cls(cluster=cluster, question=question, placement=placement if matters else None)

    def cover(self, demand: Demand) -> bool:
        """Whether one node that counts has all of `demand`, which names resources of the ladder."""
        if self.placement is not None and names_nodes(self.placement):
            # The few pods that choose a node by its name are those of DaemonSets.
            named = nodes_named(self.placement, self.cluster.nodes)
            return Tally.of(self.question, named).covers(demand, None)
        return tally(self.cluster, self.question).covers(demand, self.placement)
