"""The cluster's nodes, indexed: a query reads classes of equal nodes, not every node."""

from rules_engine.evaluation.nodes.capacity import Capacity
from rules_engine.evaluation.nodes.groups import NodeSet, node_set, numbers_of, union
from rules_engine.evaluation.nodes.node_index import NodeIndex, capacity_of, index_of, placed_index_of
from rules_engine.evaluation.nodes.places import NO_LABEL, REPELLING, Label
from rules_engine.evaluation.nodes.query import ABSENT, Demand, NodeFilter, NodeQuery, NodeRequirement, Offered
from rules_engine.evaluation.nodes.reach import Tolerated, matching_nodes, selected_nodes

__all__ = [
    "ABSENT",
    "NO_LABEL",
    "REPELLING",
    "Capacity",
    "Demand",
    "Label",
    "NodeFilter",
    "NodeIndex",
    "NodeQuery",
    "NodeRequirement",
    "NodeSet",
    "Offered",
    "Tolerated",
    "capacity_of",
    "index_of",
    "matching_nodes",
    "node_set",
    "numbers_of",
    "placed_index_of",
    "selected_nodes",
    "union",
]
