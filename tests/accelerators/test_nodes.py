"""The MIG profiles of cards by their products."""

from rules_engine.accelerators.nodes import lacking_cards
from tests.support.api import GPU


def test_a_profile_that_a_card_lacks_is_named_with_those_that_it_has() -> None:
    cards = ["NVIDIA-A100-SXM4-80GB", "NVIDIA-L4", ""]
    profiles = "1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.79gb, 7g.80gb"
    text = f"NVIDIA-A100-SXM4-80GB does not have the MIG profile 1g.5gb, but {profiles}"
    assert [*lacking_cards("nvidia.com/mig-1g.5gb", cards)] == [text]
    for resource in ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-9g.1gb", GPU):
        assert lacking_cards(resource, cards) == []


def test_a_card_has_the_profiles_of_older_drivers_too() -> None:
    products = ["NVIDIA-RTX-PRO-5000-Blackwell"]
    assert lacking_cards("nvidia.com/mig-1g.12gb", products) == lacking_cards("nvidia.com/mig-1g.24gb", products) == []
