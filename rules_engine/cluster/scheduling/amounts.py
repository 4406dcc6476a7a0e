"""Amounts as kube-scheduler counts them: whole millicores of cpu, whole units of every other resource.

Source: pkg/scheduler/framework/types.go (Resource.Add), pkg/scheduler/util/utils.go (IsScalarResourceName).
"""

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence

from rules_engine.cluster.nodes import NodeSet, node_set, numbers_of
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.quantity import NANOS

PODS = "pods"
"""The resource of a node that is the number of its pods."""

NATIVE = ("cpu", "memory", "ephemeral-storage")
"""The resources that every node has."""

_MILLI = NANOS // 1000
_PREFIXES = ("hugepages-", "attachable-volumes-")


def scheduler_amounts(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Return amounts in the scheduler's units, from nanos, rounded up, without resources that it ignores."""
    return {
        resource: -(-nanos // (_MILLI if resource == "cpu" else NANOS))
        for resource, nanos in amounts.items()
        if resource in NATIVE or "/" in resource or resource.startswith(_PREFIXES)
    }


def allocatable_amounts(node: Node) -> Mapping[str, int]:
    """Return a node's allocatable amounts, in the scheduler's units."""
    return scheduler_amounts({resource: amount.nanos for resource, amount in node.allocatable.items()})


MAX_CACHED = 1_024
"""Amounts of a resource whose sets of nodes are cached: 0.7 MB with 5,000 nodes. When there are more, all are
dropped."""

FEW_AMOUNTS = 16
"""Amounts that are looked up one by one, among all nodes. If there are more, sets in between are cached as well."""

FEW_NODES = 64
"""Nodes among which an amount is looked up then."""


class FreeAmounts:
    """The amounts of one resource that nodes have free; negative where more is used than allocatable.

    The set of nodes of each amount that was looked up is cached, and updated when a node's amount changes.
    """

    __slots__ = ("_below", "_every", "_free", "_thresholds")

    def __init__(self, free: dict[int, int], every: NodeSet) -> None:
        """Take the free amounts by node; nodes of `every` without one have none."""
        self._free = free
        self._every = every
        self._below: dict[int, NodeSet] = {}
        """The nodes that have less free than an amount."""
        self._thresholds: list[int] = []
        """The amounts of `_below`, in order."""

    def of(self, number: int) -> int:
        """Return the amount that a node has free."""
        return self._free.get(number, 0)

    def change(self, number: int, by: int) -> None:
        """Add to the amount that a node has free."""
        before = self._free.get(number, 0)
        after = self._free[number] = before + by
        thresholds = self._thresholds
        if thresholds:
            least, most = (before, after) if by > 0 else (after, before)
            start = bisect_right(thresholds, least)
            end = bisect_right(thresholds, most, start)
            if start < end:
                bit = 1 << number
                for amount in thresholds[start:end]:
                    self._below[amount] ^= bit

    def below(self, amount: int) -> NodeSet:
        """Return the nodes that have less free than an amount."""
        nodes = self._below.get(amount)
        if nodes is None:
            if len(self._below) >= MAX_CACHED:
                self._below.clear()
                self._thresholds.clear()
            nodes = self._search(amount)
        return nodes

    def _search(self, amount: int) -> NodeSet:
        while amount not in self._below:
            low, numbers = self._between(amount)
            if len(numbers) <= FEW_NODES or len(self._thresholds) < FEW_AMOUNTS:
                self._store(amount, low, numbers)
            else:
                # Both halves have at most half of the nodes: nodes with the middle amount are in neither.
                middle = sorted([self.of(number) for number in numbers])[len(numbers) // 2]
                for edge in {middle, middle + 1} - self._below.keys():
                    self._store(edge, low, numbers)
        return self._below[amount]

    def _between(self, amount: int) -> tuple[NodeSet, Sequence[int]]:
        """Return the nodes below the next lower cached amount, and the rest of the nodes below the next higher one."""
        at = bisect_right(self._thresholds, amount)
        low = self._below[self._thresholds[at - 1]] if at else 0
        high = self._below[self._thresholds[at]] if at < len(self._thresholds) else self._every
        return low, numbers_of(high & ~low)

    def _store(self, amount: int, low: NodeSet, numbers: Sequence[int]) -> None:
        self._below[amount] = low | node_set([number for number in numbers if self.of(number) < amount])
        insort(self._thresholds, amount)
