"""Layouts of cards, against an enumeration of what `nvidia-smi mig -lgipp` prints."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from rules_engine.model.gpu.mig import CARDS, card_share
from rules_engine.model.gpu.placements import PLACEMENTS, PUBLISHED, card_layouts, layout_error, possible_layouts

FOUR = "{a} {{0,1,2,3}}:1, {a}+me {{0,1,2,3}}:1, {b} {{0,2}}:2, {b}+me {{0,2}}:2, {c} {{0}}:4"
EIGHT = (
    "{a} {{0,1,2,3,4,5,6}}:1, {a}+me {{0,1,2,3,4,5,6}}:1, {b} {{0,2,4,6}}:2, {c} {{0,2,4}}:2, {d} {{0,4}}:4, "
    "{e} {{0}}:4, {f} {{0}}:8"
)
PRINTED = {
    "A30": FOUR.format(a="1g.6gb", b="2g.12gb", c="4g.24gb"),
    **{
        card: EIGHT.format(**dict(zip("abcdef", profiles.split(), strict=True)))
        for card, profiles in {
            "A100-40GB": "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
            "A100-80GB": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            "H100-80GB": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            "H100-94GB": "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
            "H100-96GB": "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
            "H200": "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
            "B200": "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
        }.items()
    },
}


Key = tuple[tuple[str, int], ...]


def key(devices: Iterable[str]) -> Key:
    return tuple(sorted(Counter(devices).items()))


@cache
def enumerate_layouts(card: str) -> frozenset[Key]:
    """Fill a card's memory slices one after the other, in every way."""
    printed = re.findall(r"(\S+) \{([\d,]+)\}:(\d)", PRINTED[card])
    sizes = {name: int(size) for name, _, size in printed}
    starts = {name: {int(start) for start in starts.split(",")} for name, starts, _ in printed}

    def fill(slice_: int, devices: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if slice_ >= 8:
            yield devices
            return
        yield from fill(slice_ + 1, devices)
        for name, size in sizes.items():
            media = name.endswith("+me") and any(other.endswith("+me") for other in devices)
            if slice_ in starts[name] and not media:
                yield from fill(slice_ + size, (*devices, name))

    return frozenset(key(devices) for devices in fill(0, ()))


@pytest.mark.parametrize("card", PRINTED)
def test_possible_layouts_are_all_that_fill_the_memory_slices(card: str) -> None:
    layouts = possible_layouts(card)

    assert {*map(key, layouts)} == enumerate_layouts(card)
    assert len(layouts) == len(enumerate_layouts(card))


@pytest.mark.parametrize("card", PRINTED)
@pytest.mark.parametrize("pattern", [".*", "[^+]*", "[12].*"])
def test_layouts_are_the_possible_ones_that_no_other_contains(card: str, pattern: str) -> None:
    profiles = frozenset(name for name in PLACEMENTS[card] if re.fullmatch(pattern, name))
    every = [Counter(dict(each)) for each in enumerate_layouts(card) if profiles.issuperset(dict(each))]
    largest = {key(layout.elements()) for layout in every if not any(layout < other for other in every)}

    layouts = card_layouts(card, profiles)

    assert {*map(key, layouts)} == largest
    assert len(layouts) == len(largest)


def test_every_published_card_has_its_profiles_of_the_list_of_cards() -> None:
    assert PRINTED.keys() == PLACEMENTS.keys()
    for card, table in PLACEMENTS.items():
        names = {name for name in table if "+" not in name}
        assert names == CARDS[PUBLISHED[card]] - {"7g.79gb"}


@pytest.mark.parametrize("card", PLACEMENTS)
def test_no_layout_has_more_compute_slices_than_the_card(card: str) -> None:
    for layout in possible_layouts(card):
        assert sum(card_share(f"nvidia.com/mig-{name.replace('+', '.')}") for name in layout) <= 1


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("3g.40gb 1g.10gb 2g.20gb 1g.10gb", ""),
        ("7g.79gb 1g.10gb", ""),  # a name that only some drivers have
        ("3g.30gb 2g.20gb", ""),
        ("1g.23gb 1g.23gb 1g.23gb 1g.23gb 1g.23gb 1g.23gb 1g.23gb 1g.23gb", ""),  # of GB200, too
        (
            "1g.20gb 1g.20gb 1g.20gb 1g.20gb 2g.20gb",
            "these MIG devices overlap in every placement on a card: 1g.20gb {0,2,4,6}:2, 2g.20gb {0,2,4}:2",
        ),
        ("1g.6gb 4g.24gb", "these MIG devices overlap in every placement on a card: 1g.6gb {0,1,2,3}:1, 4g.24gb {0}:4"),
        ("1g.10gb+me 1g.10gb+me", "a card has at most one MIG device with media extensions"),
    ],
)
def test_a_layout_without_a_placement_is_named(layout: str, message: str) -> None:
    assert layout_error(tuple(layout.split())) == message
