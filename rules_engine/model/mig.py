"""MIG: the profiles of cards and of resources, where their devices can be placed, and layouts of cards.

Sources: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles"; the GPU Operator's default configuration of MIG
for B300, GB200, GB300 and GH200. Drivers round memory differently, so a card may have two names for one profile.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache

from rules_engine.model.problems.problem import did_you_mean

MIG_RESOURCE = "nvidia.com/mig-"
"""Prefix of the resources of MIG devices, with the strategy mixed."""

SIMULATED = "a simulated 80 GB card"
"""The card of the clusters on which the first GPU webhooks were developed: no real card has 3g.30gb."""

CARDS: Mapping[str, frozenset[str]] = {
    name: frozenset(profiles.split())
    for name, profiles in {
        "A30": "1g.6gb 2g.12gb 4g.24gb",
        "A100 40 GB": "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
        "A100 and H100 64 GB": "1g.8gb 1g.16gb 2g.16gb 3g.32gb 4g.32gb 7g.64gb",
        "A100 and H100 80 GB": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.79gb 7g.80gb",
        "H100 94 GB": "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
        "H20, H100 and GH200 96 GB": "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
        "H20 and H200 141 GB": "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
        "GH200 144 GB": "1g.18gb 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb",
        "B200": "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
        "GB200": "1g.23gb 1g.24gb 1g.47gb 2g.47gb 3g.93gb 3g.95gb 4g.93gb 4g.95gb 7g.186gb 7g.189gb",
        "B300": "1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb",
        "GB300": "1g.31gb 1g.35gb 1g.70gb 2g.70gb 3g.126gb 3g.139gb 4g.126gb 4g.139gb 7g.251gb 7g.278gb",
        "RTX PRO 4500": "1g.16gb 2g.32gb",
        "RTX PRO 5000": "1g.24gb 2g.48gb",
        "RTX PRO 6000": "1g.24gb 2g.48gb 4g.96gb",
        "Thor": "1g.0gb 2g.0gb 3g.0gb",
        SIMULATED: "1g.10gb 2g.20gb 3g.30gb",
    }.items()
}
"""Profiles of each card, without media or graphics extensions."""

PROFILES = frozenset[str]().union(*CARDS.values())

_DEVICE_NAME = re.compile(r"(?:([1-7])c\.)?(([1-7])g\.[0-9]+gb)(?:\.me|\.me\.all|-me|\.gfx)?(?:\.shared)?")
"""A resource's name after the prefix: a share of a device's compute slices (1c.3g.20gb), the profile, its extensions
("+" is "." in a resource's name), and the suffix of devices that are shared in time."""

CARD_SLICES = 7
"""Compute slices of most cards; A30 has 4."""

CACHED_SHARES = 1_000
"""Names of resources whose share of a card is cached: a cluster has some dozens."""

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


@lru_cache(CACHED_SHARES)
def card_share(resource: str) -> Fraction:
    """Return the share of a card's compute slices that a device of a GPU resource has; 1 for a whole card.

    If cards with different numbers of slices have the profile, the largest card counts. A device that is shared in time
    counts as the device itself.
    """
    if not resource.startswith(MIG_RESOURCE):
        return Fraction(1)
    match = _DEVICE_NAME.fullmatch(resource.removeprefix(MIG_RESOURCE))
    if match is None:
        return Fraction(1)
    return Fraction(int(match[1] or match[3]), _largest_card_slices(match[2]))


def compute_slices(resource: str) -> int | None:
    """Return the compute slices of a MIG device; None for other resources, and for profiles of no known card."""
    match = _DEVICE_NAME.fullmatch(resource.removeprefix(MIG_RESOURCE)) if profile_of(resource) in PROFILES else None
    return match and int(match[1] or match[3])


def _largest_card_slices(profile: str) -> int:
    cards = cards_of(profile) - {SIMULATED}
    return max((max(map(_profile_slices, CARDS[card])) for card in cards), default=CARD_SLICES)


def _profile_slices(profile: str) -> int:
    return int(profile.partition("g.")[0])


def cards_of(profile: str) -> frozenset[str]:
    """Return the cards that have a profile."""
    return frozenset(card for card, profiles in CARDS.items() if profile in profiles)


def profile_message(resource: str, beside: Iterable[str] = ()) -> str:
    """Return a message if no known card has the profile of a MIG device's resource; "" otherwise.

    The message suggests the nearest profile. Only cards that have the known profiles of all resources in `beside`
    count.
    """
    profile = profile_of(resource)
    if profile is None or profile in PROFILES:
        return ""
    return f"no known card has the MIG profile '{profile}'{_suggest_profile(profile, beside)}"


def find_profiles(resources: Iterable[str]) -> Mapping[str, str]:
    """Return, by resource, the profiles of MIG devices of known cards; other resources are left out."""
    profiles = {resource: profile_of(resource) for resource in resources}
    return {resource: profile for resource, profile in profiles.items() if profile in PROFILES}


def common_cards(profiles: Iterable[str]) -> frozenset[str]:
    """Return the cards that have all of the profiles."""
    return frozenset(CARDS).intersection(*map(cards_of, profiles))


def _suggest_profile(profile: str, beside: Iterable[str]) -> str:
    """Return a clause with the profile of equally many slices with the nearest memory, else of similar spelling."""
    cards = common_cards(find_profiles(beside).values()) - {SIMULATED} or CARDS.keys() - {SIMULATED}
    likely = frozenset[str]().union(*(CARDS[card] for card in cards))
    sizes = _PROFILE_SIZES.fullmatch(profile)
    same_slices = [name for name in sorted(likely) if sizes and name.startswith(f"{sizes[1]}g.")]
    if not sizes or not same_slices:
        return did_you_mean(profile, likely)
    nearest = min(same_slices, key=lambda name: abs(_profile_gigabytes(name) - int(sizes[2])))
    return f" (did you mean '{nearest}'?)"


def profile_order(profile: str) -> tuple[int, int]:
    """Sort key of profiles: their compute slices, then their gigabytes."""
    return _profile_slices(profile), _profile_gigabytes(profile)


def _profile_gigabytes(profile: str) -> int:
    return int(profile.partition(".")[2].removesuffix("gb"))


MEDIA = "+me"
"""Suffix of a profile with media extensions. A card has at most one such device, since it has only one OFA engine."""

PUBLISHED: Mapping[str, str] = {
    "A30": "A30",
    "A100-40GB": "A100 40 GB",
    "A100-80GB": "A100 and H100 80 GB",
    "H100-80GB": "A100 and H100 80 GB",
    "H100-94GB": "H100 94 GB",
    "H100-96GB": "H20, H100 and GH200 96 GB",
    "H200": "H20 and H200 141 GB",
    "B200": "B200",
}
"""The cards whose placements are published, each with its key in CARDS."""

_OTHER_NAMES = {"7g.79gb"}
"""Names that some drivers give to a profile of another name."""

_FOUR_SLICES = (((0, 1, 2, 3), 1), ((0, 2), 2), ((0,), 4))
_EIGHT_SLICES = (((0, 1, 2, 3, 4, 5, 6), 1), ((0, 2, 4, 6), 2), ((0, 2, 4), 2), ((0, 4), 4), ((0,), 4), ((0,), 8))
"""Starts and size, in memory slices, for the profiles of a card in the order of their compute slices, then memory."""


@dataclass(frozen=True, slots=True)
class Placements:
    """The placements of a profile: the memory slices at which a device can start, and how many it takes."""

    starts: Sequence[int]
    size: int

    def __str__(self) -> str:
        return f"{{{','.join(map(str, self.starts))}}}:{self.size}"

    @property
    def masks(self) -> Sequence[int]:
        """The memory slices of each placement, as bits."""
        return [((1 << self.size) - 1) << start for start in self.starts]


def _card_placements(key: str) -> Mapping[str, Placements]:
    profiles = sorted(CARDS[key] - _OTHER_NAMES, key=profile_order)
    rows = _FOUR_SLICES if key == "A30" else _EIGHT_SLICES
    table = {name: Placements(*row) for name, row in zip(profiles, rows, strict=True)}
    extended = profiles[: 2 if key == "A30" else 1]
    return table | {f"{name}{MEDIA}": table[name] for name in extended}


PLACEMENTS: Mapping[str, Mapping[str, Placements]] = {card: _card_placements(key) for card, key in PUBLISHED.items()}
"""The placements of each profile of a card."""

Layout = tuple[str, ...]
"""The profiles of the MIG devices of a card, each repeated for each of its devices."""


@cache
def possible_layouts(card: str) -> frozenset[Layout]:
    """Return every layout that some placement on a card realizes, each in the order of the card's table."""
    table = PLACEMENTS[card]
    used: dict[Layout, set[int]] = {(): {0}}
    """The memory slices that each layout can take, as bits."""
    for name, placements in table.items():
        extended = [*used]
        for layout in extended:  # which grows: a layout may have several devices of the profile
            if name.endswith(MEDIA) and any(each.endswith(MEDIA) for each in layout):
                continue
            longer = {before | mask for before in used[layout] for mask in placements.masks if not before & mask}
            if longer:
                used[*layout, name] = longer
                extended.append((*layout, name))
    return frozenset(used)


@cache
def card_layouts(card: str, profiles: frozenset[str]) -> Sequence[Layout]:
    """Return the layouts of some of a card's profiles to which no further device of them can be added."""
    order = [name for name in PLACEMENTS[card] if name in profiles]
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
    tables = {card: table for card, table in PLACEMENTS.items() if table.keys() >= set(layout)}
    if not tables or cards - {SIMULATED, *PUBLISHED.values()}:
        return ""
    if any(tuple(sorted(layout, key=[*table].index)) in possible_layouts(card) for card, table in tables.items()):
        return ""
    if sum(name.endswith(MEDIA) for name in layout) > 1:
        return "a card has at most one MIG device with media extensions"
    table = next(iter(tables.values()))
    placements = ", ".join(f"{name} {table[name]}" for name in dict.fromkeys(layout))
    return f"these MIG devices overlap in every placement on a card: {placements}"
