"""Sets of nodes that offer a resource, or that repel or exclude a pod. Equal queries share a set."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache

from rules_engine.accelerators.nodes import product_of
from rules_engine.cluster.nodes import (
    NO_LABEL,
    NodeQuery,
    NodeSet,
    Offered,
    Tolerated,
    capacity_of,
    node_index_with_places,
    node_set,
    numbers_of,
    select_nodes,
)
from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.cluster.scheduling.requirements import NOT_READY, UNREACHABLE, UNSCHEDULABLE
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.kubernetes.cluster import Cluster, Node, Served, Taint
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.placement import Placement
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.questions.doctor.drivers import drivers_of
from rules_engine.questions.doctor.gpu_objects import device_amounts, is_device

MAX_CACHED = 4_096
"""Cached sets of nodes, of 700 bytes each with 5,000 nodes."""


class NodeSets:
    """The nodes of a cluster, by number.

    A node that is cordoned or not Ready has the taint for it here even if the node lifecycle controller has not set it
    yet. `presumed`: the nodes that are not Ready and lack the taint. `full`: the nodes that
    have as many pods as they may. `capacities`: the devices in the capacity of each node, in whole units.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        drivers = drivers_of(objects)
        nodes = [_with_lifecycle_taints(node) for node in drivers.view.nodes]
        self._index = node_index_with_places(Cluster(nodes=tuple(node for node, _ in nodes)))
        self._cluster = drivers.view
        self.presumed: NodeSet = node_set([number for number, (_, presumed) in enumerate(nodes) if presumed])
        self.full: NodeSet = scheduler_of(objects).full
        self.capacities = [
            {
                **device_amounts(as_mapping(node.status.get("capacity"))),
                **{name: most for name, (most, _) in drivers.offered(view).items() if is_device(name)},
            }
            for node, view in zip(objects.nodes, drivers.view.nodes, strict=True)
        ]
        self._offered = sorted({name for node, _ in nodes for name in node.allocatable} - drivers.devices.second_names)
        """The resources that nodes have; pods may request other ones, too."""
        self._covering_one = lru_cache(MAX_CACHED)(self._find_covering)

    @cached_property
    def products(self) -> frozenset[str]:
        """The products that labels of the nodes name."""
        return frozenset(product_of(node.labels) for node in self._cluster.nodes)

    @property
    def every(self) -> NodeSet:
        return self._index.every

    def covering_nodes(self, amounts: Sequence[tuple[str, int]], offered: Offered) -> NodeSet:
        """Return the nodes that offer all these amounts, each node alone."""
        nodes = self.every
        for resource, nanos in amounts:
            nodes &= self._covering_one(resource, nanos, offered)
        served = [name for name, _ in amounts if name in self._index.served]
        if not served or (len(served) == 1 and not self._index.uncertain):
            return nodes
        return nodes & ~self._unserved(nodes, amounts, offered)

    def _unserved(self, nodes: NodeSet, amounts: Sequence[tuple[str, int]], offered: Offered) -> NodeSet:
        """Return the nodes whose drivers offer each amount alone, but not all together."""
        unserved = 0
        budget = Budget()
        for number in numbers_of(nodes):
            service = self._index.nodes[number].service
            counts = {name: nanos // NANOS for name, nanos in amounts if service and name in service.resources}
            if service and counts:
                with suppress(CostExceeded):  # unknown
                    served = service.serve(counts, budget.spend, free=offered is Offered.AVAILABLE)
                    unserved |= (served in (Served.NO, Served.GIVEN_UP)) << number
        return unserved

    def _find_covering(self, resource: str, nanos: int, offered: Offered) -> NodeSet:
        covering = 0
        for amount, nodes in self.by_amount(resource, offered):
            if amount >= nanos:
                covering |= nodes
        return covering

    def by_amount(self, resource: str, offered: Offered, among: NodeSet | None = None) -> Iterator[tuple[int, NodeSet]]:
        """Yield each amount that nodes offer of a resource, in nanos, with these nodes; negative amounts count as 0."""
        classes = capacity_of(self._cluster, NodeQuery(offered=offered, resources=(resource,))).classes
        for key in classes:
            nodes = classes[key] if among is None else classes[key] & among
            if nodes:
                yield max(key[0], 0), nodes

    def total(self, resource: str, offered: Offered, among: NodeSet) -> int:
        """Return the sum of the amounts that nodes offer."""
        return sum(amount * nodes.bit_count() for amount, nodes in self.by_amount(resource, offered, among))

    def largest_amount(self, resource: str, offered: Offered, among: NodeSet) -> tuple[int, str]:
        """Return the largest amount that one of the nodes offers, and the first node that offers it."""
        most, nodes = max(self.by_amount(resource, offered, among), key=lambda item: item[0])
        return most, next(self.names(nodes))

    def nodes_tolerated_by(self, placement: Placement, *ignored: str) -> NodeSet:
        """Return the nodes whose taints a pod tolerates, except for taints with an ignored key."""
        tolerated = self.every
        for nodes in self.repelling_taints(placement, self.every, *ignored).values():
            tolerated &= ~nodes
        return tolerated

    def repelling_taints(self, placement: Placement, among: NodeSet, *ignored: str) -> Mapping[Taint, NodeSet]:
        """Return the taints that a pod does not tolerate, each with the nodes among `among` that have it."""
        tolerated, taints = Tolerated(placement.tolerations), self._index.places.taints
        return {
            taint: nodes
            for taint in taints
            if taint.key not in ignored and not tolerated.includes(taint) and (nodes := taints[taint] & among)
        }

    def matching_nodes(self, placement: Placement) -> NodeSet:
        """Return the nodes that a pod's node selector and required node affinity match, whatever their taints."""
        return select_nodes(self._index, placement.node_selector, placement.terms)

    def affine_nodes(self, placement: Placement) -> NodeSet:
        """Return the nodes that a pod's required node affinity matches."""
        return select_nodes(self._index, (), placement.terms)

    def nodes_with_label(self, key: str, value: str | None = None) -> NodeSet:
        """Return the nodes with a label; `value` None: with any value."""
        label = self._index.places.labels.get(key, NO_LABEL)
        return label.present if value is None else label.values[value]

    def values_of(self, key: str, among: NodeSet) -> Sequence[str]:
        """Return the values of a label on some nodes, in order."""
        values = self._index.places.labels.get(key, NO_LABEL).values
        return sorted(value for value in values if values[value] & among)

    def names(self, nodes: NodeSet) -> Iterator[str]:
        """Yield the names of nodes, in order of the nodes."""
        while nodes:
            lowest = nodes & -nodes
            yield self._index.nodes[lowest.bit_length() - 1].name
            nodes ^= lowest

    def resources(self, among: NodeSet, offered: Offered) -> Mapping[str, int]:
        """Return the total of each resource that the nodes offer, in nanos."""
        totals = {name: self.total(name, offered, among) for name in self._offered}
        return {name: total for name, total in totals.items() if total}


def _with_lifecycle_taints(node: Node) -> tuple[Node, bool]:
    """Return a node with the taints of the node lifecycle controller, and True if its NotReady taint was missing."""
    keys = {taint.key for taint in node.taints}
    missing = []
    if node.unschedulable and UNSCHEDULABLE not in keys:
        missing.append(Taint(key=UNSCHEDULABLE, effect="NoSchedule"))
    presumed = not node.ready and keys.isdisjoint((NOT_READY, UNREACHABLE))
    if presumed:
        missing.append(Taint(key=NOT_READY, effect="NoSchedule"))
    return (replace(node, taints=(*node.taints, *missing)) if missing else node), presumed
