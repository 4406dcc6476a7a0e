"""Timestamps of objects."""

from datetime import UTC, datetime

from rules_engine.model.json.lenient import Object, text

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""A time before all others, for comparisons with what has none."""


def timestamp(value: Object, name: str) -> datetime | None:
    """Return a member that is a timestamp (RFC 3339), in UTC, or None."""
    try:
        found = datetime.fromisoformat(text(value, name))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the first and the last day have times that UTC has not
        return None
