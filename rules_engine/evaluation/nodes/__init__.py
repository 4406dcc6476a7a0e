"""The cluster's nodes, indexed: a query reads classes of equal nodes, not every node."""

from rules_engine.evaluation.nodes.capacity import ABSENT, Capacity, Demand, NodeQuery
from rules_engine.evaluation.nodes.groups import NodeSet
from rules_engine.evaluation.nodes.node_index import NodeIndex, capacity_of, index_of, placed_index_of
from rules_engine.evaluation.nodes.reach import matching_nodes

__all__ = [
    "ABSENT",
    "Capacity",
    "Demand",
    "NodeIndex",
    "NodeQuery",
    "NodeSet",
    "capacity_of",
    "index_of",
    "matching_nodes",
    "placed_index_of",
]
