"""Views of a cluster without the pod that is submitted again."""

from collections.abc import Collection, Container, Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from msgspec import structs

from rules_engine.devices.offers import DeviceOffers, without_device_offers
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.devices import DeviceKey
from rules_engine.model.kubernetes.pod import Pod, is_finished
from rules_engine.model.kubernetes.quantity import Quantity

MAX_VIEWS = 16
"""Views that are kept: equal pods on one node share a view, and with it their decisions."""

Claims: TypeAlias = Mapping[tuple[str, str], tuple[DeviceKey, ...]]
"""The devices of claims, by namespace and name."""

NO_CLAIMS: Claims = MappingProxyType({})


class ViewsWithout:
    """The views of a cluster, each without one of the pods that it counts.

    `counted`: the uids of the pods whose requests are in the usage of nodes. `usage`: the resources whose usage rules
    read; None: any. `claims`: their devices are free without their pod.
    """

    def __init__(
        self,
        cluster: Cluster,
        counted: Container[str],
        usage: Set[str] | None,
        claims: Claims = NO_CLAIMS,
    ) -> None:
        self._cluster = cluster
        self._claims = claims
        self._offers = DeviceOffers(cluster.devices) if cluster.devices.classes else None
        self._usage = usage
        self._counted: Container[str] = counted if usage is None or usage else ()
        self._positions = {node.name: position for position, node in enumerate(cluster.nodes)}
        self._views: dict[tuple[int, frozenset[tuple[str, int]], Collection[DeviceKey]], Cluster] = {}

    def without(self, pod: Object) -> Cluster:
        """Return the cluster without a live pod; the cluster itself if the pod is not in its usage.

        The usage of resources that no rule reads is not changed; for most pods, the whole cluster is not.
        """
        uid = text_member(as_mapping(pod.get("metadata")), "uid")
        position = self._positions.get(text_member(as_mapping(pod.get("spec")), "nodeName"))
        if uid not in self._counted or position is None or is_finished(pod):
            return self._cluster
        usage = self._usage
        amounts = {name: nanos for name, nanos in amounts_held_by(pod).items() if usage is None or name in usage}
        if not amounts:
            return self._cluster
        namespace = text_member(as_mapping(pod.get("metadata")), "namespace")
        held = self._claims.get((namespace, extended_claim(pod)), ())
        key = position, frozenset(amounts.items()), held
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            view = self._views[key] = self._create_view(position, amounts, held)
        return view

    def _create_view(self, position: int, amounts: Mapping[str, int], held: Collection[DeviceKey]) -> Cluster:
        nodes = list(self._cluster.nodes)
        old = nodes[position]
        new = _reduce_usage(without_device_offers(old), amounts)
        if self._offers is not None:
            devices = self._cluster.devices
            allocated = {key: extended for key, extended in devices.allocated.items() if key not in held}
            new = DeviceOffers(structs.replace(devices, allocated=allocated), self._offers).node(new)
        nodes[position] = new
        return self._cluster.changed(tuple(nodes), [(old, new)], self._cluster.namespaces)


def _reduce_usage(node: Node, amounts: Mapping[str, int]) -> Node:
    remaining = {resource: Quantity(used.nanos - amounts.get(resource, 0)) for resource, used in node.used.items()}
    return replace(node, used={resource: used for resource, used in remaining.items() if used.nanos})


def amounts_held_by(pod: Object) -> Mapping[str, int]:
    """Return the amounts that a pod holds on its node, in nanos; none if the pod is malformed."""
    try:
        return Pod.parse(dict(pod)).effective_requests()
    except PodError:
        return {}


def extended_claim(pod: Object) -> str:
    """Return the name of the claim that the scheduler made for a pod's extended resources, or ""."""
    return text_member(
        as_mapping(as_mapping(pod.get("status")).get("extendedResourceClaimStatus")), "resourceClaimName"
    )
