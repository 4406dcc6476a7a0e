"""Times at which objects were changed."""

from datetime import UTC, datetime

import pytest

from rules_engine.model.json.lenient import Object
from rules_engine.model.kubernetes.cluster_objects import TIME_MEMBERS, newest_change_time, parse_change_time

OLD, NEW = "2026-11-21T10:00:00Z", "2026-11-22T10:00:00.123456789Z"


@pytest.mark.parametrize("member", TIME_MEMBERS)
def test_the_newest_time_of_a_change_counts(member: str) -> None:
    places: list[Object] = [{member: NEW}, {"metadata": {member: NEW}}, {"status": {"conditions": [{}, {member: NEW}]}}]
    for item in places:
        assert newest_change_time(item, OLD) == NEW
        assert newest_change_time(item, "2026-11-23T10:00:00Z") == "2026-11-23T10:00:00Z"


def test_a_future_deadline_is_ignored() -> None:
    assert newest_change_time({"metadata": {"deletionTimestamp": NEW}}, "") == ""


@pytest.mark.parametrize(
    "value", ["2026-13-01T10:00:00Z", "0000-01-01T00:00:00Z", "2026-11-22T10:00:00", "2026-11-22", "soon", 9, None]
)
def test_malformed_times_are_ignored(value: str | int | None) -> None:
    assert newest_change_time({"metadata": {"creationTimestamp": value}}, "") == ""


def test_a_change_time_is_in_utc() -> None:
    assert parse_change_time(NEW) == datetime(2026, 11, 22, 10, 0, 0, 123456, tzinfo=UTC)
    assert parse_change_time("") == datetime(1970, 1, 1, tzinfo=UTC)
