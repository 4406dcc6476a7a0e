"""Nodes by score: sets of nodes that do not overlap.

Source: plugins/helper/normalize_score.go.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

from rules_engine.evaluation.nodes import NodeSet

MAX_SCORE = 100
"""The highest score of a plugin, before its weight."""

N = TypeVar("N", int, float)

Partition: TypeAlias = Mapping[int, NodeSet]


def among(groups: Mapping[N, NodeSet], nodes: NodeSet) -> dict[N, NodeSet]:
    """Return groups without the nodes that are not in a set, and without empty groups."""
    return {score: some for score, members in groups.items() if (some := members & nodes)}


def added(first: Mapping[N, NodeSet], second: Mapping[N, NodeSet]) -> dict[N, NodeSet]:
    """Return the sums of two scores, by node; both have the same nodes."""
    found: dict[N, NodeSet] = {}
    for score, nodes in first.items():
        for more, others in second.items():
            if both := nodes & others:
                found[score + more] = found.get(score + more, 0) | both
    return found


def rest(groups: Mapping[N, NodeSet], nodes: NodeSet) -> NodeSet:
    """Return those of some nodes that are in no group."""
    for members in groups.values():
        nodes &= ~members
    return nodes


def merged(groups: Iterable[tuple[int, NodeSet]]) -> dict[int, NodeSet]:
    """Return the nodes by score, from groups that may have equal ones."""
    found: dict[int, NodeSet] = {}
    for score, nodes in groups:
        found[score] = found.get(score, 0) | nodes
    return found


def weighted(partition: Partition, weight: int) -> Partition:
    return {score * weight: nodes for score, nodes in partition.items()}


def shares(counts: Mapping[int, NodeSet]) -> Partition:
    """Return counts as shares of the highest one, from 0 to MAX_SCORE; all are 0 if that is 0."""
    most = max(counts, default=0)
    return merged((MAX_SCORE * count // most if most else 0, nodes) for count, nodes in counts.items())
