"""`sets suggest`: the packaged sets for the cards of a cluster."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta

from rules_engine.accelerators.nodes import cards_of_devices, cards_of_product, device_products, product_of
from rules_engine.accelerators.resources import is_gpu, is_mig
from rules_engine.model.json.lenient import Object
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.problems.problem import Problem
from rules_engine.report.answer import Answer
from rules_engine.rules.sources.card_files import card_sets


class Cards(Output, frozen=True, kw_only=True):
    """The nodes with cards of the same name, and with the same sets."""

    product: Annotated[str | None, Meta(description="The card by a driver or a label. Null: neither names it.")]
    nodes: Annotated[tuple[str, ...], Meta(description="Names of nodes.")]
    sets: Annotated[tuple[str, ...], Meta(description="The sets of the card; none if it has none, or is not known.")]
    unknown: Annotated[str, Meta(description="Why it is not known which card the nodes have; empty if it is.")] = ""


class SetSuggestion(Answer, frozen=True, kw_only=True):
    """The packaged sets that fit the cards of a cluster's nodes."""

    cards: Annotated[tuple[Cards, ...], Meta(description="Nodes without GPUs are left out.")]
    sets: Annotated[tuple[str, ...], Meta(description="Sets that suffice for all nodes whose card is known.")]


def suggest_sets(cluster: Cluster, slices: Iterable[Object], problems: Sequence[Problem] = ()) -> SetSuggestion:
    """Suggest sets for the nodes with GPUs; `slices`: the ResourceSlices as objects."""
    products = device_products(slices)
    groups: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for node in cluster.nodes:
        product = products.get(node.name) or product_of(node.labels)
        if product or any(map(is_gpu, node.allocatable)):
            groups.setdefault((product, *_sets_of(node, product)), []).append(node.name)
    return SetSuggestion(
        problems=tuple(problems),
        cards=tuple(
            Cards(product=product or None, nodes=tuple(nodes), sets=sets, unknown=unknown and f"{unknown} {nodes[0]}")
            for (product, sets, unknown), nodes in groups.items()
        ),
        sets=_sufficient_sets(name for _, sets, _ in groups for name in sets),
    )


def _sufficient_sets(fitting: Iterable[str]) -> tuple[str, ...]:
    """Return the sets without those whose devices are all in an earlier one."""
    wanted, devices = {*fitting}, {name: {*card.profiles, *card.partitions} for name, card in card_sets().items()}
    names: list[str] = []
    for name, each in devices.items():
        if name in wanted and not any(each <= devices[other] for other in names):
            names.append(name)
    return tuple(names)


def _sets_of(node: Node, product: str) -> tuple[tuple[str, ...], str]:
    """Return the sets for a node's card, else why the card is not known.

    With the MIG strategy single, nvidia.com/gpu is a MIG device: no ladder to whole cards fits.
    """
    if product:
        cards, reason = cards_of_product(product), f"{product} may be any of several cards, on node"
    else:
        devices = {name for name, amount in node.allocatable.items() if amount and is_mig(name)}
        cards, reason = cards_of_devices(devices), "no product label and no device attribute on node"
    if cards is None:
        return (), f"cannot tell: {reason}"
    return tuple(name for name, card in card_sets().items() if card in cards and "-MIG-" not in product), ""
