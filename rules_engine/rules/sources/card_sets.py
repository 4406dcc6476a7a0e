"""`sets suggest`: the packaged sets for the cards of a cluster."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from rules_engine.accelerators.catalogue import Card, catalogue
from rules_engine.accelerators.mig import device_resource
from rules_engine.accelerators.resources import is_gpu, is_mig
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.problems.problem import Problem
from rules_engine.report.answer import Answer

PRODUCT = "nvidia.com/gpu.product"
"""The label of nodes with the name of their cards, by GPU feature discovery."""


def card_sets() -> Mapping[str, Card]:
    """Return the cards that have a set, by the name of the set."""
    cards = (each for each in catalogue().cards if each.products and each.profiles)
    return {f"mig-{card.name.lower()}": card for card in cards}


class Cards(Output, frozen=True, kw_only=True):
    """The nodes whose cards have the same label, and whom the same sets fit."""

    product: Annotated[str | None, Meta(description=f"The label {PRODUCT}. Null: none.")]
    nodes: Annotated[tuple[str, ...], Meta(description="Names of nodes.")]
    sets: Annotated[tuple[str, ...], Meta(description="Without the label: all with the MIG devices of the nodes.")]


class SetSuggestion(Answer, frozen=True, kw_only=True):
    """The packaged sets that fit the cards of a cluster's nodes."""

    cards: Annotated[tuple[Cards, ...], Meta(description="Nodes without GPUs are left out.")]
    sets: Annotated[tuple[str, ...], Meta(description="Sets that suffice for all nodes.")]


def suggest_sets(cluster: Cluster, problems: Sequence[Problem] = ()) -> SetSuggestion:
    """Suggest sets for the nodes with GPUs."""
    groups: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
    for node in cluster.nodes:
        if PRODUCT in node.labels or any(map(is_gpu, node.allocatable)):
            groups.setdefault((node.labels.get(PRODUCT), _sets_of(node)), []).append(node.name)
    return SetSuggestion(
        problems=tuple(problems),
        cards=tuple(Cards(product=key[0], nodes=tuple(nodes), sets=key[1]) for key, nodes in groups.items()),
        sets=_sufficient_sets(groups.keys()),
    )


def _sufficient_sets(groups: Collection[tuple[str | None, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return the sets of all groups, without sets whose MIG devices are all in an earlier one.

    Unlabelled cards may be any that fit: they add no set if one of theirs fits a labelled card.
    """
    labelled = {name for product, sets in groups if product is not None for name in sets}
    fitting = labelled.union(*(sets for product, sets in groups if product is None and labelled.isdisjoint(sets)))
    names: list[str] = []
    devices = _devices_by_set()
    for name, each in devices.items():
        if name in fitting and not any(each <= devices[other] for other in names):
            names.append(name)
    return tuple(names)


def _sets_of(node: Node) -> tuple[str, ...]:
    """Return the sets for a node's cards, by their label, else by its MIG devices.

    With the MIG strategy single, nvidia.com/gpu is a MIG device: no ladder to whole cards fits.
    """
    product = node.labels.get(PRODUCT)
    if product is None:
        devices = {name for name, amount in node.allocatable.items() if amount and is_mig(name)}
        return tuple(name for name, every in _devices_by_set().items() if devices and devices <= every)
    return tuple(name for name, card in card_sets().items() if card.is_product(product) and "-MIG-" not in product)


def _devices_by_set() -> Mapping[str, frozenset[str]]:
    return {name: frozenset(map(device_resource, card.profiles)) for name, card in card_sets().items()}
