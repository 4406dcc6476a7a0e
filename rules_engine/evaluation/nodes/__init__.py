"""The cluster's nodes, indexed: a query reads classes of equal nodes, not every node."""

from rules_engine.evaluation.nodes.capacity import Capacity
from rules_engine.evaluation.nodes.groups import NodeSet
from rules_engine.evaluation.nodes.node_index import NodeIndex, capacity_of, index_of, placed_index_of
from rules_engine.evaluation.nodes.query import ABSENT, Demand, NodeFilter, NodeQuery, NodeRequirement, Offered
from rules_engine.evaluation.nodes.reach import matching_nodes

__all__ = [
    "ABSENT",
    "Capacity",
    "Demand",
    "NodeFilter",
    "NodeIndex",
    "NodeQuery",
    "NodeRequirement",
    "NodeSet",
    "Offered",
    "capacity_of",
    "index_of",
    "matching_nodes",
    "placed_index_of",
]
