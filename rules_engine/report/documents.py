"""Reports as JSON: members from fields of values, and long lists written item by item."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from fractions import Fraction
from typing import Any

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import Location
from rules_engine.model.wording import format_time

Dump = Callable[[Any], str]
"""A function that returns a value as JSON in one line."""


def field_members(value: object, names: str) -> dict[str, Any]:
    """Return fields of a value as JSON members, `more_errors` as `moreErrors`; `names` is separated by spaces."""
    return {_camel_case(name): json_value(getattr(value, name)) for name in names.split()}


def json_value(value: object) -> Any:
    """Convert the value of a field to JSON: names and amounts as strings, times in UTC, locations as objects."""
    match value:
        case Enum():
            return value.value
        case datetime():
            return format_time(value)
        case Fraction():
            return float(value)
        case Location():
            return location_members(value)
        case ObjectName() | Quantity():
            return str(value)
        case Mapping():
            return {str(json_value(name)): json_value(member) for name, member in value.items()}
        case tuple() | list():
            return [json_value(item) for item in value]
    return value


def location_members(location: Location) -> dict[str, Any]:
    """Return a location as JSON members."""
    return field_members(location, "file line column")


def problem_members(problem: Problem) -> dict[str, Any]:
    """Return a problem with its place, and the number of characters there that it is about."""
    return {
        **field_members(problem, "code severity message"),
        **location_members(problem.location),
        "length": problem.length,
    }


def object_parts(head: Mapping[str, object], lists: Mapping[str, Iterable[Any]], dump: Dump) -> Iterator[str]:
    """Yield a JSON object in parts: a line for each member, then lists with a line for each item.

    An iterator as an item yields the item's own parts, so that a report on 100,000 pods is never whole in memory.
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


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
