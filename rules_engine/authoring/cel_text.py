"""Values as CEL: the expression that makes each."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rules_engine.cel import Duration, Optional, Timestamp, Type, Uint
from rules_engine.cel.library.named_formats import NamedFormat
from rules_engine.cel.library.network import Cidr, Ip
from rules_engine.cel.library.semver import Semver
from rules_engine.cel.library.url import Url
from rules_engine.cel.values.runtime_values import is_map, type_of
from rules_engine.cel.values.times import duration_text, timestamp_text
from rules_engine.model.quantity import Quantity

MAX_CHARACTERS = 1_000_000
"""Characters of a value that are written. It may have one list in it many times, so its text has no other bound."""

MAX_LINE = 100
"""Characters of a list or map in one line; a longer one has a line for each member."""

INDENT = "  "


def cel_text(value: object) -> str:
    """Write a value as the expression that makes it; more than MAX_CHARACTERS are cut."""
    line = "".join(_upto(MAX_LINE, _pieces(value, None)))
    if len(line) <= MAX_LINE or not (is_map(value) or isinstance(value, list | Optional)):
        return _cut(line if len(line) <= MAX_LINE else "".join(_upto(MAX_CHARACTERS, _pieces(value, None))))
    return _cut("".join(_upto(MAX_CHARACTERS, _pieces(value, 0))))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def _upto(limit: int, pieces: Iterable[str]) -> Iterator[str]:
    """Yield pieces until they have more than `limit` characters."""
    left = limit
    for piece in pieces:
        yield piece
        left -= len(piece)
        if left < 0:
            return


def _pieces(value: object, depth: int | None) -> Iterator[str]:
    """Yield the parts of a value's text. `depth`: with a line for each member, indented; None: in one line."""
    if type(value) is Optional:
        yield "optional.of(" if value.present else "optional.none("
        if value.present:
            yield from _pieces(value.value, depth)
        yield ")"
    elif type(value) is list:
        yield from _members("[]", ((_pieces(item, _deeper(depth))) for item in value), depth)
    elif isinstance(value, Mapping):
        yield from _members("{}", (_entry(key, item, _deeper(depth)) for key, item in value.items()), depth)
    else:
        write = _WRITERS.get(type(value))
        yield write(value) if write else type_of(value).name


def _deeper(depth: int | None) -> int | None:
    return None if depth is None else depth + 1


def _entry(key: object, value: object, depth: int | None) -> Iterator[str]:
    yield from _pieces(key, None)
    yield ": "
    yield from _pieces(value, depth)


def _members(brackets: str, members: Iterable[Iterator[str]], depth: int | None) -> Iterator[str]:
    """Yield the brackets with the members of a list or map between them."""
    end = "" if depth is None else f"\n{INDENT * depth}"
    separator = "" if depth is None else f"\n{INDENT * (depth + 1)}"
    yield brackets[0]
    first = True
    for member in members:
        yield separator if first else f",{separator or ' '}"
        yield from member
        first = False
    yield brackets[1] if first else f"{end}{brackets[1]}"


def _string(text: str) -> str:
    """Write a string literal; characters that a terminal interprets or hides are escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in json.dumps(text, ensure_ascii=False)
    )


def _bytes(value: bytes) -> str:
    return 'b"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in value) + '"'


def _double(value: float) -> str:
    if math.isnan(value):
        return 'double("NaN")'
    return repr(value) if math.isfinite(value) else f'double("{"-" if value < 0 else ""}Infinity")'


def _url(value: Url) -> str:
    start = f"{value.scheme}://{value.host}" if value.scheme or value.host else ""
    return f"{start}{value.path}{'?' if value.query else ''}{value.query}"


def _semver(value: Semver) -> str:
    release = f"{value.major}.{value.minor}.{value.patch}"
    return f"{release}-{'.'.join(value.pre_release)}" if value.pre_release else release


def _call(function: str, text: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: f"{function}({_string(text(value))})"


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    Uint: repr,
    float: _double,
    str: _string,
    bytes: _bytes,
    Type: lambda value: value.name,
    Timestamp: _call("timestamp", timestamp_text),
    Duration: _call("duration", duration_text),
    Quantity: _call("quantity", str),
    Url: _call("url", _url),
    Ip: _call("ip", lambda value: str(value.address)),
    Cidr: _call("cidr", lambda value: f"{value.address}/{value.prefix}"),
    Semver: _call("semver", _semver),
    NamedFormat: lambda value: f"format.{value.name}()",
}
