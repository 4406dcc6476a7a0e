"""Numbers of pods in the domains of a label, which change with every pod that is bound or released."""

from rules_engine.evaluation.nodes import NodeSet
from rules_engine.scheduling.filters.topologies import Topologies


class Presence:
    """The nodes of the domains that have a pod."""

    __slots__ = ("_counts", "_key", "_topologies", "nodes")

    def __init__(self, topologies: Topologies, key: str) -> None:
        self._topologies = topologies
        self._key = key
        self._counts: dict[str, int] = {}
        self.nodes: NodeSet = 0

    def change(self, number: int, by: int) -> None:
        """Count pods on a node."""
        domain = self._topologies.domain(number, self._key)
        if domain is None:
            return
        before = self._counts.get(domain, 0)
        after = before + by
        if after:
            self._counts[domain] = after
        else:
            del self._counts[domain]
        if not before or not after:
            # Domains of one label have no node in common.
            self.nodes ^= self._topologies.nodes(self._key, (domain,))


class Levels:
    """The domains by their number of pods on some nodes; domains without one are left out."""

    __slots__ = ("_among", "_counts", "_key", "_nodes", "_sizes", "_topologies")

    def __init__(self, topologies: Topologies, key: str, among: NodeSet) -> None:
        self._topologies = topologies
        self._key = key
        self._among = among
        self._counts: dict[str, int] = {}
        self._nodes: dict[int, NodeSet] = {}
        """The nodes of the domains with a number of pods."""
        self._sizes: dict[int, int] = {}
        """The number of these domains."""

    def change(self, number: int, by: int) -> None:
        """Count pods on a node."""
        domain = self._topologies.domain(number, self._key)
        if domain is None or not self._among >> number & 1:
            return
        before = self._counts.get(domain, 0)
        after = before + by
        nodes = self._topologies.nodes(self._key, (domain,))
        if before:
            self._sizes[before] -= 1
            self._nodes[before] ^= nodes
            if not self._sizes[before]:
                del self._sizes[before], self._nodes[before]
        if after:
            self._counts[domain] = after
            self._sizes[after] = self._sizes.get(after, 0) + 1
            self._nodes[after] = self._nodes.get(after, 0) | nodes
        else:
            del self._counts[domain]

    def least(self, domains: int) -> int:
        """Return the least number of pods of a domain, of so many domains."""
        return min(self._sizes) if self._sizes and len(self._counts) == domains else 0

    def above(self, count: int) -> NodeSet:
        """Return the nodes of the domains with more pods; `count` is not negative."""
        found = 0
        for level, nodes in self._nodes.items():
            if level > count:
                found |= nodes
        return found
