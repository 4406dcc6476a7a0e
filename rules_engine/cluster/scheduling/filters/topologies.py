"""Domains: the nodes with the same value of a label, and the numbers of pods in them."""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from rules_engine.cluster.nodes import NO_LABEL, Label, NodeSet, union

CACHED_COUNTS = 256
"""Numbers of domains that are cached: with 5,000 nodes a kilobyte each."""


class Topologies:
    """The domains of a cluster's nodes by label."""

    def __init__(self, labels: Mapping[str, Label], labels_of: Sequence[Mapping[str, str]]) -> None:
        """Take the nodes by label, and the labels of each node, by number."""
        self._labels = labels
        self.labels_of = labels_of
        self.count = lru_cache(CACHED_COUNTS)(self._count)
        """Return the number of domains of a label with a node in a set."""

    def having(self, key: str) -> NodeSet:
        """Return the nodes that are in a domain of this label."""
        return self._labels.get(key, NO_LABEL).present

    def nodes(self, key: str, value: str) -> NodeSet:
        """Return the nodes of a domain."""
        return self._labels.get(key, NO_LABEL).values[value]

    def _count(self, key: str, among: NodeSet) -> int:
        groups = self._labels.get(key, NO_LABEL).values
        return sum([groups[value] & among != 0 for value in groups.members])


K = TypeVar("K", bound=Hashable)


def add_count(counts: dict[int, int], number: int, by: int) -> None:
    """Add to the count of a node; counts of zero are removed."""
    after = counts.get(number, 0) + by
    if after:
        counts[number] = after
    else:
        del counts[number]


class _Sums(Generic[K]):
    """Sums by place, and the nodes of the places by their sum, if that is not zero."""

    __slots__ = ("_sums", "by_sum")

    def __init__(self) -> None:
        self._sums: dict[K, int] = {}
        self.by_sum: dict[int, NodeSet] = {}

    def _add(self, place: K, nodes: NodeSet, by: int) -> None:
        """Add to the sum of a place with some nodes, which no other place has."""
        before = self._sums.get(place, 0)
        after = before + by
        if after:
            self._sums[place] = after
        else:
            self._sums.pop(place, None)
        if not nodes:
            return
        by_sum = self.by_sum
        if before:
            left = by_sum[before] ^ nodes
            if left:
                by_sum[before] = left
            else:
                del by_sum[before]
        if after:
            by_sum[after] = by_sum.get(after, 0) | nodes

    @property
    def nodes(self) -> NodeSet:
        """The nodes of the places whose sum is not zero."""
        return union(self.by_sum.values())


class PodsByNode(_Sums[int]):
    """The nodes by their number of pods."""

    __slots__ = ()

    def change(self, number: int, by: int) -> None:
        """Add a number of pods on a node."""
        self._add(number, 1 << number, by)


class Domains(_Sums[str]):
    """The nodes by the sum of their domain. A node without the label counts as if its value were "".

    Only pods on nodes in `among` are counted.
    """

    __slots__ = ("_among", "_key", "_topologies")

    def __init__(self, topologies: Topologies, key: str, among: NodeSet) -> None:
        """Take the label, and the nodes that count."""
        super().__init__()
        self._topologies = topologies
        self._key = key
        self._among = among

    def change(self, number: int, by: int) -> None:
        """Add a number of pods on a node, or their weights."""
        if self._among >> number & 1:
            value = self._topologies.labels_of[number].get(self._key, "")
            self._add(value, self._topologies.nodes(self._key, value), by)

    def least(self, domains: int) -> int:
        """Return the least sum, of so many domains that have the label."""
        return min(self.by_sum) if self.by_sum and len(self._sums) == domains else 0

    def above(self, count: int) -> NodeSet:
        """Return the nodes of the domains with higher sums; `count` is not negative."""
        return union([nodes for total, nodes in self.by_sum.items() if total > count])
