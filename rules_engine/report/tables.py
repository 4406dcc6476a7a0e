"""Tables as CSV (RFC 4180)."""

import csv
from collections.abc import Iterable, Sequence
from typing import TextIO

from rules_engine.model.problems.excerpt import escape_controls

_FORMULAS = ("=", "+", "-", "@")
"""First characters of cells that spreadsheets evaluate as formulas."""


def write_csv(stream: TextIO, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table row by row, since it may be long."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_csv_cell(value) for value in row])


def _csv_cell(value: object) -> object:
    """Escape control characters of a cell, and put an apostrophe before a text that begins like a formula."""
    if not isinstance(value, str):
        return "" if value is None else value
    return escape_controls(f"'{value}" if value.startswith(_FORMULAS) else value)
