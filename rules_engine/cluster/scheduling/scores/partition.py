"""Nodes by score: sets of nodes that do not overlap.

Source: plugins/helper/normalize_score.go.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

from rules_engine.cluster.nodes import NodeSet

MAX_SCORE = 100
"""The highest score of a plugin, before its weight."""

N = TypeVar("N", int, float)

Partition: TypeAlias = Mapping[int, NodeSet]


def restrict_groups(groups: Mapping[N, NodeSet], nodes: NodeSet) -> dict[N, NodeSet]:
    """Restrict groups to a set of nodes, and drop empty groups."""
    return {score: remaining for score, members in groups.items() if (remaining := members & nodes)}


def add_scores(first: Mapping[N, NodeSet], second: Mapping[N, NodeSet]) -> dict[N, NodeSet]:
    """Add two scores, by node; both have the same nodes."""
    sums: dict[N, NodeSet] = {}
    for score, nodes in first.items():
        for more, others in second.items():
            if both := nodes & others:
                sums[score + more] = sums.get(score + more, 0) | both
    return sums


def nodes_in_no_group(groups: Mapping[N, NodeSet], nodes: NodeSet) -> NodeSet:
    """Return the nodes that belong to no group."""
    for members in groups.values():
        nodes &= ~members
    return nodes


def merge_groups(groups: Iterable[tuple[int, NodeSet]]) -> dict[int, NodeSet]:
    """Merge groups with equal scores."""
    groups_by_score: dict[int, NodeSet] = {}
    for score, nodes in groups:
        groups_by_score[score] = groups_by_score.get(score, 0) | nodes
    return groups_by_score


def shares_of_highest(counts: Mapping[int, NodeSet]) -> Partition:
    """Return counts as shares of the highest count, from 0 to MAX_SCORE; all are 0 if it is 0."""
    most = max(counts, default=0)
    return merge_groups((MAX_SCORE * count // most if most else 0, nodes) for count, nodes in counts.items())
