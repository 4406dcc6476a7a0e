"""Events of the API: both the older kind, with a count, and the newer one, with a series."""

from datetime import datetime

from rules_engine.diagnosis.objects.timestamps import timestamp
from rules_engine.model.json.lenient import Object, mapping


def last_seen(event: Object) -> datetime | None:
    """Return the time at which an Event was last seen."""
    return (
        timestamp(mapping(event.get("series")), "lastObservedTime")
        or timestamp(event, "lastTimestamp")
        or timestamp(event, "eventTime")
        or timestamp(event, "firstTimestamp")
        or timestamp(mapping(event.get("metadata")), "creationTimestamp")
    )
