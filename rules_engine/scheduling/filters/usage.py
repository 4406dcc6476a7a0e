"""Resources and ports that bound pods use on their nodes, and the amounts that nodes have left."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rules_engine.evaluation.nodes import NodeSet, node_set
from rules_engine.model.cluster import Node
from rules_engine.model.cluster_objects import PodObject, requests_of
from rules_engine.model.json.lenient import mapping
from rules_engine.scheduling.amounts import PODS, FreeAmounts, counted
from rules_engine.scheduling.requirements import (
    ALL_ADDRESSES,
    DEFAULT_NAMESPACE,
    AffinityTerm,
    HostPort,
    anti_affinity_terms,
    host_ports,
)


class Usage:
    """Resources, ports and anti-affinity of the pods that were added, by the numbers of their nodes."""

    def __init__(self) -> None:
        self.pods: list[tuple[int, PodObject]] = []
        self.namespaces: set[str] = set()
        self.counts: Counter[int] = Counter()
        self.amounts: dict[str, Counter[int]] = {}
        """Amounts in the scheduler's units, by resource and node."""
        self.ports: dict[tuple[str, int], dict[str, list[int]]] = {}
        """Nodes by protocol, number and address of the ports in use."""
        self.terms: dict[AffinityTerm, list[int]] = {}
        """Nodes of the pods by the terms of their required anti-affinity."""

    def add(self, number: int, pod: PodObject) -> None:
        """Add a pod that is bound to the node with this number."""
        spec, namespace = mapping(pod.get("spec")), pod.namespace or DEFAULT_NAMESPACE
        self.pods.append((number, pod))
        self.namespaces.add(namespace)
        self.counts[number] += 1
        # The sum of amounts that are rounded pod by pod, as the scheduler adds them.
        for resource, amount in counted(requests_of(pod)).items():
            used = self.amounts.get(resource)
            if used is None:
                used = self.amounts[resource] = Counter()
            used[number] += amount
        for port in host_ports(spec):
            self.ports.setdefault((port.protocol, port.number), {}).setdefault(port.address, []).append(number)
        if "affinity" in spec:
            for term in anti_affinity_terms(spec, namespace):
                self.terms.setdefault(term, []).append(number)

    def nodes_with(self, port: HostPort) -> NodeSet:
        """Return the nodes where a port is taken: an address conflicts with itself and with all addresses."""
        by_address = self.ports.get((port.protocol, port.number), {})
        addresses = by_address if port.address == ALL_ADDRESSES else {ALL_ADDRESSES, port.address} & by_address.keys()
        return node_set([number for address in addresses for number in by_address[address]])


def free_amounts(nodes: Sequence[Node], usage: Usage) -> Mapping[str, FreeAmounts]:
    """Return what is free of each resource that a node has or a pod uses."""
    every = (1 << len(nodes)) - 1
    free: dict[str, dict[int, int]] = {}
    for number, node in enumerate(nodes):
        for resource, amount in counted({name: found.nanos for name, found in node.allocatable.items()}).items():
            free.setdefault(resource, {})[number] = amount
    for resource, used in usage.amounts.items():
        left = free.setdefault(resource, {})
        for number, amount in used.items():
            left[number] = left.get(number, 0) - amount
    return {resource: FreeAmounts(left, every) for resource, left in free.items()}


def full_nodes(nodes: Sequence[Node], usage: Usage) -> NodeSet:
    """Return the nodes that have no room for one more pod, whatever it requests."""
    return node_set([number for number, node in enumerate(nodes) if _is_full(node, usage.counts[number])])


def _is_full(node: Node, count: int) -> bool:
    limit = node.allocatable.get(PODS)
    if limit is None:
        # A kubelet always writes it; inventories in files have only what matters to their author.
        return not node.allocatable
    return count + 1 > limit.whole
