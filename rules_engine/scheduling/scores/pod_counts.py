"""Numbers of bound pods that selectors match, by node and by domain, which follow each change."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from rules_engine.evaluation.nodes import NodeSet
from rules_engine.model.rules import LabelSelector
from rules_engine.scheduling.filters.selector_index import SelectorIndex
from rules_engine.scheduling.filters.topologies import Topologies

GroupKey: TypeAlias = tuple[str, bool, frozenset[tuple[str, str]]]
"""The namespace of pods, True if they are being deleted, and their labels."""

Includes: TypeAlias = Callable[[str, bool], bool]
"""A function that returns True if pods of a namespace count, those that are being deleted or the others."""

MAX_COUNTS = 10_000
"""Selectors whose pods are counted at the same time; beyond it all are counted anew. One takes a kilobyte or two."""


class SetsBySum:
    """Sets of nodes by a sum, those of zero left out."""

    __slots__ = ("sets",)

    def __init__(self) -> None:
        self.sets: dict[int, NodeSet] = {}

    def move(self, nodes: NodeSet, before: int, after: int) -> None:
        """Move nodes that are all in the set of one sum to that of another."""
        sets = self.sets
        if before:
            left = sets[before] ^ nodes
            if left:
                sets[before] = left
            else:
                del sets[before]
        if after:
            sets[after] = sets.get(after, 0) | nodes


class Domains:
    """Sums by the value of a label, over some nodes only; nodes without the label have the value ""."""

    __slots__ = ("_by_sum", "_key", "_nodes", "_sums", "_topologies")

    def __init__(self, key: str, nodes: NodeSet, topologies: Topologies) -> None:
        """Take the label, the nodes that count, and the domains of all labels."""
        self._key = key
        self._nodes = nodes
        self._topologies = topologies
        self._sums: dict[str, int] = {}
        self._by_sum = SetsBySum()

    @property
    def by_sum(self) -> Mapping[int, NodeSet]:
        """The nodes that have the label by the sum of their domain, if that is not zero."""
        return self._by_sum.sets

    def add(self, node: int, amount: int) -> None:
        if not self._nodes >> node & 1:
            return
        value = self._topologies.labels_of(node).get(self._key, "")
        before = self._sums.get(value, 0)
        after = before + amount
        if after:
            self._sums[value] = after
        else:
            self._sums.pop(value, None)
        domain = self._topologies.nodes(self._key, (value,))
        if domain:
            self._by_sum.move(domain, before, after)


class Counts:
    """The number of bound pods that a selector matches."""

    def __init__(self, includes: Includes, bits: Sequence[NodeSet], topologies: Topologies) -> None:
        """Take which pods count, each node as a set, and the domains of labels."""
        self.includes = includes
        self._bits = bits
        self._topologies = topologies
        self._nodes: Counter[int] = Counter()
        self._by_count = SetsBySum()
        self._domains: dict[tuple[str, NodeSet], Domains] = {}

    @property
    def by_count(self) -> Mapping[int, NodeSet]:
        """The nodes by their number of pods, if that is not zero."""
        return self._by_count.sets

    def domains(self, key: str, nodes: NodeSet) -> Domains:
        """Return the number of pods on some nodes by the value of a label; it follows this count."""
        found = self._domains.get((key, nodes))
        if found is None:
            found = self._domains[key, nodes] = Domains(key, nodes, self._topologies)
            for node, count in self._nodes.items():
                found.add(node, count)
        return found

    def add(self, node: int, change: int) -> None:
        """Add a number of pods on a node, or subtract it."""
        before = self._nodes[node]
        after = before + change
        if after:
            self._nodes[node] = after
        else:
            del self._nodes[node]
        self._by_count.move(self._bits[node], before, after)
        for domains in self._domains.values():
            domains.add(node, change)


class PodCounts:
    """The bound pods of a cluster in groups of equal labels, and the counts of those that selectors match."""

    def __init__(self, bits: Sequence[NodeSet], topologies: Topologies) -> None:
        """Take each node as a set, and the domains of labels."""
        self._bits = bits
        self._topologies = topologies
        self._groups: dict[GroupKey, Counter[int]] = {}
        """The number of pods of each group by node."""
        self._labels: dict[GroupKey, Mapping[str, str]] = {}
        self._index: SelectorIndex[Counts] = SelectorIndex()
        self._counts: dict[object, Counts] = {}
        self.version = 0
        """A number that changes when other counts than before may match a group."""

    def count(self, key: object, selector: LabelSelector | None, includes: Includes) -> Counts:
        """Return the count of the pods that are included and that a selector matches; `key` stands for both."""
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = Counts(includes, self._bits, self._topologies)
            self._index.add(selector, found)
            self.version += 1
            for group, nodes in self._groups.items():
                if selector is not None and includes(*group[:2]) and selector.matches(self._labels[group]):
                    for node, number in nodes.items():
                        found.add(node, number)
        return found

    def matching(self, key: GroupKey, labels: Mapping[str, str]) -> Iterator[Counts]:
        """Yield the counts that count the pods of a group."""
        for found in self._index.matching(labels):
            if found.includes(*key[:2]):
                yield found

    def add(self, key: GroupKey, labels: Mapping[str, str], node: int, change: int) -> None:
        """Add a pod of a group to the groups, or remove one; the caller adds it to the counts that match it."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Counter()
            self._labels[key] = labels
        group[node] += change
        if not group[node]:
            del group[node]
            if not group:
                del self._groups[key], self._labels[key]

    def clear(self) -> None:
        """Forget all counts; the groups stay."""
        self._counts.clear()
        self._index = SelectorIndex()
        self.version += 1

    @property
    def is_full(self) -> bool:
        return len(self._counts) >= MAX_COUNTS
