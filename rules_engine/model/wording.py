"""Parts of sentences that reports share: counts, names and amounts."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from rules_engine.model.quantity import Format, Quantity

_MEBIBYTE = Quantity.parse("1Mi")
_BYTES = re.compile(r"memory|ephemeral-storage|hugepages-.*|.*\.storage")

NAMES = 3
"""Names of objects in one line: the others are counted, and JSON has them all."""

T = TypeVar("T")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: 1 node, 5,000 nodes."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def names(objects: Sequence[T], name: Callable[[T], str] = str) -> str:
    """Return the names of objects in a line: of many, the first ones."""
    shown = ", ".join(map(name, objects[:NAMES]))
    return f"{shown} and {len(objects) - NAMES:,} more" if len(objects) > NAMES else shown


def amount(resource: str, nanos: int) -> str:
    """Return an amount as Kubernetes writes it; bytes are rounded down to Mi. Less than nothing is nothing."""
    quantity = Quantity(max(nanos, 0), Format.BINARY_SI if _BYTES.fullmatch(resource) else Format.DECIMAL_SI)
    if quantity.format is Format.BINARY_SI and quantity >= _MEBIBYTE:
        quantity = quantity.floored(_MEBIBYTE)
    return str(quantity)
