"""Nodes with accelerators: what shows them, and the drivers whose devices reach them."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from msgspec.structs import asdict

from rules_engine.accelerators.catalogue import catalogue
from rules_engine.accelerators.nodes import device_products, mark_of, product_of
from rules_engine.accelerators.resources import is_gpu, is_rdma
from rules_engine.cluster.devices.pools import reaches
from rules_engine.model.json.lenient import as_mapping, as_string_map
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, NodeObject, PodObject, once, requests_of
from rules_engine.model.kubernetes.devices import NodeSelection

_PARTS = re.compile("gpu|cuda", re.IGNORECASE)
"""Names, after the domain, of resources of parts of cards, which schedulers that share them offer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """The accelerators of a node. `product`, `vendor`: "" if unknown. `known_from`: a driver, resource, label or Pod.

    `offered`: True if a driver has devices, or the capacity is not 0. `drivers`: those whose devices reach the node.
    `offered_twice`: the resources of a device plugin for the cards whose devices a driver publishes, too.
    """

    product: str = ""
    vendor: str = ""
    known_from: str
    offered: bool = False
    drivers: Sequence[str] = ()
    offered_twice: Sequence[str] = ()


def gpus_of(node: NodeObject) -> NodeGpus | None:
    """Return the accelerators of a node; None for a node without any."""
    return _find_gpus(node.cluster).get(node.name)


def device_plugins(node: NodeObject) -> Sequence[PodObject]:
    """Return the unfinished pods of device plugins on a node."""
    words = "|".join(each.words for each in catalogue().operands if each.plugin)
    return [pod for pod in node.cluster.pods_on(node.name) if re.search(words, pod.name)]


def serves_cards_of(driver: str, resource: str) -> bool:
    """Return True if a driver publishes the cards that a device plugin offers as a resource."""
    patterns = (pattern for each in catalogue().drivers if each.name == driver for pattern in each.resources)
    return is_gpu(resource) and any(fnmatchcase(resource, pattern) for pattern in patterns)


@once
def device_taints(objects: ClusterObjects) -> Mapping[str, Sequence[Mapping[str, str]]]:
    """Return the taints that repel pods from each node's own devices: key, value, effect, and driver/pool/name."""
    taints: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for part in objects.devices.tainted_slices:
        for device in part.devices:
            nodes = part.nodes or device.nodes
            if nodes and nodes.name:
                name = f"{part.driver}/{part.pool}/{device.name}"
                taints[nodes.name] += [{**asdict(taint), "device": name} for taint in device.taints]
    return taints


@once
def _find_gpus(objects: ClusterObjects) -> Mapping[str, NodeGpus]:
    products = device_products(objects.of("ResourceSlice"))
    drivers = _find_drivers(objects)
    found = {
        node.name: gpus
        for node in objects.nodes
        if (gpus := _known_gpus(node, sorted(drivers[node.name]), products.get(node.name, "")))
    }
    # Plugins are Ready on nodes without GPUs, too: they show some only if no node has any, and a pod waits for it.
    if not found and any(is_gpu(name) for pod in objects.pods if not pod.node_name for name in requests_of(pod)):
        found = {
            node.name: NodeGpus(known_from=str(plugin.object_name))
            for node in objects.nodes
            for plugin in device_plugins(node)
            if plugin.condition("Ready").get("status") == "True"
        }
    return found


def _find_drivers(objects: ClusterObjects) -> Mapping[str, set[str]]:
    """Return by node the drivers of accelerators, by the catalogue or by a name with gpu, whose devices reach it."""
    known = {each.name for each in catalogue().drivers}
    drivers: dict[str, set[str]] = defaultdict(set)
    wider: set[tuple[str, NodeSelection]] = set()
    for each in objects.devices.slices:
        if each.driver in known or "gpu" in each.driver.lower():
            for selection in {own for device in each.devices if (own := each.nodes or device.nodes)}:
                if selection.name:
                    drivers[selection.name].add(each.driver)
                else:
                    wider.add((each.driver, selection))
    for driver, selection in wider:
        for node in objects.view.nodes:
            if reaches(selection, node):
                drivers[node.name].add(driver)
    return drivers


def _known_gpus(node: NodeObject, drivers: Sequence[str], product: str) -> NodeGpus | None:
    labels = as_string_map(node.metadata.get("labels"))
    allocatable = as_mapping(node.status.get("allocatable"))
    amounts = {**allocatable, **as_mapping(node.status.get("capacity"))}
    resources = [name for name, amount in amounts.items() if _is_offered(name, amount)]
    offered = next(iter((*drivers, *resources)), "")
    mark = mark_of(labels)
    if not (offered or mark):
        return None
    vendors = (labels[each.name] for each in catalogue().labels if each.meaning == "vendor" and each.name in labels)
    return NodeGpus(
        product=product or product_of(labels),
        vendor=next(vendors, ""),
        known_from=offered or f"label {mark}",
        offered=bool(offered),
        drivers=drivers,
        offered_twice=[
            name
            for name, amount in allocatable.items()
            if str(amount) != "0" and any(serves_cards_of(driver, name) for driver in drivers)
        ],
    )


def _is_offered(resource: str, amount: Json) -> bool:
    parts = _PARTS.search(resource.partition("/")[2]) is not None
    return str(amount) != "0" and (is_gpu(resource) or (parts and not is_rdma(resource)))
