"""Timestamps of objects."""

from datetime import UTC, datetime

from rules_engine.model.json.lenient import Object, mapping, text

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""A time before all others, for comparisons with what has none."""


def timestamp(value: Object, name: str) -> datetime | None:
    """Return a member that is a timestamp (RFC 3339), in UTC, or None."""
    try:
        found = datetime.fromisoformat(text(value, name))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the first and the last day have times that UTC has not
        return None


def last_seen(event: Object) -> datetime | None:
    """Return the time at which an Event was last seen."""
    return (
        timestamp(mapping(event.get("series")), "lastObservedTime")
        or timestamp(event, "lastTimestamp")
        or timestamp(event, "eventTime")
        or timestamp(event, "firstTimestamp")
        or timestamp(mapping(event.get("metadata")), "creationTimestamp")
    )
