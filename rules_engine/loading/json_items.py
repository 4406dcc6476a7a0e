"""Readers of the items of a JsonList: a strict one for manifests, and one for the output of kubectl and API servers.

The latter reads as Go does: the last of several members with one name counts, and lone surrogates are replaced.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from msgspec import MsgspecError, Raw
from msgspec.json import Decoder

from rules_engine.loading.yaml.documents import MAX_DEPTH, TOO_DEEP
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.excerpt import truncate

Item = TypeVar("Item")

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which the escapes of JSON can have, and UTF-8 can not."""

_NESTED = frozenset({dict, list})
"""Types of values with members. Compared with type(): isinstance takes twice as long, for each value of a dump."""

_decode = Decoder(float_hook=str).decode  # quantities keep their text
_raw_decode = json.JSONDecoder().raw_decode


class ListError(Exception):
    """A list that cannot be read any further."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class TooDeepError(ListError):
    """A value with more than MAX_DEPTH levels of lists and maps."""

    def __init__(self) -> None:
        super().__init__(Code.YAML_TOO_DEEP, TOO_DEEP)


def parse_lenient(text: str | bytes | Raw) -> Json:
    """Return the value of a text as Go reads it. Raises json.JSONDecodeError and TooDeepError."""
    try:
        value = decode_lenient(text)
    except RecursionError:
        raise TooDeepError from None
    level: list[Any] = [value] if type(value) in _NESTED else []
    for _ in range(MAX_DEPTH):
        level = [
            member
            for item in level
            for member in (item.values() if type(item) is dict else item)
            if type(member) in _NESTED
        ]
        if not level:
            return value
    raise TooDeepError


def decode_lenient(text: str | bytes | Raw) -> Json:
    """Return the value of a text as Go reads it, of any depth. Raises json.JSONDecodeError and RecursionError."""
    try:
        return cast(Json, _decode(text))
    except MsgspecError:  # halves of surrogate pairs
        return _replace_surrogates(json.loads(bytes(text) if isinstance(text, Raw) else text, parse_float=str))


def _replace_surrogates(value: Json) -> Json:
    """Return a value whose texts UTF-8 can encode."""
    if isinstance(value, dict):
        return {str(_replace_surrogates(name)): _replace_surrogates(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    return _LONE_SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def scan_lenient(text: str, at: int, _column: int) -> tuple[Json, int]:
    """Read the value at an offset. Raises json.JSONDecodeError and TooDeepError."""
    _, end = _raw_decode(text, at)
    return parse_lenient(text[at:end]), end


class LenientItems(Generic[Item]):
    """Scanner of items, which `read` parses. An item that kubectl indents ends at its closing line, a quick search."""

    def __init__(self, read: Callable[[str], Item]) -> None:
        self.indented = True
        """False once an item ended elsewhere: a vain search for the closing line of each item would take long."""
        self._read = read

    def scan(self, text: str, at: int, column: int) -> tuple[Item, int]:
        """Read the item at an offset. Raises json.JSONDecodeError and TooDeepError."""
        closed = -1
        if self.indented and text.startswith("{\n", at):
            # JSON strings contain no line ends, so this ends the item if the text before it parses as an object.
            closing = f"\n{' ' * (column - 1)}}}"
            closed = text.find(closing, at) + len(closing)
            if closed >= len(closing):
                with suppress(json.JSONDecodeError):
                    return self._read(text[at:closed]), closed
        _, end = _raw_decode(text, at)
        self.indented = end == closed
        return self._read(text[at:end]), end


def _unique_members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return the members of an object. Raises ListError if two have one name."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise ListError(Code.YAML_DUPLICATE_KEY, f"'{truncate(repeated)}' is set twice in an object")
    return members


_strict_decode = json.JSONDecoder(parse_float=str, object_pairs_hook=_unique_members).raw_decode


def scan_strict(text: str, at: int, _column: int) -> tuple[Json, int]:
    """Read the item at an offset; numbers with fractions are texts. Raises json.JSONDecodeError and ListError."""
    return _strict_decode(text, at)
