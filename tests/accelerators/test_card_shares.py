"""Shares of a card that devices have."""

from fractions import Fraction

import pytest

from rules_engine.accelerators.catalogue import catalogue
from rules_engine.accelerators.mig import device_resource
from rules_engine.accelerators.resources import card_share


@pytest.mark.parametrize(
    ("resource", "share"),
    [
        ("nvidia.com/gpu", Fraction(1)),
        ("amd.com/gpu", Fraction(1)),
        ("nvidia.com/gpu.shared", Fraction(1)),
        ("nvidia.com/mig-1g.10gb", Fraction(1, 7)),
        ("nvidia.com/mig-1g.10gb.me.all", Fraction(1, 7)),
        ("nvidia.com/mig-3g.30gb", Fraction(3, 7)),
        ("nvidia.com/mig-7g.80gb", Fraction(1)),
        ("nvidia.com/mig-1c.3g.20gb", Fraction(1, 7)),
        ("nvidia.com/mig-2g.12gb", Fraction(2, 4)),  # A30
        ("nvidia.com/mig-4g.24gb", Fraction(1)),
        ("nvidia.com/mig-2g.48gb", Fraction(2, 4)),  # of two cards: the one with more slices
        ("nvidia.com/mig-1g.24gb", Fraction(1, 7)),
        ("nvidia.com/mig-2g.99gb", Fraction(2, 7)),  # no known card
        ("nvidia.com/mig-other", Fraction(1)),
    ],
)
def test_card_share_is_the_fraction_of_compute_slices(resource: str, share: Fraction) -> None:
    assert card_share(resource) == share


@pytest.mark.parametrize("card", [card.name for card in catalogue().cards if card.profiles and not card.simulated])
def test_no_card_share_exceeds_1(card: str) -> None:
    shares = [card_share(device_resource(profile)) for profile in catalogue().card(card).profiles]

    assert max(shares) <= 1
