"""Placements of MIG devices by card, and the layouts that they allow.

Sources: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles": the profiles, the number of each, and
the figures of their placements; `nvidia-smi mig -lgipp` on A30, A100 and H100 prints the same placements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from rules_engine.model.gpu.mig import (
    CARDS,
    SIMULATED,
    common_cards,
    device_resource,
    find_profiles,
    profile_message,
    profile_order,
)

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
