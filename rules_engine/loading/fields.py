"""Typed readers of a document that was validated against its schema.

Invalid values were removed by the validation; like absent ones they read as their default.
"""

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.yaml.nodes import ListNode, MapNode, Node, ScalarNode
from rules_engine.model.problem_codes import ProblemCode
from rules_engine.model.source import Location, SourceText

Choice = TypeVar("Choice", bound=Enum)


def text(node: MapNode, name: str, default: str = "") -> str:
    """Read a string."""
    value = node.get(name)
    return value.value if isinstance(value, ScalarNode) and isinstance(value.value, str) else default


def source(node: MapNode, name: str) -> SourceText | None:
    """Read a string with the locations of its characters: an expression."""
    value = node.get(name)
    return value.source if isinstance(value, ScalarNode) else None


def flag(node: MapNode, name: str, *, default: bool = False) -> bool:
    """Read a boolean."""
    value = node.get(name)
    return value.value if isinstance(value, ScalarNode) and isinstance(value.value, bool) else default


def number(node: MapNode, name: str, default: int) -> int:
    """Read a whole number; JSON Schema also accepts 1.0 as one."""
    value = node.get(name)
    return int(value.value) if isinstance(value, ScalarNode) and isinstance(value.value, int | float) else default


def choice(node: MapNode, name: str, default: Choice) -> Choice:
    """Read one of an Enum's values."""
    value = node.get(name)
    return type(default)(value.value) if isinstance(value, ScalarNode) else default


def section(node: MapNode, name: str) -> MapNode:
    """Read a map; an empty one if it is absent."""
    value = node.get(name)
    return value if isinstance(value, MapNode) else MapNode(location=node.location)


def items(node: MapNode, name: str) -> tuple[Node, ...]:
    """Read the items of a list."""
    value = node.get(name)
    return value.items if isinstance(value, ListNode) else ()


def sections(node: MapNode, name: str) -> tuple[MapNode, ...]:
    """Read the items of a list of maps."""
    return tuple(item for item in items(node, name) if isinstance(item, MapNode))


def texts(node: MapNode, name: str) -> tuple[str, ...]:
    """Read the items of a list of strings."""
    return tuple(item.source.text for item in items(node, name) if isinstance(item, ScalarNode))


def maps(node: MapNode, name: str) -> list[tuple[ScalarNode, MapNode]]:
    """Read the members of a map of maps."""
    return [(key, value) for key, value in section(node, name) if isinstance(value, MapNode)]


def scalars(node: MapNode, name: str) -> list[tuple[str, ScalarNode]]:
    """Read the members of a map of scalars."""
    return [(key.source.text, value) for key, value in section(node, name) if isinstance(value, ScalarNode)]


def strings(node: MapNode, name: str) -> dict[str, str]:
    """Read a map of strings: labels, annotations."""
    return {key: value.source.text for key, value in scalars(node, name)}


def report_repeated(code: ProblemCode, nodes: Iterable[Node | None], diagnostics: Diagnostics) -> None:
    """Report every repeated name, with the line of its first occurrence."""
    first: dict[str, Location] = {}
    for node in nodes:
        if isinstance(node, ScalarNode):
            name = node.source.text
            if name in first:
                message = f"'{name}' is already used in line {first[name].line}"
                diagnostics.error(code, message, node.location, node.length)
            first.setdefault(name, node.location)
