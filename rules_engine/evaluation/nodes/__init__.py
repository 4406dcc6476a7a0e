"""The cluster's nodes, indexed: a question about them looks at groups of nodes that are alike, not at each node."""

from rules_engine.evaluation.nodes.capacity import ABSENT, Demand, NodeQuery, Tally
from rules_engine.evaluation.nodes.groups import NodeSet
from rules_engine.evaluation.nodes.node_index import NodeIndex, index_of, placed_index_of, tally
from rules_engine.evaluation.nodes.reach import matching_nodes

__all__ = [
    "ABSENT",
    "Demand",
    "NodeIndex",
    "NodeQuery",
    "NodeSet",
    "Tally",
    "index_of",
    "matching_nodes",
    "placed_index_of",
    "tally",
]
