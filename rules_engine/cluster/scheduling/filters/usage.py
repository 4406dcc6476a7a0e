"""The filters NodeResourcesFit and NodePorts: amounts, pods and ports left on nodes."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rules_engine.cluster.nodes import NodeSet, node_set
from rules_engine.cluster.scheduling.amounts import PODS, FreeAmounts, allocatable_amounts
from rules_engine.cluster.scheduling.filters.topologies import PodsByNode
from rules_engine.cluster.scheduling.requirements import ALL_ADDRESSES, HostPort
from rules_engine.model.kubernetes.cluster import Node

_UNLIMITED: Final = sys.maxsize


class Usage:
    """The amounts and the number of pods that nodes have left. Bound pods take from them until they are removed."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._every = (1 << len(nodes)) - 1
        self._counts = [0] * len(nodes)
        self._limits = [_pod_limit(node) for node in nodes]
        self.full: NodeSet = node_set([number for number, limit in enumerate(self._limits) if not limit])
        """The nodes that have no room for one more pod, whatever it requests."""
        free: dict[str, dict[int, int]] = {}
        for number, node in enumerate(nodes):
            for resource, amount in allocatable_amounts(node).items():
                free.setdefault(resource, {})[number] = amount
        self._free = {resource: FreeAmounts(amounts, self._every) for resource, amounts in free.items()}

    def count(self, number: int, requests: Mapping[str, int], sign: int) -> None:
        """Count a pod on a node, or with the sign -1 no longer."""
        self._counts[number] += sign
        self._mark_full(number)
        # The sum of amounts that are rounded pod by pod, as the scheduler adds them.
        for resource, amount in requests.items():
            self._change(number, resource, -sign * amount)

    def change_node(self, number: int, old: Node, new: Node) -> None:
        """Replace the allocatable amounts of a node."""
        self._limits[number] = _pod_limit(new)
        self._mark_full(number)
        for resource, amount in allocatable_amounts(new).items():
            self._change(number, resource, amount)
        for resource, amount in allocatable_amounts(old).items():
            self._change(number, resource, -amount)

    def free(self, number: int, resource: str) -> int:
        """Return the amount of a resource that a node has left; `pods`: the pods that it has room for."""
        if resource == PODS:
            return self._limits[number] - self._counts[number]
        amounts = self._free.get(resource)
        return amounts.of(number) if amounts else 0

    def below(self, resource: str, amount: int) -> NodeSet:
        """Return the nodes that have less left of a resource than an amount."""
        amounts = self._free.get(resource)
        return amounts.below(amount) if amounts else self._every

    def _mark_full(self, number: int) -> None:
        bit = 1 << number
        self.full = self.full | bit if self._counts[number] >= self._limits[number] else self.full & ~bit

    def _change(self, number: int, resource: str, by: int) -> None:
        if by:
            amounts = self._free.get(resource)
            if amounts is None:
                amounts = self._free[resource] = FreeAmounts({}, self._every)
            amounts.change(number, by)


def _pod_limit(node: Node) -> int:
    """Return the maximum number of pods on a node."""
    limit = node.allocatable.get(PODS)
    if limit is None:
        # A kubelet always writes it; inventories in files have only what matters to their author.
        return _UNLIMITED if node.allocatable else 0
    return max(limit.whole, 0)


class Ports:
    """Ports in use, by protocol and number, then by address: pods that bypass the scheduler may share one."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, int], dict[str, PodsByNode]] = {}

    def count(self, number: int, ports: Iterable[HostPort], sign: int) -> None:
        """Count the ports of a pod on a node, or with the sign -1 no longer."""
        for port in ports:
            by_address = self._uses.setdefault((port.protocol, port.number), {})
            by_address.setdefault(port.address, PodsByNode()).change(number, sign)

    def taken(self, ports: Iterable[HostPort]) -> NodeSet:
        """Return the nodes where a port is taken: an address conflicts with itself and with all addresses."""
        nodes = 0
        for port in ports:
            by_address = self._uses.get((port.protocol, port.number), {})
            addresses = (
                by_address if port.address == ALL_ADDRESSES else {ALL_ADDRESSES, port.address} & by_address.keys()
            )
            for address in addresses:
                nodes |= by_address[address].nodes
        return nodes
