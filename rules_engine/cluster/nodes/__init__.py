"""The cluster's nodes, indexed: a query reads classes of equal nodes, not every node."""

from rules_engine.cluster.nodes.capacity import Capacity
from rules_engine.cluster.nodes.groups import NodeSet, node_set, numbers_of, union
from rules_engine.cluster.nodes.node_index import NodeIndex, capacity_of, node_index_of, node_index_with_places
from rules_engine.cluster.nodes.places import NO_LABEL, REPELLING_EFFECTS, Label
from rules_engine.cluster.nodes.query import (
    ABSENT,
    Demand,
    NodeFilter,
    NodeQuery,
    NodeRequirement,
    Offered,
    is_extended_resource,
)
from rules_engine.cluster.nodes.reach import Tolerated, matching_nodes, nodes_with_labels, select_nodes

__all__ = [
    "ABSENT",
    "NO_LABEL",
    "REPELLING_EFFECTS",
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
    "is_extended_resource",
    "matching_nodes",
    "node_index_of",
    "node_index_with_places",
    "node_set",
    "nodes_with_labels",
    "numbers_of",
    "select_nodes",
    "union",
]
