"""The catalogue of accelerators: the packaged `accelerators.yaml`, and what users add to it.

The schema AcceleratorCatalogue.json documents the fields.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rules_engine.language import fields
from rules_engine.language.yaml.documents import read_data
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, did_you_mean

MIG_RESOURCE = "nvidia.com/mig-"
"""Prefix of the resources of MIG devices, with the strategy mixed."""

NONE = "(?!)"
"""A regular expression that nothing matches."""

MAX_PRODUCT = 64
"""Characters of a product's name: the API server's bound for an attribute of a device; for a label, it is 63."""

PACKAGED = Path(__file__).with_name("accelerators.yaml")


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the catalogue; it replaces the packaged one of the same name."""

    name: str


class Vendor(_Entry, frozen=True, kw_only=True):
    """A vendor with patterns of its resources."""

    domains: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    shares: Mapping[str, str] = {}
    amounts: tuple[str, ...] = ()


class Network(_Entry, frozen=True, kw_only=True):
    """Resources of network devices, by their domain or by a pattern of words in their name."""

    domains: tuple[str, ...] = ()
    words: str = NONE


class Card(_Entry, frozen=True, kw_only=True):
    """A card with its MIG profiles, or with its partitions by their resource."""

    title: str = ""
    products: str = NONE
    profiles: Mapping[str, str] = {}
    aliases: Mapping[str, str] = {}
    partitions: Mapping[str, int] = {}
    simulated: bool = False

    def is_product(self, product: str) -> bool:
        """Return True for a product, such as NVIDIA-A100-SXM4-40GB, by a label or with spaces by a driver."""
        return re.search(f"(^|-)({self.products})(-|$)", re.sub("[ _]", "-", product[:MAX_PRODUCT])) is not None


class NodeLabel(_Entry, frozen=True, kw_only=True):
    """A label of nodes with cards."""

    meaning: str
    cards: Mapping[str, str] = {}


class Driver(_Entry, frozen=True, kw_only=True):
    """A driver of Dynamic Resource Allocation. `resources`: those of device plugins for the same cards.

    By name those of whole cards, by a pattern others.
    """

    product: str
    resources: tuple[str, ...] = ()


class Operand(_Entry, frozen=True, kw_only=True):
    """Pods and DaemonSets that nodes with cards need, by a pattern of names. `plugin`: they are device plugins."""

    words: str
    plugin: bool = False


class Scheduler(_Entry, frozen=True, kw_only=True):
    """A scheduler, with the resources and the annotations by which pods request GPUs of it alone.

    `webhook`: how pods get its name, as a clause such as: HAMi's webhook sets it.
    """

    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    webhook: str = ""


class Catalogue(Struct, frozen=True, eq=False, kw_only=True, dict=True, forbid_unknown_fields=True):
    """Vendors, networks, cards, labels of nodes, drivers, operands and schedulers; the first that matches counts."""

    vendors: tuple[Vendor, ...] = ()
    networks: tuple[Network, ...] = ()
    cards: tuple[Card, ...] = ()
    labels: tuple[NodeLabel, ...] = ()
    drivers: tuple[Driver, ...] = ()
    operands: tuple[Operand, ...] = ()
    schedulers: tuple[Scheduler, ...] = ()

    def __add__(self, other: "Catalogue") -> "Catalogue":
        """Return the catalogue with another one's entries first; these replace entries of the same name."""
        merged: dict[str, Any] = {}
        for name in self.__struct_fields__:
            entries = {each.name: each for each in getattr(other, name)}
            merged[name] = (*entries.values(), *(each for each in getattr(self, name) if each.name not in entries))
        return Catalogue(**merged)

    @cached_property
    def shares(self) -> Sequence[tuple[re.Pattern[str], Fraction]]:
        """Patterns of resources with the share of a card, 0 for those that are no devices; the first counts."""
        rows = [(name, "0") for each in self.vendors for name in each.amounts]
        rows += [row for each in self.vendors for row in each.shares.items()]
        whole = [(*each.resources, *(f"{domain}/*" for domain in each.domains)) for each in self.vendors]
        rows += [(name, "1") for names in whole for name in names]
        return [(re.compile(translate(name)), Fraction(share)) for name, share in rows]

    @cached_property
    def resources(self) -> Sequence[str]:
        """The names and patterns of resources of device plugins, those of MIG devices last."""
        names = [name for each in self.vendors for name in (*each.resources, *each.shares)]
        return (*names, *sorted(f"{MIG_RESOURCE}{name}" for name in self.profiles))

    @cached_property
    def profiles(self) -> Mapping[str, frozenset[str]]:
        """The cards by profile, without extensions and with aliases."""
        found: dict[str, set[str]] = {}
        for card in self.cards:
            for name in (*card.profiles, *card.aliases):
                found.setdefault(re.split(r"\+|-", name)[0], set()).add(card.name)
        return {name: frozenset(cards) for name, cards in found.items()}

    def card(self, name: str) -> Card:
        """Return a card by its name. Raises KeyError."""
        return {each.name: each for each in self.cards}[name]


def read_catalogue(root: MapNode, problems: Problems) -> Catalogue:
    """Read a validated document; report what its schema does not."""
    spec = fields.map_field(root, "spec")
    for list_, name in (("cards", "products"), ("networks", "words"), ("operands", "words")):
        for node in (node for item in fields.map_items(spec, list_) for key, node in item if key.source.text == name):
            try:
                re.compile(str(node.json()))
            except re.error as error:
                problems.error(Code.WRONG_VALUE, f"not a regular expression: {error}", node)
    for entries in Catalogue.__struct_fields__:
        fields.report_repeated(
            Code.DUPLICATE_NAME, (item.get("name") for item in fields.map_items(spec, entries)), problems
        )
    for card in fields.map_items(spec, "cards"):
        _check_card(card, problems)
    return Catalogue() if problems.failed else msgspec.convert(spec.json(), Catalogue)


def _check_card(card: MapNode, problems: Problems) -> None:
    """Report a name that no set can have, and aliases of profiles that the card lacks."""
    name = card.get("name")
    if name is not None and card.get("products") is not None and not re.fullmatch("[A-Za-z0-9-]+", str(name.json())):
        message = f"'{name.json()}' cannot be part of a set's name: use letters, digits and '-'"
        problems.error(Code.WRONG_FORM, message, name)
    profiles = [key.source.text for key, _ in fields.map_field(card, "profiles")]
    for _, profile in fields.map_field(card, "aliases"):
        if (value := str(profile.json())) not in profiles:
            message = f"the card has no profile '{value}'{did_you_mean(value, profiles)}"
            problems.error(Code.WRONG_VALUE, message, profile)


_added: list[Catalogue] = []
"""The catalogue with the entries of users; empty without any."""


def catalogue() -> Catalogue:
    """Return the catalogue of this process."""
    return _added[0] if _added else packaged_catalogue()


@cache
def packaged_catalogue() -> Catalogue:
    """Return the catalogue without entries of users."""
    return msgspec.convert(as_mapping(read_data(PACKAGED)).get("spec"), Catalogue)


def add_catalogue(added: Catalogue) -> None:
    """Add to the catalogue of this process."""
    _added[:] = [catalogue() + added]
