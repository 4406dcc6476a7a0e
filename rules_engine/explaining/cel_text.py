"""Values as CEL: the expression that makes each; for values that are rare in rules, the name of their type."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rules_engine.cel import Duration, Optional, Timestamp, Type, Uint
from rules_engine.cel.values.runtime_values import type_of
from rules_engine.cel.values.times import duration_text, timestamp_text
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.excerpt import visible

MAX_LINE = 100
"""Characters of a list or map in one line; a longer one has a line for each member."""

INDENT = "  "


def cel_text(value: object) -> str:
    """Write a value as the expression that makes it."""
    pieces = [*_pieces(value)]
    return "".join(pieces if sum(map(len, pieces)) <= MAX_LINE else _lines(iter(pieces)))


def _pieces(value: object) -> Iterator[str]:
    """Yield the parts of a value's text; brackets and commas between members are parts of their own."""
    if type(value) is Optional:
        yield "optional.of(" if value.present else "optional.none("
        if value.present:
            yield from _pieces(value.value)
        yield ")"
    elif type(value) is list:
        yield from _members("[]", map(_pieces, value))
    elif isinstance(value, Mapping):
        yield from _members("{}", (_entry(key, item) for key, item in value.items()))
    else:
        write = _WRITERS.get(type(value))
        yield write(value) if write else type_of(value).name


def _entry(key: object, value: object) -> Iterator[str]:
    yield from _pieces(key)
    yield ": "
    yield from _pieces(value)


def _members(brackets: str, members: Iterable[Iterator[str]]) -> Iterator[str]:
    start = brackets[0]
    for member in members:
        yield start
        yield from member
        start = ", "
    yield brackets[1] if start == ", " else brackets


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Begin a line for each member of a list or map."""
    indent = "\n"
    for piece in pieces:
        if piece in _CLOSING:
            indent = indent.removesuffix(INDENT)
            yield indent
        yield piece.rstrip() if piece == ", " else piece
        if piece in _OPENING:
            indent += INDENT
        if piece == ", " or piece in _OPENING:
            yield indent


_OPENING = frozenset("[{")
_CLOSING = frozenset("]}")


def _string(text: str) -> str:
    """Write a string literal; characters that a terminal interprets or hides are escaped."""
    return visible(json.dumps(text, ensure_ascii=False))


def _double(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'double("{value}")'


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    Uint: repr,
    float: _double,
    str: _string,
    bytes: repr,
    Type: lambda value: value.name,
    Timestamp: lambda value: f'timestamp("{timestamp_text(value)}")',
    Duration: lambda value: f'duration("{duration_text(value)}")',
    Quantity: lambda value: f'quantity("{value}")',
}
