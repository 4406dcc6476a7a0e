"""Times at which objects were changed: the newest is the moment of a recording, from which ages are counted."""

import re
from datetime import UTC, datetime

from rules_engine.model.json.lenient import Object, mapping, objects

MEMBERS = ("creationTimestamp", "lastTimestamp", "eventTime", "lastHeartbeatTime", "lastTransitionTime")
"""Members of an object, of its metadata and of its conditions. Others may be in the future, as deletionTimestamp."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")


def newest_change(found: Object, newest: str) -> str:
    """Return the newest time at which an object was changed, if it is newer than another, as it is written.

    Times are compared as texts, since all are in UTC; what is not a time is passed over.
    """
    status = mapping(found.get("status"))
    for members in (found, mapping(found.get("metadata")), *objects(status.get("conditions"))):
        for name in MEMBERS:
            written = members.get(name)
            if isinstance(written, str) and written > newest and _is_time(written):
                newest = written
    return newest


def moment(written: str) -> datetime:
    """Return the time that `newest_change` found; 1970 for objects without any."""
    return datetime.fromisoformat(written) if written else datetime.fromtimestamp(0, UTC)


def _is_time(written: str) -> bool:
    if not _TIME.fullmatch(written):
        return False
    try:
        datetime.fromisoformat(written)
    except ValueError:  # such as the month 13
        return False
    return True
