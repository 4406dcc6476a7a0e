"""Parts of sentences that reports share: counts, names, times and amounts."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from typing import TypeVar

from rules_engine.model.durations import UNITS
from rules_engine.model.kubernetes.quantity import NANOS, Format, Quantity

_MEBIBYTE = Quantity.parse("1Mi")
_BYTES = re.compile(r"memory|ephemeral-storage|hugepages-.*|.*\.storage")

MAX_NAMES = 3
"""Names of objects that a line lists: the others are counted, and JSON lists them all."""

MAX_JOINED = 5
"""Names in one sentence of a finding: enough to start an investigation, few enough to read."""

T = TypeVar("T")


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: 1 node, 5,000 nodes."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_names(objects: Sequence[T], name: Callable[[T], str] = str) -> str:
    """Return the names of objects for a line: the first `MAX_NAMES`, and a count of the others."""
    shown = ", ".join(map(name, objects[:MAX_NAMES]))
    return f"{shown} and {len(objects) - MAX_NAMES:,} more" if len(objects) > MAX_NAMES else shown


def join_names(names: Sequence[str], *, of: int | None = None) -> str:
    """Join names for a sentence, at most MAX_JOINED of them, and count the others; `of`: the number of all names."""
    first = names[:MAX_JOINED]
    more = (len(names) if of is None else of) - len(first)
    if more > 0:
        return f"{', '.join(first)} and {more} more"
    return " and ".join([", ".join(first[:-1]), first[-1]] if len(first) > 1 else first)


def format_amount(resource: str, nanos: int) -> str:
    """Return an amount: whole numbers as counts, others as Kubernetes writes them.

    Bytes are rounded down to Mi, and a negative amount is 0.
    """
    if not _BYTES.fullmatch(resource):
        whole, part = divmod(max(nanos, 0), NANOS)
        return str(Quantity(nanos)) if part else f"{whole:,}"
    quantity = Quantity(max(nanos, 0), Format.BINARY_SI)
    return str(quantity.floor_to(_MEBIBYTE) if quantity >= _MEBIBYTE else quantity)


def format_duration(milliseconds: int) -> str:
    """Return a time with its two largest units, such as 1h30m or 45s."""
    for (unit, length), (smaller, part) in pairwise(UNITS.items()):
        if milliseconds >= length:
            parts = milliseconds % length // part
            return f"{milliseconds // length}{unit}" + (f"{parts}{smaller}" if parts else "")
    return f"{milliseconds}ms" if milliseconds else "0s"


def format_hours(hours: Fraction) -> str:
    """Return a number of hours, with two decimals if there are few."""
    return f"{float(hours):,.2f}" if hours < 100 else f"{float(hours):,.0f}"


def format_percent(share: Fraction | None) -> str:
    """Return a share in percent; "-" if it is unknown."""
    return "-" if share is None else f"{float(share):.0%}"


def format_time(at: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
