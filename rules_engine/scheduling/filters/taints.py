"""The filters TaintToleration and NodeUnschedulable: taints of nodes that a pod does not tolerate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rules_engine.evaluation.nodes import REPELLING, NodeSet, Tolerated, node_set
from rules_engine.model.cluster import Node, Taint
from rules_engine.model.placement import Toleration

CACHED_TOLERATIONS = 1_000
"""Lists of tolerations whose nodes are cached: a kilobyte or two each with 5,000 nodes."""

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint whose toleration also makes cordoned nodes schedulable."""


@dataclass(frozen=True, slots=True)
class Untolerated:
    """The nodes by the first taint that is not tolerated; `cordoned`: those that are cordoned for the pod."""

    nodes: Mapping[Taint, NodeSet]
    cordoned: NodeSet

    @property
    def every(self) -> NodeSet:
        found = 0
        for nodes in self.nodes.values():
            found |= nodes
        return found


class Taints:
    """The taints of nodes that keep pods away, and the cordoned nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        members: dict[tuple[Taint, ...], list[int]] = {}
        for number, node in enumerate(nodes):
            taints = tuple([taint for taint in node.taints if taint.effect in REPELLING])
            if taints:
                members.setdefault(taints, []).append(number)
        self._nodes = {taints: node_set(numbers) for taints, numbers in members.items()}
        self._cordoned = node_set([number for number, node in enumerate(nodes) if node.unschedulable])
        self.untolerated = lru_cache(CACHED_TOLERATIONS)(self._untolerated)
        """Return the nodes that a pod with these tolerations does not tolerate."""

    def _untolerated(self, tolerations: tuple[Toleration, ...]) -> Untolerated:
        tolerated = Tolerated(tolerations)
        found: dict[Taint, NodeSet] = {}
        for taints, nodes in self._nodes.items():
            for taint in taints:
                if not tolerated.includes(taint):
                    found[taint] = found.get(taint, 0) | nodes
                    break
        return Untolerated(found, 0 if tolerated.includes(CORDON) else self._cordoned)
