"""Cards of nodes, by their labels, by attributes of devices of drivers, and by MIG devices."""

from collections.abc import Iterable, Mapping, Sequence

from rules_engine.accelerators.catalogue import Card, NodeLabel, catalogue
from rules_engine.accelerators.mig import device_resource
from rules_engine.model.kubernetes.devices import ResourceSlice


def product_of(labels: Mapping[str, str]) -> str:
    """Return the name of a node's card by the first label that has one, or ""."""
    return next((labels[label.name] for label in _product_labels() if labels.get(label.name)), "")


def has_cards(labels: Mapping[str, str]) -> bool:
    """Return True for the labels of a node with cards."""
    known = catalogue()
    values = {"present": ["true"], "vendor": [each.name.lower() for each in known.vendors]}
    found = (label for label in known.labels if label.name in labels)
    return any(labels[label.name] in values.get(label.meaning, [labels[label.name]]) for label in found) or bool(
        product_of(labels)
    )


def device_products(slices: Iterable[ResourceSlice]) -> Mapping[str, str]:
    """Return the product that drivers name by node; a node has the last of several."""
    attributes = {driver.name: driver.product for driver in catalogue().drivers}
    return {
        selection.name: str(device.attributes[each.driver][attributes[each.driver]])
        for each in slices
        for device in each.devices
        if (selection := device.nodes or each.nodes)
        and attributes.get(each.driver) in device.attributes.get(each.driver, {})
    }


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
