"""The score plugins TaintToleration and NodeAffinity: preferences among nodes by their taints, labels and names."""

from collections.abc import Sequence

from rules_engine.evaluation.nodes import NodeIndex, NodeSet, Tolerated, node_set, selected_nodes
from rules_engine.model.cluster import Node, Taint
from rules_engine.model.placement import PreferredTerm, Toleration
from rules_engine.scheduling.scores.partition import MAX_SCORE, Partition, added, among, shares

PREFER_NO_SCHEDULE = "PreferNoSchedule"


def soft_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a node that pods avoid if they can."""
    return tuple([taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE])


class SoftTaints:
    """The soft taints of all nodes (plugins/tainttoleration/taint_toleration.go)."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        members: dict[tuple[Taint, ...], list[int]] = {}
        for number, node in enumerate(nodes):
            members.setdefault(soft_taints(node), []).append(number)
        self._nodes = {taints: node_set(numbers) for taints, numbers in members.items()}

    def counts(self, tolerations: tuple[Toleration, ...]) -> Partition:
        """Return the nodes by the number of their taints that are not tolerated."""
        tolerated = Tolerated(tolerations)
        found: dict[int, NodeSet] = {}
        for taints, nodes in self._nodes.items():
            count = sum(not tolerated.includes(taint) for taint in taints)
            found[count] = found.get(count, 0) | nodes
        return found


def toleration_score(counts: Partition, nodes: NodeSet) -> Partition:
    """Return the score by node: the fewer taints are not tolerated, the higher."""
    return {MAX_SCORE - share: members for share, members in shares(among(counts, nodes)).items()}


def affinity_weights(terms: Sequence[PreferredTerm], index: NodeIndex) -> Partition:
    """Return the nodes by the sum of the weights of the terms that match them (plugins/nodeaffinity)."""
    found: Partition = {0: index.every}
    for preferred in terms:
        matched = selected_nodes(index, (), (preferred.term,))
        groups = {0: index.every & ~matched}
        groups[preferred.weight] = groups.get(preferred.weight, 0) | matched
        found = added(found, groups)
    return found


def affinity_score(weights: Partition, nodes: NodeSet) -> Partition:
    """Return the score by node: the share of the highest weight."""
    return shares(among(weights, nodes))
