"""`sets suggest`: the packaged sets for the cards of a cluster."""

import re
from collections.abc import Collection, Mapping, Sequence

from rules_engine.model.gpu.mig import device_resource
from rules_engine.model.gpu.placements import PLACEMENTS
from rules_engine.model.gpu.resources import is_gpu, is_mig
from rules_engine.model.kubernetes.cluster import Cluster, Node

PRODUCT = "nvidia.com/gpu.product"
"""The label of nodes with the name of their cards, by GPU feature discovery."""

_PRODUCTS: Mapping[str, str] = {
    "A30": "A30",
    "A100-40GB": "A100-(.*-)?40GB",
    "A100-80GB": "A100-(.*-)?80GB",
    "H100-80GB": "H100-(80GB|PCIe)",
    "H100-94GB": "H100-NVL",
    "H200": "H200",
    "B200": "B200",
}
"""Patterns of product names by card, for the cards that have a set."""

CARD_SETS = {f"mig-{card.lower()}": frozenset(map(device_resource, PLACEMENTS[card])) for card in _PRODUCTS}
"""The MIG devices of a card by the name of its set."""


def group_cards(cluster: Cluster) -> Mapping[tuple[str | None, tuple[str, ...]], list[str]]:
    """Return the names of nodes with GPUs by the label of their cards and the sets that fit them."""
    groups: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
    for node in cluster.nodes:
        if PRODUCT in node.labels or any(map(is_gpu, node.allocatable)):
            groups.setdefault((node.labels.get(PRODUCT), _sets_of(node)), []).append(node.name)
    return groups


def sufficient_sets(groups: Collection[tuple[str | None, tuple[str, ...]]]) -> Sequence[str]:
    """Return the sets of all groups, without sets whose MIG devices are all in an earlier one.

    Unlabelled cards may be any that fit: they add no set if one of theirs fits a labelled card.
    """
    labelled = {name for product, sets in groups if product is not None for name in sets}
    fitting = labelled.union(*(sets for product, sets in groups if product is None and labelled.isdisjoint(sets)))
    names: list[str] = []
    for name, devices in CARD_SETS.items():
        if name in fitting and not any(devices <= CARD_SETS[other] for other in names):
            names.append(name)
    return names


def _sets_of(node: Node) -> tuple[str, ...]:
    """Return the sets for a node's cards, by their label, else by its MIG devices.

    With the MIG strategy single, nvidia.com/gpu is a MIG device: no ladder to whole cards fits.
    """
    product = node.labels.get(PRODUCT)
    if product is None:
        devices = {name for name, amount in node.allocatable.items() if amount and is_mig(name)}
        return tuple(name for name, every in CARD_SETS.items() if devices and devices <= every)
    fits = [re.search(f"(^|-){pattern}(-|$)", product) for pattern in _PRODUCTS.values()]
    return tuple(name for name, match in zip(CARD_SETS, fits, strict=True) if match and "-MIG-" not in product)
