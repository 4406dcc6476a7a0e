"""The cluster as rules see it while pods come and go. A new view is built only before a decision."""

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from rules_engine.cluster.devices.offers import DeviceOffers, without_device_offers
from rules_engine.cluster.nodes import matching_nodes, node_index_with_places
from rules_engine.cluster.nodes.reservations import LIFETIME_SECONDS, PodKey, Reservations, device_usage
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.placement import Placement
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.simulation import Milliseconds


class RulesView:
    """A cluster whose nodes change. `reads_pods`: rules read the usage of pods, so it is tracked.

    `offers`: what drivers offer, if the cluster has DeviceClasses; they change with the devices that pods get.
    """

    __slots__ = ("_changed", "_cluster", "_nodes", "_offers", "_reads_pods", "_used", "reservations")

    def __init__(self, cluster: Cluster, *, reads_pods: bool, offers: DeviceOffers | None = None) -> None:
        self._cluster = cluster
        self._reads_pods = reads_pods
        self._offers = offers
        self._nodes = {node.name: node for node in cluster.nodes}
        """The nodes in the latest view."""
        self._used = {
            node.name: Counter(
                {resource: amount.nanos for resource, amount in without_device_offers(node).used.items()}
            )
            for node in cluster.nodes
        }
        self._changed: dict[str, Node] = {}
        """Changed nodes that are not in the latest view yet, without their usage."""
        self.reservations = Reservations(lambda node, usage, sign: self.hold(node, dict(usage), sign))
        """Reservations of waiting pods, with times in milliseconds."""
        for node in cluster.nodes:
            self.reservations.room.update(node.name, node, cluster)
            if offers is not None and reads_pods:
                # The offers so far do not know which devices the pods of other nodes without a claim got.
                self._changed[node.name] = node

    def change(self, name: str, change: Callable[[Node], Node]) -> None:
        """Change the state of a node; one that rules do not see stays unseen."""
        node = self._changed.get(name) or self._nodes.get(name)
        if node is not None:
            self._changed[name] = change(node)

    def hold(self, name: str, amounts: Mapping[str, int], sign: int) -> None:
        """Add the amounts of a pod, in nanos, to its node, or remove them with the sign -1."""
        if self._reads_pods and name in self._used:
            used = self._used[name]
            for resource, nanos in amounts.items():
                used[resource] += sign * nanos
            self._changed.setdefault(name, self._nodes[name])

    def on_device_change(self, names: Set[str]) -> None:
        """Update the nodes that share devices with a node whose pods hold other devices than before."""
        if self._reads_pods:
            for name in self._nodes.keys() & names:
                self._changed.setdefault(name, self._nodes[name])

    def reserve(self, pod: str, placement: Placement, requests: Mapping[str, int], now: Milliseconds) -> None:
        """Reserve the devices of an admitted pod that waits, by its effective requests, as the server does."""
        demand = device_usage(requests)
        if not (self._reads_pods and demand):
            return
        try:
            nodes = matching_nodes(node_index_with_places(self.cluster), placement, Budget())
        except CostExceeded:
            return
        self.reservations.reserve(PodKey(pod, ""), demand, nodes, now + 1000 * LIFETIME_SECONDS)

    @property
    def cluster(self) -> Cluster:
        """The cluster after all changes so far."""
        old: dict[str, Node] = {}
        self._update(old)
        if old:
            self.reservations.relocate([*old], lambda name: self._update(old)[name])
            now = self._update(old)
            changes = [(node, now[name]) for name, node in old.items()]
            self._cluster = self._cluster.changed(tuple(self._nodes.values()), changes, self._cluster.namespaces)
        return self._cluster

    def _update(self, old: dict[str, Node]) -> Mapping[str, Node]:
        """Update changed nodes; `old` gets each as it was. Return the nodes."""
        for name, node in self._changed.items():
            used = {resource: Quantity(nanos) for resource, nanos in self._used[name].items() if nanos}
            before, new = self._nodes[name], replace(node, used=used)
            if self._offers is not None:
                own = without_device_offers(node).allocatable
                new = self._offers.node(replace(new, allocatable=own, service=None))
            if new != before:
                old.setdefault(name, before)
                self._nodes[name] = new
                self.reservations.room.update(name, new, self._cluster)
        self._changed = {}
        return self._nodes
