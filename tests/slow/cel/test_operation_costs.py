"""The charge of every operation covers its steps; `make fuzz` measures time."""

import random

import pytest

from tests.fuzz import cel_costs

STEPS_PER_UNIT = 10
"""Calls for one unit of cost."""


SIZES = (60, 250)


def test_the_charge_covers_the_steps_of_every_operation(run_seed: int) -> None:
    source = random.Random(run_seed)
    every = list(cel_costs.operations())
    assert len(every) > 300
    undercharged = [
        f"{steps / units:.1f} steps per unit: {attack}, size {size}"
        for operation in every
        for attack in (cel_costs.drawn(operation, source),)
        for size in SIZES
        for steps, units in cel_costs.counted(attack, size)
        if steps > STEPS_PER_UNIT * units
    ]
    assert undercharged == []


def test_the_fuzzer_finds_operations_beyond_their_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cel_costs.run(0, 1) == []
    monkeypatch.setattr(cel_costs, "LIMIT", 0)
    undercharged = cel_costs.run(2, 1)
    assert undercharged
    assert "times its charge" in undercharged[0]
