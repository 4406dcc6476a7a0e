"""Lenient JSON readers: no value is an error."""

import pytest

from rules_engine.model.json.lenient import MAX_OWNERS, controller_reference, integer_member
from rules_engine.model.json.patch import Json


def owned(*references: Json) -> Json:
    return {"metadata": {"ownerReferences": list(references)}}


def test_the_controller_is_the_owner_with_controller_true() -> None:
    job: Json = {"kind": "Job", "name": "train", "controller": True}
    assert controller_reference(owned({"kind": "Other", "name": "x"}, None, job)) == job
    assert controller_reference(owned({"kind": "Job", "name": "x", "controller": "true"})) is None
    assert controller_reference({}) is None


def test_the_number_of_owners_read_is_bounded() -> None:
    job: Json = {"kind": "Job", "name": "train", "controller": True}
    assert controller_reference(owned(*[None] * (MAX_OWNERS - 1), job)) == job
    assert controller_reference(owned(*[None] * MAX_OWNERS, job)) is None


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, -(2**63)])
def test_an_integer_is_read(value: int) -> None:
    assert integer_member({"count": value}, "count", 5) == value


@pytest.mark.parametrize("value", [True, 2**63, -(2**63) - 1, 1.0, "1", None, [1]])
def test_other_values_yield_the_default_integer(value: Json) -> None:
    assert integer_member({"count": value}, "count", 5) == integer_member({}, "count", 5) == 5
