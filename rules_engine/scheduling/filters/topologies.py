"""Domains: the nodes with the same value of a label."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from rules_engine.evaluation.nodes import NO_LABEL, Label, NodeSet, node_set

CACHED_COUNTS = 256
"""Numbers of domains that are cached: with 5,000 nodes a kilobyte each."""


class Topologies:
    """The domains of a cluster's nodes by label."""

    def __init__(self, labels: Mapping[str, Label], labels_of: Sequence[Mapping[str, str]]) -> None:
        """Take the nodes by label, and the labels of each node, by number."""
        self._labels = labels
        self._labels_of = labels_of
        self.count = lru_cache(CACHED_COUNTS)(self._count)
        """Return the number of domains of a label with a node in a set."""

    def having(self, key: str) -> NodeSet:
        """Return the nodes that are in a domain of this label."""
        return self._labels.get(key, NO_LABEL).present

    def labels_of(self, number: int) -> Mapping[str, str]:
        """Return the labels of a node."""
        return self._labels_of[number]

    def nodes(self, key: str, values: Iterable[str]) -> NodeSet:
        """Return the nodes of some domains."""
        groups = self._labels.get(key, NO_LABEL).values
        nodes = 0
        few: list[int] = []
        for value in values:
            if value in groups.large:
                nodes |= groups.large[value]
            else:
                few.extend(groups.small.get(value, ()))
        return nodes | node_set(few)

    def _count(self, key: str, among: NodeSet) -> int:
        groups = self._labels.get(key, NO_LABEL).values
        # As text, since a shift of a set of 5,000 nodes for each of them takes ten times as long.
        digits = bin(among)[:1:-1]
        size = len(digits)
        few = sum(
            [any(digits[number] == "1" for number in numbers if number < size) for numbers in groups.small.values()]
        )
        return few + sum([nodes & among != 0 for nodes in groups.large.values()])
