"""Tables as CSV (RFC 4180)."""

import csv
from collections.abc import Iterable, Sequence
from typing import TextIO

from rules_engine.model.problems.excerpt import visible

_FORMULAS = ("=", "+", "-", "@")
"""Beginnings of a cell that spreadsheets evaluate."""


def write_csv(stream: TextIO, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table row by row, so that it may be long."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_cell(value) for value in row])


def _cell(value: object) -> object:
    """Return a cell with control characters escaped; a text that begins like a formula gets an apostrophe before it."""
    if not isinstance(value, str):
        return "" if value is None else value
    return visible(f"'{value}" if value.startswith(_FORMULAS) else value)
