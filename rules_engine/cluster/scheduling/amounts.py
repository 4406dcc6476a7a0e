"""Amounts as kube-scheduler counts them: whole millicores of cpu, whole units of every other resource.

Source: pkg/scheduler/framework/types.go (Resource.Add), pkg/scheduler/util/utils.go (IsScalarResourceName).
"""

from bisect import bisect_right
from collections.abc import Mapping

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


def nanos_of(resource: str, amount: int) -> int:
    """Return an amount in the scheduler's units in nanos."""
    return amount * (_MILLI if resource == "cpu" else NANOS)


def allocatable_amounts(node: Node) -> Mapping[str, int]:
    """Return a node's allocatable amounts, in the scheduler's units."""
    return scheduler_amounts({resource: amount.nanos for resource, amount in node.allocatable.items()})


MAX_CACHED = 1_024
"""Amounts of a resource whose sets of nodes are cached: 0.7 MB with 5,000 nodes. When there are more, all are
dropped."""


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
        least, most = (before, after) if by > 0 else (after, before)
        start = bisect_right(self._thresholds, least)
        for amount in self._thresholds[start : bisect_right(self._thresholds, most, start)]:
            self._below[amount] ^= 1 << number

    def below(self, amount: int) -> NodeSet:
        """Return the nodes that have less free than an amount."""
        nodes = self._below.get(amount)
        if nodes is None:
            thresholds = self._thresholds
            if len(thresholds) >= MAX_CACHED:
                self._below.clear()
                thresholds.clear()
            at = bisect_right(thresholds, amount)
            low = self._below[thresholds[at - 1]] if at else 0
            high = self._below[thresholds[at]] if at < len(thresholds) else self._every
            between = [number for number in numbers_of(high & ~low) if self.of(number) < amount]
            nodes = self._below[amount] = low | node_set(between)
            thresholds.insert(at, amount)
        return nodes
