"""Choice of one node among equally good ones, by names alone, so that the order of nodes in a file does not matter."""

from collections.abc import Sequence
from hashlib import blake2b

from rules_engine.cluster.nodes import NodeSet, node_set, numbers_of

HASH_BITS = 64

MAX_COMPARED_NODES = 32
"""Nodes whose hashes with a pod's are compared, in less than a microsecond each. Of more nodes, the 32 nearest by XOR
are chosen first, which is nearly as even."""


def hash_names(seed: int, *names: str) -> int:
    """Return a hash of BITS bits of a seed and names."""
    return int.from_bytes(blake2b("\0".join((str(seed), *names)).encode(), digest_size=HASH_BITS // 8).digest())


def uniform_fraction(seed: int, purpose: str, name: str) -> float:
    """Return a number of at least 0 and less than 1, evenly distributed over names.

    It is independent of the node that is chosen for a pod of that name, and of the numbers for other purposes.
    """
    # 53 bits, since a float has no more: 64 of them could be rounded to 1.
    return (hash_names(seed, purpose, name) >> HASH_BITS - 53) / (1 << 53)


class NodeChoice:
    """The choice of nodes for pods: the node with the lowest hash of seed, pod and node.

    Of more than COMPARED nodes, only the nodes whose own hashes differ least from the pod's (XOR) are compared.
    """

    __slots__ = ("_by_bit", "_hashes", "_seed")

    def __init__(self, seed: int, nodes: Sequence[str]) -> None:
        """Take the names of the nodes by number."""
        self._seed = seed
        hashes = [hash_names(seed, name) for name in nodes]
        every = (1 << len(nodes)) - 1
        self._hashes = hashes
        self._by_bit = []
        """The nodes with and without each bit of the hash, the highest first."""
        for bit in reversed(range(HASH_BITS)):
            having = node_set([number for number, node_hash in enumerate(hashes) if node_hash >> bit & 1])
            self._by_bit.append((1 << bit, having, every ^ having))

    def choose_node(self, pod: str, nodes: NodeSet) -> int:
        """Return the number of the node for a pod, among at least one node."""
        pod_hash, hashes = hash_names(self._seed, pod), self._hashes

        def mixed(number: int) -> bytes:
            return blake2b((pod_hash ^ hashes[number]).to_bytes(HASH_BITS // 8), digest_size=HASH_BITS // 8).digest()

        return min(numbers_of(self.first(pod, nodes, MAX_COMPARED_NODES)), key=mixed)

    def first(self, pod: str, nodes: NodeSet, count: int) -> NodeSet:
        """Return the nodes whose own hashes differ least from the pod's, at most `count`."""
        if nodes.bit_count() <= count:
            return nodes
        pod_hash = hash_names(self._seed, pod)
        nearest = 0
        for bit, having, lacking in self._by_bit:
            equal = nodes & (having if pod_hash & bit else lacking)
            if (size := equal.bit_count()) > count:
                nodes = equal
            else:
                nearest |= equal
                nodes ^= equal
                count -= size
        return nearest
