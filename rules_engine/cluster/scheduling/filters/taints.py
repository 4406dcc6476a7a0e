"""The filters TaintToleration and NodeUnschedulable: taints of nodes that a pod does not tolerate."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rules_engine.cluster.nodes import REPELLING_EFFECTS, NodeSet, Tolerated, node_set, union
from rules_engine.cluster.scheduling.requirements import CORDON
from rules_engine.model.kubernetes.cluster import Node, Taint
from rules_engine.model.kubernetes.placement import Toleration

CACHED_TOLERATIONS = 1_000
"""Lists of tolerations whose nodes are cached: a kilobyte or two each with 5,000 nodes."""


@dataclass(frozen=True, slots=True)
class Untolerated:
    """The nodes with a taint that a pod does not tolerate, and the nodes whose cordon it does not tolerate."""

    every: NodeSet
    cordoned: NodeSet


class TaintGroups:
    """The nodes by their taints of some effects."""

    def __init__(self, nodes: Sequence[Node], effects: Container[str]) -> None:
        self._effects = effects
        members: dict[tuple[Taint, ...], list[int]] = {}
        for number, node in enumerate(nodes):
            members.setdefault(self._taints(node), []).append(number)
        self.nodes = {taints: node_set(numbers) for taints, numbers in members.items()}

    def change_node(self, number: int, old: Node, new: Node) -> None:
        """Replace the taints of a node."""
        bit = 1 << number
        before, after = self._taints(old), self._taints(new)
        self.nodes[before] ^= bit
        if not self.nodes[before]:
            del self.nodes[before]
        self.nodes[after] = self.nodes.get(after, 0) | bit

    def _taints(self, node: Node) -> tuple[Taint, ...]:
        return tuple([taint for taint in node.taints if taint.effect in self._effects])


class Taints:
    """The taints of nodes that keep pods away, and the cordoned nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._groups = TaintGroups(nodes, REPELLING_EFFECTS)
        self._cordoned = node_set([number for number, node in enumerate(nodes) if node.unschedulable])
        self.untolerated = lru_cache(CACHED_TOLERATIONS)(self._find_untolerated)
        """Return the nodes that a pod with these tolerations does not tolerate."""

    def repelling(self, tolerations: tuple[Toleration, ...]) -> Mapping[Taint, NodeSet]:
        """Return the taints that a pod with these tolerations does not tolerate, each with its nodes."""
        tolerated, repelling = Tolerated(tolerations), dict[Taint, NodeSet]()
        for taints, nodes in self._groups.nodes.items():
            for taint in taints:
                if not tolerated.includes(taint):
                    repelling[taint] = repelling.get(taint, 0) | nodes
        return repelling

    def change_node(self, number: int, old: Node, new: Node) -> None:
        """Replace the taints of a node, and its cordon."""
        self._groups.change_node(number, old, new)
        bit = 1 << number
        self._cordoned = self._cordoned | bit if new.unschedulable else self._cordoned & ~bit
        self.untolerated.cache_clear()

    def _find_untolerated(self, tolerations: tuple[Toleration, ...]) -> Untolerated:
        cordoned = 0 if Tolerated(tolerations).includes(CORDON) else self._cordoned
        return Untolerated(union(self.repelling(tolerations).values()), cordoned)
