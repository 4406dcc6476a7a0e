"""Layouts of cards, against an enumeration of what `nvidia-smi mig -lgipp` prints."""

import re

import pytest

from rules_engine.accelerators.catalogue import catalogue
from rules_engine.accelerators.mig import (
    card_layouts,
    device_resource,
    layout_error,
    placed_cards,
    placements,
    possible_layouts,
)
from rules_engine.accelerators.resources import card_share
from tests.support.placements import PRINTED, enumerate_layouts, key, largest_layouts


@pytest.mark.parametrize("card", PRINTED)
def test_possible_layouts_are_all_that_fill_the_memory_slices(card: str) -> None:
    layouts = possible_layouts(card)

    assert {*map(key, layouts)} == enumerate_layouts(card)
    assert len(layouts) == len(enumerate_layouts(card))


@pytest.mark.parametrize("card", PRINTED)
@pytest.mark.parametrize("pattern", [".*", "[^+]*", "[12].*"])
def test_layouts_are_the_possible_ones_that_no_other_contains(card: str, pattern: str) -> None:
    profiles = frozenset(name for name in placements(card) if re.fullmatch(pattern, name))
    layouts = card_layouts(card, profiles)

    assert {*map(key, layouts)} == largest_layouts(card, profiles)
    assert len(layouts) == len(largest_layouts(card, profiles))


def test_every_published_card_has_its_profiles_of_the_list_of_cards() -> None:
    assert PRINTED.keys() == {*placed_cards()}
    for card in placed_cards():
        assert placements(card).keys() == catalogue().card(card).profiles.keys()


@pytest.mark.parametrize("card", PRINTED)
def test_no_layout_has_more_compute_slices_than_the_card(card: str) -> None:
    for layout in possible_layouts(card):
        assert sum(card_share(device_resource(name)) for name in layout) <= 1


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("3g.40gb 1g.10gb 2g.20gb 1g.10gb", ""),
        ("7g.79gb 1g.10gb", ""),  # a name that only some drivers have
        ("3g.30gb 2g.20gb", ""),  # of a simulated card
        ("1g.23gb 1g.23gb 1g.23gb 1g.23gb 1g.23gb 1g.23gb 1g.23gb 1g.23gb", ""),  # of GB200, too
        (
            "1g.20gb 1g.20gb 1g.20gb 1g.20gb 2g.20gb",
            "these MIG devices overlap in every placement on a card: 1g.20gb {0,2,4,6}:2, 2g.20gb {0,2,4}:2",
        ),
        ("1g.6gb 4g.24gb", "these MIG devices overlap in every placement on a card: 1g.6gb {0,1,2,3}:1, 4g.24gb {0}:4"),
        ("3g.72gb 3g.72gb 3g.72gb", ""),  # of GH200, whose placements are not published
        ("1c.3g.40gb 1c.3g.40gb 1c.3g.40gb 3g.40gb", ""),  # two devices, the first of which is shared
        ("1g.10gb 5g.40gb", "no known card has the MIG profile '5g.40gb' (did you mean '7g.40gb'?)"),
        ("1g.5gb 2g.20gb 1g.5gb", "no known card has all of these MIG profiles: 1g.5gb, 2g.20gb"),
        ("1g.10gb+me 1g.10gb+me", "a card has at most one MIG device with media extensions"),
    ],
)
def test_a_layout_without_a_placement_is_named(layout: str, message: str) -> None:
    assert layout_error(tuple(layout.split())) == message
