"""The catalogue of accelerators: the packaged `accelerators.yaml`, and what users add to it.

The schema AcceleratorCatalogue.json documents the fields.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from rules_engine.language.yaml.documents import read_data
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json

MIG_RESOURCE = "nvidia.com/mig-"
"""Prefix of the resources of MIG devices, with the strategy mixed."""

PACKAGED = Path(__file__).with_name("accelerators.yaml")


class _Entry(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An entry of the catalogue."""

    name: str


class Vendor(_Entry, frozen=True, kw_only=True):
    """A vendor with patterns of its resources.

    `domains`: each name in them is of a device, but for `amounts`. `shares`: the share of a card by pattern; other
    devices are whole cards. `amounts`: parts of a device, such as MiB of its memory.
    """

    domains: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    shares: Mapping[str, str] = {}
    amounts: tuple[str, ...] = ()


class Card(_Entry, frozen=True, kw_only=True):
    """A card with its MIG profiles.

    `products`: a pattern of the product's name. `profiles`: by name, the placement in the layout; "" if it is not
    published. `aliases`: names that other drivers give to profiles. `partitions`: how many of them a card has, by
    their resource. `simulated`: no real card is so.
    """

    title: str = ""
    products: str = ""
    layout: str = ""
    profiles: Mapping[str, str] = {}
    partitions: Mapping[str, int] = {}
    aliases: Mapping[str, str] = {}
    simulated: bool = False

    def is_product(self, product: str) -> bool:
        """Return True for the name of a product, such as NVIDIA-A100-SXM4-40GB."""
        return bool(self.products) and re.search(f"(^|-)({self.products})(-|$)", product) is not None


class NodeLabel(_Entry, frozen=True, kw_only=True):
    """A label of nodes with cards. `cards`: the card by the label's value, where that is not the product.

    `is`: the label has the product or the vendor as its value; is true on such nodes; or marks them with any value.
    """

    name: str = msgspec.field(name="key")
    meaning: Literal["product", "vendor", "present", "mark"] = msgspec.field(name="is")
    cards: Mapping[str, str] = {}


class Driver(_Entry, frozen=True, kw_only=True):
    """A driver of Dynamic Resource Allocation, with the attributes that have the product and the profile."""

    product: str = ""
    profile: str = ""


class Companion(_Entry, frozen=True, kw_only=True):
    """Resources that are no accelerators. `words`: a pattern that is found in names after the domain."""

    domains: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    words: str = ""


class Catalogue(Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """Vendors, companions, cards, labels and drivers; the first that matches counts.

    `layouts`: placements by name, as `nvidia-smi mig -lgipp` prints them.
    """

    vendors: tuple[Vendor, ...] = ()
    companions: tuple[Companion, ...] = ()
    layouts: Mapping[str, Mapping[str, str]] = {}
    cards: tuple[Card, ...] = ()
    labels: tuple[NodeLabel, ...] = ()
    drivers: tuple[Driver, ...] = ()

    def __add__(self, other: "Catalogue") -> "Catalogue":
        """Return the catalogue with the entries of another one, which replace those of the same names."""
        return Catalogue(
            vendors=_merge(self.vendors, other.vendors),
            companions=_merge(self.companions, other.companions),
            layouts={**self.layouts, **other.layouts},
            cards=_merge(self.cards, other.cards),
            labels=_merge(self.labels, other.labels),
            drivers=_merge(self.drivers, other.drivers),
        )

    @cached_property
    def shares(self) -> Sequence[tuple[re.Pattern[str], Fraction]]:
        """Patterns of resources with the share of a card, 0 for those that are no devices; the first counts."""
        amounts = [name for each in self.vendors for name in each.amounts]
        amounts += [name for each in self.companions for name in each.resources]
        shares = {name: share for each in self.vendors for name, share in each.shares.items()}
        whole = [name for each in self.vendors for name in (*each.resources, *(f"{one}/*" for one in each.domains))]
        found = {**dict.fromkeys(whole, "1"), **shares, **dict.fromkeys(amounts, "0")}
        ordered = dict.fromkeys((*amounts, *shares, *whole))
        return [(re.compile(translate(name)), Fraction(found[name])) for name in ordered]

    @cached_property
    def resources(self) -> Sequence[str]:
        """The names of resources of device plugins, those of MIG devices last."""
        names = (name for each in self.vendors for name in (*each.resources, *each.shares))
        return (
            *(name for name in names if "*" not in name),
            *sorted(f"{MIG_RESOURCE}{name}" for name in self.profiles),
        )

    @cached_property
    def share_by_resource(self) -> dict[str, Fraction]:
        """Cached shares of a card by resource."""
        return {}

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


T = TypeVar("T", bound=_Entry)


def _merge(old: Sequence[T], new: Sequence[T]) -> tuple[T, ...]:
    """Return the new entries, then the old ones that they do not replace."""
    taken = {each.name for each in new}
    return (*new, *(each for each in old if each.name not in taken))


def read_catalogue(document: Json) -> Catalogue:
    """Return the catalogue of a valid document."""
    return msgspec.convert(as_mapping(document).get("spec"), Catalogue)


class _Current:
    """The catalogue of this process: the packaged one, which is read once, and what users add when it starts."""

    def __init__(self) -> None:
        self.added: tuple[Catalogue, ...] = ()

    @cached_property
    def packaged(self) -> Catalogue:
        return read_catalogue(read_data(PACKAGED))

    @cached_property
    def catalogue(self) -> Catalogue:
        return sum(self.added, self.packaged)


_current = _Current()


def catalogue() -> Catalogue:
    """Return the catalogue of this process."""
    return _current.catalogue


def use_catalogues(*added: Catalogue) -> None:
    """Add to the packaged catalogue, in place of what was added before; entries replace those of the same name."""
    _current.added = added
    _current.__dict__.pop("catalogue", None)
