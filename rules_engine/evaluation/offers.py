"""What the nodes that count for a ladder offer."""

from collections.abc import Mapping
from dataclasses import dataclass

from rules_engine.model.cluster import Cluster, Node
from rules_engine.model.placement import Placement
from rules_engine.model.rules import FallbackLadder, NodeFilter, NodeRequirement, Offered

Demand = Mapping[str, int]
"""Nanos of each resource that one node has to cover, all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """The cluster in the eyes of one ladder and one pod."""

    cluster: Cluster
    nodes: NodeFilter
    offered: Offered
    placement: Placement

    @classmethod
    def to(cls, ladder: FallbackLadder, placement: Placement, cluster: Cluster) -> "Offers":
        return cls(cluster=cluster, nodes=ladder.nodes, offered=ladder.offered, placement=placement)

    def cover(self, demand: Demand) -> bool:
        """Whether one node that counts has all of it."""
        return any(self._covers(node, demand) and self._counts(node) for node in self.cluster.nodes)

    def _covers(self, node: Node, demand: Demand) -> bool:
        if self.offered is Offered.AVAILABLE:
            return all(node.available(resource).nanos >= amount for resource, amount in demand.items())
        allocatable = node.allocatable
        return all(
            resource in allocatable and allocatable[resource].nanos >= amount for resource, amount in demand.items()
        )

    def _counts(self, node: Node) -> bool:
        require = self.nodes.require
        return (
            (node.ready or NodeRequirement.READY not in require)
            and not (node.unschedulable and NodeRequirement.SCHEDULABLE in require)
            and self.nodes.selector.matches(node.labels)
            and (NodeRequirement.MATCHES_POD not in require or self.placement.matches(node))
        )
