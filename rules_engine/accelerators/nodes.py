"""Cards of nodes, by their labels, by attributes of devices of drivers, and by MIG devices; nodes with accelerators."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rules_engine.accelerators.catalogue import Card, NodeLabel, catalogue
from rules_engine.accelerators.mig import device_resource, profile_of, profile_order
from rules_engine.accelerators.resources import is_gpu, is_rdma
from rules_engine.model.json.lenient import Object, as_mapping, as_string_map, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, NodeObject, PodObject, once, requests_of


def product_of(labels: Mapping[str, str]) -> str:
    """Return the name of a node's card by the first label that has one, or ""."""
    return next((labels[label.name] for label in _product_labels() if labels.get(label.name)), "")


def mark_of(labels: Mapping[str, str]) -> str:
    """Return the first label that marks a node with cards, as key=value; "" for other nodes."""
    vendors = {each.name.lower() for each in catalogue().vendors}
    for label in catalogue().labels:
        value = labels.get(label.name)
        marks = {"product": bool(value), "vendor": value in vendors, "present": value == "true", "mark": True}
        if value is not None and marks[label.meaning]:
            return f"{label.name}={value}"
    return ""


def device_products(slices: Iterable[Object]) -> Mapping[str, str]:
    """Return by node the product that an attribute of its devices names, from ResourceSlices; the last of several."""
    attributes = {driver.name: driver.product for driver in catalogue().drivers}
    found = {}
    for spec in (as_mapping(each.get("spec")) for each in slices):
        name = attributes.get(text_member(spec, "driver"), "")
        for device in object_items(spec.get("devices")):
            attribute = as_mapping(as_mapping(device.get("attributes")).get(name))
            if product := text_member(attribute, "string"):
                found[text_member(spec, "nodeName")] = product
    return found


def cards_of_product(product: str) -> Sequence[Card] | None:
    """Return the card of a product's name or a label's value, once for each way in which drivers divide it.

    None if it may be one of several cards, such as a100.
    """
    names = {label.cards.get(product) for label in _product_labels()}
    found = [card for card in catalogue().cards if card.name in names or card.is_product(product)]
    if not found and any(card.name.lower().startswith(f"{product.lower()}-") for card in catalogue().cards):
        return None
    return found


def cards_of_devices(resources: Iterable[str]) -> Sequence[Card] | None:
    """Return the card that has all of some MIG devices; None unless only one has them."""
    devices = {*resources}
    every = ((card, {*map(device_resource, (*card.profiles, *card.aliases))}) for card in catalogue().cards)
    found = [card for card, its in every if devices and devices <= its and not card.simulated]
    return found if len(found) == 1 else None


def _product_labels() -> Sequence[NodeLabel]:
    return [label for label in catalogue().labels if label.meaning == "product"]


_PARTS = re.compile("gpu|cuda", re.IGNORECASE)
"""Names, after the domain, of resources of parts of cards, which schedulers that share them offer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """The accelerators of a node. `product`, `vendor`: "" if unknown. `known_from`: a driver, resource, label or Pod.

    `offered`: True if a driver has devices, or the capacity is not 0.
    """

    product: str = ""
    vendor: str = ""
    known_from: str
    offered: bool = False


def gpus_of(node: NodeObject) -> NodeGpus | None:
    """Return the accelerators of a node; None for a node without any."""
    return _find_gpus(node.cluster).get(node.name)


def device_plugins(node: NodeObject) -> Sequence[PodObject]:
    """Return the unfinished pods of device plugins on a node."""
    words = "|".join(each.words for each in catalogue().operands if each.plugin)
    return [pod for pod in node.cluster.pods_on(node.name) if re.search(words, pod.name)]


def is_operand(name: str) -> bool:
    """Return True for the name of a pod or a DaemonSet that nodes with cards need, such as a device plugin."""
    return any(re.search(each.words, name) for each in catalogue().operands)


def profiles_of(product: str) -> Sequence[str]:
    """Return the MIG profiles that cards of a product have, without extensions; none if its card is not known."""
    names = {card.name for card in cards_of_product(product) or ()}
    return sorted((profile for profile, cards in catalogue().profiles.items() if cards & names), key=profile_order)


def lacking_cards(resource: str, products: Iterable[str]) -> Sequence[str]:
    """Return a text for each product whose card lacks the MIG profile of a resource that other cards have."""
    profile = profile_of(resource)
    having = {each: profiles_of(each) for each in sorted({*products} - {""})} if profile in catalogue().profiles else {}
    return [
        f"{product} does not have the MIG profile {profile}, but {', '.join(profiles)}"
        for product, profiles in having.items()
        if profiles and profile not in profiles
    ]


@once
def _find_gpus(objects: ClusterObjects) -> Mapping[str, NodeGpus]:
    drivers = {text_member(each, "nodeName"): text_member(each, "driver") for each in _slices_with_devices(objects)}
    products = device_products(objects.of("ResourceSlice"))
    found = {node.name: gpus for node in objects.nodes if (gpus := _known_gpus(node, drivers, products))}
    # Plugins are Ready on nodes without GPUs, too: they show some only if no node has any, and a pod waits for it.
    if not found and any(is_gpu(name) for pod in objects.pods if not pod.node_name for name in requests_of(pod)):
        found = {
            node.name: NodeGpus(known_from=str(plugin.object_name))
            for node in objects.nodes
            for plugin in device_plugins(node)
            if plugin.condition("Ready").get("status") == "True"
        }
    return found


def _slices_with_devices(objects: ClusterObjects) -> Iterable[Object]:
    """Return the specs of the slices of drivers of accelerators, by the catalogue or by a name with gpu."""
    drivers = {each.name for each in catalogue().drivers}
    specs = (each.spec for each in objects.of("ResourceSlice"))
    named = ((text_member(spec, "driver"), spec) for spec in specs if spec.get("devices"))
    return (spec for name, spec in named if name in drivers or "gpu" in name.lower())


def _known_gpus(node: NodeObject, drivers: Mapping[str, str], products: Mapping[str, str]) -> NodeGpus | None:
    labels = as_string_map(node.metadata.get("labels"))
    amounts = {**as_mapping(node.status.get("allocatable")), **as_mapping(node.status.get("capacity"))}
    offered = drivers.get(node.name) or next(
        (name for name, amount in amounts.items() if _is_offered(name, amount)), ""
    )
    mark = mark_of(labels)
    if not (offered or mark):
        return None
    vendors = (labels[each.name] for each in catalogue().labels if each.meaning == "vendor" and each.name in labels)
    return NodeGpus(
        product=products.get(node.name) or product_of(labels),
        vendor=next(vendors, ""),
        known_from=offered or f"label {mark}",
        offered=bool(offered),
    )


def _is_offered(resource: str, amount: Json) -> bool:
    parts = _PARTS.search(resource.partition("/")[2]) is not None
    return str(amount) != "0" and (is_gpu(resource) or (parts and not is_rdma(resource)))
