"""Views of a cluster without the pod that is submitted again."""

from collections.abc import Set
from dataclasses import replace

from rules_engine.cluster.devices.offers import DeviceOffers, cluster_view, without_device_offers
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject, requests_of
from rules_engine.model.kubernetes.device_objects import read_allocated
from rules_engine.model.kubernetes.quantity import Quantity


class ViewsWithout:
    """The views of a cluster, each without one pod. `usage`: the resources whose usage rules read; None: any."""

    def __init__(self, objects: ClusterObjects, usage: Set[str] | None) -> None:
        self._objects = objects
        self._cluster = cluster_view(objects)
        self._offers = DeviceOffers(self._cluster.devices) if self._cluster.devices.classes else None
        self._usage = usage
        self._positions = {node.name: position for position, node in enumerate(self._cluster.nodes)}

    def without(self, pod: PodObject) -> Cluster:
        """Return the cluster without an unfinished pod.

        The usage of resources that no rule reads is not changed; for most pods, the whole cluster is not.
        """
        usage, position = self._usage, self._positions.get(pod.node_name)
        if position is None or usage == frozenset():
            return self._cluster
        amounts = {name: nanos for name, nanos in requests_of(pod).items() if usage is None or name in usage}
        if not amounts:
            return self._cluster
        nodes = list(self._cluster.nodes)
        old = nodes[position]
        new = without_device_offers(old)
        used = {name: Quantity(amount.nanos - amounts.get(name, 0)) for name, amount in new.used.items()}
        new = replace(new, used={name: amount for name, amount in used.items() if amount.nanos})
        if self._offers is not None:
            claim = self._objects.find("ResourceClaim", extended_claim(pod), pod.namespace)
            devices = self._cluster.devices
            offers = DeviceOffers(devices, self._offers)
            offers.give_back(read_allocated(claim or {}))
            new = offers.node(new)
        nodes[position] = new
        return self._cluster.changed(tuple(nodes), [(old, new)], self._cluster.namespaces)


def extended_claim(pod: Object) -> str:
    """Return the name of the claim that the scheduler made for a pod's extended resources, or ""."""
    return text_member(
        as_mapping(as_mapping(pod.get("status")).get("extendedResourceClaimStatus")), "resourceClaimName"
    )
