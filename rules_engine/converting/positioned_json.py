"""Positioned JSON: values with their locations, numbers as text.

The standard library's reader has no positions and converts numbers to binary floats; messages need the positions, and
exact arithmetic needs the text.

The YAML reader (rules_engine.loading.yaml) has both, but its language is not JSON. It rejects what Go's JSON reader
accepts: escapes of surrogate pairs, U+007F to U+009F and U+2028 in texts, a key of more than 1,024 characters, and a
colon on the line after its key. It accepts what Go's refuses, and would convert a configuration that gpuinjector cannot
read: trailing commas, single quotes, words without quotes, 01 and 0x1f, comments, anchors, several documents, and texts
of several lines. It drops the second of two equal keys, which is a finding here.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from rules_engine.loading.yaml.documents import MAX_DEPTH
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import Location, SourceText

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile("|".join(_WORDS))


@dataclass(frozen=True, slots=True)
class Number:
    """A number as its text, so that no digit is lost."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value with its location and its length in that line."""

    value: "Value"
    location: Location
    length: int = 1


@dataclass(frozen=True, slots=True)
class Member:
    """A key of an object, with its location, and its value."""

    key: Node
    value: Node

    @property
    def name(self) -> str:
        return str(self.key.value)


@dataclass(frozen=True, slots=True)
class Object:
    """Members in file order; a key may occur more than once, which is a finding of the conversion."""

    members: tuple[Member, ...]


Value: TypeAlias = bool | str | Number | tuple[Node, ...] | Object | None


class JsonError(ValueError):
    """A text that is not valid JSON (RFC 8259)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def parse_json(text: str, file: str) -> Node:
    """Read one JSON value and nothing after it. Raises JsonError."""
    return _Reader(SourceText.inline(text, file)).document()


class _Reader:
    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._text = source.text
        self._at = 0

    def document(self) -> Node:
        node = self._node(0)
        self._skip()
        if self._at < len(self._text):
            raise self._error("unexpected text after the JSON value")
        return node

    def _node(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._error(f"values are nested deeper than {MAX_DEPTH} levels")
        self._skip()
        start = self._at
        value = self._value(depth)
        # A caret line marks only the bracket of a value that may have many lines.
        end = start + 1 if isinstance(value, tuple | Object) else self._at
        return Node(value=value, location=self._source.at(start), length=end - start)

    def _value(self, depth: int) -> Value:
        match self._text[self._at : self._at + 1]:
            case "{":
                return Object(tuple(self._members(depth)))
            case "[":
                return tuple(self._items(depth))
            case '"':
                return self._string()
            case "":
                raise self._error("unexpected end of the JSON text")
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            return Number(number.group())
        if word := _WORD.match(self._text, self._at):
            self._at = word.end()
            return _WORDS[word.group()]
        raise self._error("expected a JSON value")

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("invalid JSON string: not terminated, or with an invalid escape or control character")
        self._at = match.end()
        # A lone surrogate is not a character and cannot be encoded as UTF-8. Go's reader replaces it by U+FFFD, too.
        return re.sub("[\ud800-\udfff]", "\ufffd", str(json.loads(match.group())))

    def _members(self, depth: int) -> Iterator[Member]:
        for _ in self._element_starts("}"):
            start = self._at
            if self._text[start : start + 1] != '"':
                raise self._error("expected a key in double quotes")
            key = Node(value=self._string(), location=self._source.at(start), length=self._at - start)
            self._expect(":")
            yield Member(key, self._node(depth + 1))

    def _items(self, depth: int) -> Iterator[Node]:
        for _ in self._element_starts("]"):
            yield self._node(depth + 1)

    def _element_starts(self, close: str) -> Iterator[None]:
        """Read brackets and commas; yield at the start of each element, which the caller reads before the next one."""
        self._at += 1
        if self._next() == close:
            self._at += 1
            return
        while True:
            yield
            if self._next() == close:
                self._at += 1
                return
            self._expect(",")
            self._skip()

    def _next(self) -> str:
        self._skip()
        return self._text[self._at : self._at + 1]

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise self._error(f"expected '{character}'" if self._next() else "unexpected end of the JSON text")
        self._at += 1

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at

    def _error(self, message: str) -> JsonError:
        return JsonError(Problem(code=Code.JSON_SYNTAX, message=message, location=self._source.at(self._at)))
