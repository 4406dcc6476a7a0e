"""Parts of the sentences of findings: counts, lists of names, amounts, points in time, and commands."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from shlex import quote

from rules_engine.model.excerpt import truncate
from rules_engine.model.quantity import Format, Quantity

MAX_NAMES = 5
"""Names in one sentence: enough to begin with, few enough to read."""

MAX_QUOTED = 1_000
"""Characters of a message of the API that is quoted: longer than the messages of Kubernetes' own components."""

_MEBIBYTE = Quantity.parse("1Mi")
_BYTES = re.compile(r"memory|ephemeral-storage|hugepages-.*|.*\.storage")
_VALUE = re.compile(r"(Invalid value|Unsupported value|Duplicate value): (?:\"(?:[^\"\\]|\\.)*\"|[^:]*)")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: 1 node, 5,000 nodes."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: Sequence[str], *, of: int | None = None) -> str:
    """Return names in a sentence; beyond MAX_NAMES, or the names given, the others of `of` are counted."""
    shown = names[:MAX_NAMES]
    more = (len(names) if of is None else of) - len(shown)
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def amount(resource: str, nanos: int) -> str:
    """Return an amount as Kubernetes writes it; bytes are rounded down to Mi. Less than nothing is nothing."""
    quantity = Quantity(max(nanos, 0), Format.BINARY_SI if _BYTES.fullmatch(resource) else Format.DECIMAL_SI)
    if quantity.format is Format.BINARY_SI and quantity >= _MEBIBYTE:
        quantity = quantity.floored(_MEBIBYTE)
    return str(quantity)


def since(at: datetime | None) -> str:
    """Return a clause with a point in time, or "" without one."""
    return "" if at is None else f" since {time(at)}"


def time(at: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def command(*words: str) -> str:
    """Return a line for a shell; names from the API are quoted where a shell would read them otherwise."""
    return " ".join(map(quote, words))


def quoted(message: str) -> str:
    """Return a message of the API on one line, cut, and without the values of fields that it refuses."""
    return truncate(" ".join(_VALUE.sub(r"\1", message[: 4 * MAX_QUOTED]).split()), MAX_QUOTED)
