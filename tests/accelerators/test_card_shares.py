"""Shares of a card that devices have."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from rules_engine.accelerators.catalogue import catalogue
from rules_engine.accelerators.mig import device_resource
from rules_engine.accelerators.resources import card_share
from tests.support.authoring import cli, write
from tests.support.loading import rule


@pytest.mark.parametrize(
    ("resource", "share"),
    [
        ("nvidia.com/gpu", Fraction(1)),
        ("amd.com/gpu", Fraction(1)),
        ("nvidia.com/gpu.shared", Fraction(1)),
        ("amd.com/spx_nps1", Fraction(1)),
        ("amd.com/dpx_nps2", Fraction(1, 2)),
        ("amd.com/tpx_nps1", Fraction(1, 3)),
        ("amd.com/qpx_nps1", Fraction(1, 4)),
        ("amd.com/cpx_nps4", Fraction(1, 8)),
        ("tencent.com/vcuda-core", Fraction(1, 100)),
        ("nvidia.com/gpumem", Fraction(0)),
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


def test_gpu_hours_of_64_partitions_are_those_of_8_cards(tmp_path: Path) -> None:
    """Test that amounts of memory count for nothing, too."""
    pods = {"amd.com/cpx_nps1": {"amd.com/cpx_nps1": 64}, "amd.com/gpu": {"amd.com/gpu": 8, "nvidia.com/gpumem": 9000}}
    nodes = [{"name": name[8:11], "allocatable": {**amounts, "cpu": 8}} for name, amounts in pods.items()]
    containers = [[{"name": "c", "resources": {"limits": amounts}}] for amounts in pods.values()]
    arrivals = [{"pod": {"kind": "Pod", "spec": {"containers": each}}, "runFor": "1h"} for each in containers]
    spec = {"cluster": {"nodes": nodes}, "arrivals": arrivals}
    file = write(tmp_path, {"load.yaml": rule("Simulation", json.dumps(spec))}) / "load.yaml"
    answer = json.loads(cli("simulate", "-f", file, "-o", "json").stdout)
    hours = answer["comparison"]["rows"][0]["gpuHours"]
    assert (hours["given"], hours["requested"]) == (16, 16)
