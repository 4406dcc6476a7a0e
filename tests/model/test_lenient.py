"""Lenient JSON readers: no value is an error."""

from rules_engine.model.json.lenient import MAX_OWNERS, controller
from rules_engine.model.json.patch import Json


def owned(*references: Json) -> Json:
    return {"metadata": {"ownerReferences": list(references)}}


def test_the_controller_is_the_owner_marked_as_such() -> None:
    job: Json = {"kind": "Job", "name": "train", "controller": True}
    assert controller(owned({"kind": "Other", "name": "x"}, None, job)) == job
    assert controller(owned({"kind": "Job", "name": "x", "controller": "true"})) is None
    assert controller({}) is None


def test_the_number_of_owners_read_is_bounded() -> None:
    job: Json = {"kind": "Job", "name": "train", "controller": True}
    assert controller(owned(*[None] * (MAX_OWNERS - 1), job)) == job
    assert controller(owned(*[None] * MAX_OWNERS, job)) is None
