"""Choice of one node among equally good ones, by names alone: the order in which nodes are written does not matter."""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

from rules_engine.evaluation.nodes import NodeSet, node_set

BITS = 64


def h64(seed: int, *names: str) -> int:
    """Return a hash of BITS bits of a seed and names."""
    return int.from_bytes(blake2b("\0".join((str(seed), *names)).encode(), digest_size=BITS // 8).digest())


def fraction(seed: int, purpose: str, name: str) -> float:
    """Return a number of at least 0 and less than 1, evenly distributed over names.

    It is independent of the node that is chosen for a pod of that name, and of the numbers for other purposes.
    """
    # 53 bits, since a float has no more: 64 of them could be rounded to 1.
    return (h64(seed, purpose, name) >> BITS - 53) / (1 << 53)


class Choice:
    """The choice of nodes for pods: the node whose hash XOR the pod's is the lowest."""

    __slots__ = ("_by_bit", "_seed")

    def __init__(self, seed: int, nodes: Sequence[str]) -> None:
        """Take the names of the nodes by number."""
        self._seed = seed
        hashes = [h64(seed, name) for name in nodes]
        differences = [one ^ other for one, other in pairwise(sorted(hashes))]
        lowest = min(map(int.bit_length, differences), default=BITS + 1) - 1
        sets = [
            (1 << bit, node_set([number for number, found in enumerate(hashes) if found >> bit & 1]))
            for bit in reversed(range(lowest, BITS))
        ]
        every = (1 << len(nodes)) - 1
        self._by_bit = [(bit, having, every ^ having) for bit, having in sets]
        """The nodes whose hash has a bit and those whose has not, from the highest bit to that by which all differ."""

    def lowest(self, pod: str, nodes: NodeSet) -> int:
        """Return the number of the node for a pod, among nodes of which there is at least one."""
        wanted = h64(self._seed, pod)
        for bit, having, lacking in self._by_bit:
            # If none has the pod's bit, it decides nothing.
            nodes = nodes & (having if wanted & bit else lacking) or nodes
        return nodes.bit_length() - 1

    def first(self, pod: str, nodes: NodeSet, count: int) -> NodeSet:
        """Return the nodes with the lowest values for a pod, at most `count`."""
        if nodes.bit_count() <= count:
            return nodes
        wanted = h64(self._seed, pod)
        found = 0
        for bit, having, lacking in self._by_bit:
            equal = nodes & (having if wanted & bit else lacking)
            if (some := equal.bit_count()) > count:
                nodes = equal
            else:
                found |= equal
                nodes ^= equal
                count -= some
        return found
