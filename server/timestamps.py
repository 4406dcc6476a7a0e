"""Points in time as text, in RFC 3339 and UTC, as Kubernetes writes them."""

from datetime import UTC, datetime
from typing import Literal


def rfc3339(at: datetime, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Return a point in time, such as 2026-11-21T06:29:54Z."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec)}Z"
