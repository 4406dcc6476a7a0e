"""Amounts as kube-scheduler counts them: whole millicores of cpu, whole units of every other resource.

Source: pkg/scheduler/framework/types.go (Resource.Add), pkg/scheduler/util/utils.go (IsScalarResourceName).
"""

from bisect import bisect_left
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


class FreeAmounts:
    """The amounts of one resource that nodes have free, in order; negative where more is used than allocatable."""

    __slots__ = ("_amounts", "_before", "_groups")

    def __init__(self, free: Mapping[int, int], every: NodeSet) -> None:
        """Take the free amounts by node; nodes of `every` without one have none."""
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
