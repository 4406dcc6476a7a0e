"""Timestamps of objects."""

from datetime import UTC, datetime

from rules_engine.model.json.lenient import Object, as_mapping, text_member

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""A time before all others, for comparisons with objects without a time."""


def parse_timestamp(value: Object, name: str) -> datetime | None:
    """Parse a member that is a timestamp (RFC 3339), and return it in UTC; None if it is not valid."""
    try:
        time = datetime.fromisoformat(text_member(value, name))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # astimezone overflows in the first hours of year 1 and the last of 9999
        return None


def last_seen(event: Object) -> datetime | None:
    """Return the time at which an Event was last seen."""
    return (
        parse_timestamp(as_mapping(event.get("series")), "lastObservedTime")
        or parse_timestamp(event, "lastTimestamp")
        or parse_timestamp(event, "eventTime")
        or parse_timestamp(event, "firstTimestamp")
        or parse_timestamp(as_mapping(event.get("metadata")), "creationTimestamp")
    )
