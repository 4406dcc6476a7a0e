"""Cards of nodes, by their labels, by attributes of devices of drivers, and by MIG devices."""

from collections.abc import Iterable, Mapping, Sequence

from rules_engine.accelerators.catalogue import Card, NodeLabel, catalogue
from rules_engine.accelerators.mig import device_resource
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member


def product_of(labels: Mapping[str, str]) -> str:
    """Return the name of a node's card by the first label that has one, or ""."""
    return next((labels[label.name] for label in _product_labels() if labels.get(label.name)), "")


def has_cards(labels: Mapping[str, str]) -> bool:
    """Return True for the labels of a node with cards."""
    vendors = {each.name.lower() for each in catalogue().vendors}
    return any(
        {"product": bool(value), "vendor": value in vendors, "present": value == "true", "mark": True}[label.meaning]
        for label in catalogue().labels
        if (value := labels.get(label.name)) is not None
    )


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
    """Return the card of a product's name, or of a label's value; None if it may be one of several, such as a100."""
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
