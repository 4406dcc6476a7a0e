"""Timestamps of objects."""

from datetime import UTC, datetime

from rules_engine.model.json.lenient import Object, text


def timestamp(value: Object, name: str) -> datetime | None:
    """Return a member that is a timestamp (RFC 3339), or None."""
    try:
        found = datetime.fromisoformat(text(value, name))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
