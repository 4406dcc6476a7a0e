"""Amounts as kube-scheduler counts them: whole millicores of cpu, whole units of every other resource.

Source: pkg/scheduler/framework/types.go (Resource.Add), pkg/scheduler/util/utils.go (IsScalarResourceName).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from itertools import pairwise

from rules_engine.evaluation.nodes import NodeSet, node_set
from rules_engine.model.quantity import NANOS

PODS = "pods"
"""The resource of a node that is the number of its pods."""

_MILLI = NANOS // 1000
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_PREFIXES = ("hugepages-", "attachable-volumes-")

STRIDE = 16
"""Amounts between two stored sets of nodes: a look-up adds at most this many sets, and 5,000 different amounts take
0.2 MB."""


def counted(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Return amounts in the scheduler's units, from nanos, rounded up, without resources that it ignores."""
    return {
        resource: -(-nanos // (_MILLI if resource == "cpu" else NANOS))
        for resource, nanos in amounts.items()
        if resource in _NATIVE or "/" in resource or resource.startswith(_PREFIXES)
    }


MAX_CACHED = 256
"""Amounts of a resource whose sets of nodes are cached: 0.2 MB with 5,000 nodes. When there are more, all are
dropped."""


class FreeAmounts:
    """The amounts of one resource that nodes have free; negative where more is used than allocatable.

    A set that was looked up is kept, and updated when the amount of a node changes.
    """

    __slots__ = ("_below", "_changed", "_every", "_free", "_order", "_thresholds")

    def __init__(self, free: dict[int, int], every: NodeSet) -> None:
        """Take the free amounts by node; nodes of `every` without one have none."""
        self._free = free
        self._every = every
        self._below: dict[int, NodeSet] = {}
        """The nodes that have less free than an amount."""
        self._thresholds: list[int] = []
        """The amounts of `_below`, in order."""
        self._order: Order | None = None
        self._changed = False
        """True if amounts have changed since the first look-up."""

    def of(self, number: int) -> int:
        """Return what a node has free."""
        return self._free.get(number, 0)

    def change(self, number: int, by: int) -> None:
        """Add to what a node has free."""
        before = self._free.get(number, 0)
        after = self._free[number] = before + by
        if self._thresholds:
            least, most = (before, after) if by > 0 else (after, before)
            start = bisect_right(self._thresholds, least)
            crossed = self._thresholds[start : bisect_right(self._thresholds, most, start)]
            if crossed:
                bit = 1 << number
                for amount in crossed:
                    self._below[amount] ^= bit
            self._order = None
            self._changed = True

    def below(self, amount: int) -> NodeSet:
        """Return the nodes that have less free than an amount."""
        found = self._below.get(amount)
        if found is None:
            found = self._search(amount)
            if len(self._below) >= MAX_CACHED:
                self._below.clear()
                self._thresholds.clear()
            self._below[amount] = found
            insort(self._thresholds, amount)
        return found

    def _search(self, amount: int) -> NodeSet:
        if not self._changed:
            # An order of all nodes pays off only if it serves more than one search.
            if self._order is None:
                self._order = Order(self._free, self._every)
            return self._order.below(amount)
        if amount > 0:
            return self._every & ~node_set([number for number, free in self._free.items() if free >= amount])
        return node_set([number for number, free in self._free.items() if free < amount])


class Order:
    """Amounts in order, each with its nodes."""

    __slots__ = ("_amounts", "_before", "_groups")

    def __init__(self, free: Mapping[int, int], every: NodeSet) -> None:
        groups: dict[int, list[int]] = {}
        for number, amount in free.items():
            groups.setdefault(amount, []).append(number)
        sets = {amount: node_set(numbers) for amount, numbers in groups.items()}
        rest = every & ~node_set([*free])
        if rest:
            sets[0] = sets.get(0, 0) | rest
        self._amounts = sorted(sets)
        self._groups = [sets[amount] for amount in self._amounts]
        starts = range(0, len(self._amounts) + STRIDE, STRIDE)
        self._before = [0]
        """The nodes with less than each STRIDE-th amount."""
        for start, end in pairwise(starts):
            self._before.append(self._before[-1] | self._union(start, end))

    def below(self, amount: int) -> NodeSet:
        """Return the nodes that have less free than an amount."""
        end = bisect_left(self._amounts, amount)
        start = end // STRIDE
        return self._before[start] | self._union(start * STRIDE, end)

    def _union(self, start: int, end: int) -> NodeSet:
        found = 0
        for nodes in self._groups[start:end]:
            found |= nodes
        return found
