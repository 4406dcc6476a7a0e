"""Answers as JSON: members by the names of fields, and long lists written item by item."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from fractions import Fraction
from typing import Any

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Location
from rules_engine.model.wording import time

Dump = Callable[[Any], str]
"""A function that returns JSON in one line."""


def members(value: object, names: str) -> dict[str, Any]:
    """Return members of a value by the names of its fields, `more_errors` as `moreErrors`."""
    return {_camel(name): plain(getattr(value, name)) for name in names.split()}


def plain(value: object) -> Any:
    """Return a value of a field as JSON: names, places and amounts as text, times in UTC."""
    match value:
        case Enum():
            return value.value
        case datetime():
            return time(value)
        case Fraction():
            return float(value)
        case Location() | ObjectName() | Quantity():
            return str(value)
        case Mapping():
            return {str(plain(name)): plain(member) for name, member in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
    return value


def place(location: Location) -> dict[str, Any]:
    """Return a place in a file as members."""
    return members(location, "file line column")


def object_parts(head: Mapping[str, object], lists: Mapping[str, Iterable[Any]], dump: Dump) -> Iterator[str]:
    """Yield an object in parts: members in a line each, then lists with an item in each line.

    An answer of 100,000 pods is never one value in memory.
    """
    yield "{\n"
    yield "".join(f"{dump(name)}: {dump(value)},\n" for name, value in head.items())
    for index, (name, items) in enumerate(lists.items()):
        yield ",\n" if index else ""
        yield f"{dump(name)}: ["
        for number, item in enumerate(items):
            yield ",\n" if number else "\n"
            if isinstance(item, Iterator):
                yield from item
            else:
                yield dump(item)
        yield "\n]"
    yield "\n}"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
