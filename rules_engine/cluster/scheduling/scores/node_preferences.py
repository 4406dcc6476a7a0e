"""The score plugins TaintToleration and NodeAffinity: preferences among nodes by their taints, labels and names."""

from collections.abc import Sequence

from rules_engine.cluster.nodes import NodeIndex, NodeSet, Tolerated, select_nodes
from rules_engine.cluster.scheduling.filters.taints import TaintGroups
from rules_engine.cluster.scheduling.scores import partition
from rules_engine.cluster.scheduling.scores.partition import MAX_SCORE, Partition
from rules_engine.model.kubernetes.placement import PreferredTerm, Toleration

SOFT_EFFECTS = ("PreferNoSchedule",)
"""The effect of taints that pods avoid if they can."""


def count_untolerated(taints: TaintGroups, tolerations: tuple[Toleration, ...]) -> Partition:
    """Return the nodes by the number of their taints that are not tolerated (plugins/tainttoleration)."""
    tolerated = Tolerated(tolerations)
    return partition.merge_groups(
        (sum(not tolerated.includes(taint) for taint in taints_of_group), nodes)
        for taints_of_group, nodes in taints.nodes.items()
    )


def toleration_score(counts: Partition, nodes: NodeSet) -> Partition:
    """Return the score by node: the fewer taints are not tolerated, the higher."""
    return {
        MAX_SCORE - share: members
        for share, members in partition.shares_of_highest(partition.restrict_groups(counts, nodes)).items()
    }


def affinity_weights(terms: Sequence[PreferredTerm], index: NodeIndex) -> Partition:
    """Return the nodes by the sum of the weights of the terms that match them (plugins/nodeaffinity)."""
    weights: Partition = {0: index.every}
    for preferred in terms:
        matched = select_nodes(index, (), (preferred.term,))
        groups = {0: index.every & ~matched}
        groups[preferred.weight] = groups.get(preferred.weight, 0) | matched
        weights = partition.add_scores(weights, groups)
    return weights


def affinity_score(weights: Partition, nodes: NodeSet) -> Partition:
    """Return the score by node: the share of the highest weight."""
    return partition.shares_of_highest(partition.restrict_groups(weights, nodes))
