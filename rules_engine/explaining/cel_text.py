"""Values as CEL expressions; a value of a type that is rare in rules is shown as the name of its type."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from rules_engine.language.cel import Duration, Optional, Timestamp, Type, Uint
from rules_engine.language.cel.values.runtime_values import type_of
from rules_engine.language.cel.values.times import duration_text, timestamp_text
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import escape_controls

MAX_LINE = 100
"""Longest list or map in one line, in characters; a longer one has a line for each member."""

MAX_PIECES = 100_000
"""Most parts of a value that are shown: an expression can make a list of a list many times, and a list of that."""

INDENT = "  "


def cel_text(value: object) -> str:
    """Return a CEL expression with this value, or its first MAX_PIECES parts and an ellipsis."""
    parts = _text_pieces(value)
    pieces = [*islice(parts, MAX_PIECES), *("…" for _ in islice(parts, 1))]
    # The check is on the whole: a list that does not fit is broken at every level, as are the short lists in it.
    return "".join(pieces if sum(map(len, pieces)) <= MAX_LINE else _break_lines(iter(pieces)))


def _text_pieces(value: object) -> Iterator[str]:
    """Yield the text of a value in pieces; each bracket and each comma between members is a piece."""
    if type(value) is Optional:
        yield "optional.of(" if value.present else "optional.none("
        if value.present:
            yield from _text_pieces(value.value)
        yield ")"
    elif type(value) is list:
        yield from _member_pieces("[]", map(_text_pieces, value))
    elif isinstance(value, Mapping):
        yield from _member_pieces(
            "{}", (chain(_text_pieces(key), (": ",), _text_pieces(item)) for key, item in value.items())
        )
    else:
        write = _WRITERS.get(type(value))
        yield write(value) if write else type_of(value).name


def _member_pieces(brackets: str, members: Iterable[Iterator[str]]) -> Iterator[str]:
    separator = brackets[0]
    for member in members:
        yield separator
        yield from member
        separator = ", "
    yield brackets[1] if separator == ", " else brackets  # "[]" is one piece, which no line break splits


def _break_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Insert line breaks, so that each member of a list or map has its own line."""
    indent = "\n"
    for piece in pieces:
        if piece in ("]", "}"):
            indent = indent.removesuffix(INDENT)
            yield indent
        yield piece.rstrip() if piece == ", " else piece
        if piece in ("[", "{"):
            indent += INDENT
        if piece in (", ", "[", "{"):
            yield indent


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    Uint: repr,
    float: lambda value: repr(value) if math.isfinite(value) else f'double("{value}")',
    str: lambda value: escape_controls(
        json.dumps(value, ensure_ascii=False)
    ),  # not what a terminal interprets or hides
    bytes: repr,
    Type: lambda value: value.name,
    Timestamp: lambda value: f'timestamp("{timestamp_text(value)}")',
    Duration: lambda value: f'duration("{duration_text(value)}")',
    Quantity: lambda value: f'quantity("{value}")',
}
