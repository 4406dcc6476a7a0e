"""MIG: the profiles of cards and of resources, where their devices can be placed, and layouts of cards.

Drivers round memory differently, so a card may have two names for one profile.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from rules_engine.accelerators.catalogue import MIG_RESOURCE, catalogue
from rules_engine.model.problems.problem import did_you_mean

_DEVICE_NAME = re.compile(r"(?:([1-7])c\.)?(([1-7])g\.[0-9]+gb)(?:\.me|\.all|-me|\.gfx){,3}(?:\.shared)?")
"""A resource's name after the prefix: a share of a device's compute slices (1c.3g.20gb), the profile, its extensions
("+" is "." in a resource's name), and the suffix of devices that are shared in time."""

CARD_SLICES = 7
"""Compute slices of most cards; A30 has 4."""

_PROFILE_SIZES = re.compile(r"([0-9]+)g\.([0-9]+)gb")


def device_resource(profile: str) -> str:
    """Return the resource of a profile's devices, with the MIG strategy mixed."""
    return f"{MIG_RESOURCE}{profile.replace('+', '.')}"


def profile_of(resource: str) -> str | None:
    """Return the profile of a MIG device's resource, else the whole name after the prefix; None for other resources."""
    if not resource.startswith(MIG_RESOURCE):
        return None
    name = resource.removeprefix(MIG_RESOURCE)
    match = _DEVICE_NAME.fullmatch(name)
    if match is None or int(match[1] or 1) > int(match[3]):
        return name
    return match[2]


def mig_share(resource: str) -> Fraction:
    """Return the share of a card's compute slices that a MIG device has; of a name that is no profile, 1."""
    match = _DEVICE_NAME.fullmatch(resource.removeprefix(MIG_RESOURCE))
    if match is None:
        return Fraction(1)
    profiles = [each for name in real_cards(cards_of(match[2])) for each in catalogue().card(name).profiles]
    return Fraction(int(match[1] or match[3]), max((profile_order(each)[0] for each in profiles), default=CARD_SLICES))


def compute_slices(resource: str) -> int | None:
    """Return the compute slices of a MIG device; None for other resources, and for profiles of no known card."""
    known = profile_of(resource) in catalogue().profiles
    match = _DEVICE_NAME.fullmatch(resource.removeprefix(MIG_RESOURCE)) if known else None
    return match and int(match[1] or match[3])


def cards_of(profile: str) -> frozenset[str]:
    """Return the cards that have a profile."""
    return catalogue().profiles.get(profile, frozenset())


def real_cards(cards: Iterable[str]) -> frozenset[str]:
    """Return the cards that are not simulated."""
    return frozenset(name for name in cards if not catalogue().card(name).simulated)


def profile_message(resource: str, beside: Iterable[str] = ()) -> str:
    """Return a message if no known card has the profile of a MIG device's resource; "" otherwise.

    The message suggests the nearest profile. Only cards that have the known profiles of all resources in `beside`
    count.
    """
    profile = profile_of(resource)
    if profile is None or profile in catalogue().profiles:
        return ""
    return f"no known card has the MIG profile '{profile}'{_suggest_profile(profile, beside)}"


def find_profiles(resources: Iterable[str]) -> Mapping[str, str]:
    """Return, by resource, the profiles of MIG devices of known cards; other resources are left out."""
    profiles = ((resource, profile_of(resource)) for resource in resources)
    return {resource: profile for resource, profile in profiles if profile and profile in catalogue().profiles}


def common_cards(profiles: Iterable[str]) -> frozenset[str]:
    """Return the cards that have all of the profiles."""
    return frozenset(each.name for each in catalogue().cards).intersection(*map(cards_of, profiles))


def _suggest_profile(profile: str, beside: Iterable[str]) -> str:
    """Return a clause with the profile of equally many slices with the nearest memory, else of similar spelling."""
    cards = real_cards(common_cards(find_profiles(beside).values())) or real_cards(common_cards(()))
    likely = {name for name, having in catalogue().profiles.items() if having & cards}
    sizes = _PROFILE_SIZES.fullmatch(profile)
    same_slices = [name for name in sorted(likely) if sizes and name.startswith(f"{sizes[1]}g.")]
    if not sizes or not same_slices:
        return did_you_mean(profile, likely)
    nearest = min(same_slices, key=lambda name: abs(profile_order(name)[1] - int(sizes[2])))
    return f" (did you mean '{nearest}'?)"


def profile_order(profile: str) -> tuple[int, int]:
    """Sort key of profiles: their compute slices, then their gigabytes."""
    slices, gigabytes = re.findall("[0-9]+", profile)
    return int(slices), int(gigabytes)


MEDIA = "+me"
"""Suffix of a profile with media extensions. A card has at most one such device, since it has only one OFA engine."""


@dataclass(frozen=True, slots=True)
class Placements:
    """The placements of a profile: the memory slices at which a device can start, and how many it takes."""

    starts: tuple[int, ...]
    size: int

    def __str__(self) -> str:
        return f"{{{','.join(map(str, self.starts))}}}:{self.size}"


def placements(card: str) -> Mapping[str, Placements]:
    """Return the placements of each profile of a card, in the order of their size; none if they are not published."""
    printed = catalogue().card(card).profiles
    placed = [name for name, starts in printed.items() if starts]
    placed.sort(key=lambda name: (not name.endswith("gb"), profile_order(name), name))
    parts = {name: printed[name].split(":") for name in placed}
    return {
        name: Placements(tuple(map(int, starts.strip("{}").split(","))), int(size))
        for name, (starts, size) in parts.items()
    }


def placed_cards() -> Sequence[str]:
    """Return the cards whose placements are published."""
    return [each.name for each in catalogue().cards if any(each.profiles.values())]


Layout = tuple[str, ...]
"""The profiles of the MIG devices of a card, each repeated for each of its devices."""


def possible_layouts(card: str) -> frozenset[Layout]:
    """Return every layout that some placement on a card realizes, each in the order of the card's table."""
    return _fill_card(tuple(placements(card).items()))


@cache
def _fill_card(table: tuple[tuple[str, Placements], ...]) -> frozenset[Layout]:
    used: dict[Layout, set[int]] = {(): {0}}
    """The memory slices that each layout can take, as bits."""
    for name, placed in table:
        extended, masks = [*used], [((1 << placed.size) - 1) << start for start in placed.starts]
        for layout in extended:  # which grows: a layout may have several devices of the profile
            if MEDIA in name and any(MEDIA in each for each in layout):
                continue
            longer = {before | mask for before in used[layout] for mask in masks if not before & mask}
            if longer:
                used[*layout, name] = longer
                extended.append((*layout, name))
    return frozenset(used)


def card_layouts(card: str, profiles: frozenset[str]) -> Sequence[Layout]:
    """Return the layouts of some of a card's profiles to which no further device of them can be added."""
    order = [name for name in placements(card) if name in profiles]
    possible = {layout for layout in possible_layouts(card) if layout and profiles.issuperset(layout)}
    return sorted(
        layout
        for layout in possible
        if not any(tuple(sorted((*layout, name), key=order.index)) in possible for name in order)
    )


def layout_error(layout: Layout) -> str:
    """Return why no known card has a layout; "" if one may have it, such as a card without published placements."""
    resources = [*map(device_resource, layout)]
    unknown = next(filter(None, (profile_message(name, resources) for name in resources)), "")
    if unknown:
        return unknown
    cards = common_cards(find_profiles(resources).values())
    if not cards:
        return f"no known card has all of these MIG profiles: {', '.join(dict.fromkeys(layout))}"
    placed = {name: placements(name) for name in placed_cards()}
    tables = {name: table for name, table in placed.items() if table.keys() >= set(layout)}
    if not tables or real_cards(cards) - placed.keys():
        return ""
    if any(tuple(sorted(layout, key=[*table].index)) in possible_layouts(card) for card, table in tables.items()):
        return ""
    if sum(MEDIA in name for name in layout) > 1:
        return "a card has at most one MIG device with media extensions"
    table = next(iter(tables.values()))
    shown = ", ".join(f"{name} {table[name]}" for name in dict.fromkeys(layout))
    return f"these MIG devices overlap in every placement on a card: {shown}"
