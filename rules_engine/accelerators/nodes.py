"""Cards of nodes, by their labels, by attributes of devices of drivers, and by MIG devices."""

import re
from collections.abc import Iterable, Mapping, Sequence

from rules_engine.accelerators.catalogue import Card, NodeLabel, catalogue
from rules_engine.accelerators.mig import device_resource, profile_of, profile_order
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member


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
        driver = text_member(spec, "driver")
        name = attributes.get(driver, "")
        for device in object_items(spec.get("devices")):
            own = as_mapping(device.get("attributes"))
            if product := text_member(as_mapping(own.get(name) or own.get(f"{driver}/{name}")), "string"):
                found[text_member(spec, "nodeName") or text_member(device, "nodeName")] = product
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
