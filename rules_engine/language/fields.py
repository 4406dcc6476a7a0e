"""Typed readers of a document that was validated against its schema.

The validation has removed invalid values, so they read like absent ones.
"""

import dataclasses
import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Any

from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, SourceText


def scalar_arguments(node: MapNode, owner: type) -> dict[str, Any]:
    """Read the scalar fields of a value type that have a default, as keyword arguments.

    Each value is converted to the type of its default. Absent fields are left out: only the value type has defaults.
    """
    fields = ((name, of, node.get(member)) for name, member, of in _scalar_fields(owner))
    return {name: of(value.value) for name, of, value in fields if isinstance(value, ScalarNode)}


@lru_cache
def _scalar_fields(owner: type) -> tuple[tuple[str, str, type], ...]:
    """Return the name, the name in documents and the type of each scalar field with a default."""
    return tuple(
        (field.name, camel_case(field.name), type(field.default))
        for field in dataclasses.fields(owner)
        if isinstance(field.default, Enum | str | int)
    )


def camel_case(name: str) -> str:
    """Return the name in documents of a value type's field."""
    return re.sub("_(.)", lambda match: match[1].upper(), name)


def string_field(node: MapNode, name: str, default: str = "") -> str:
    """Read a string."""
    value = node.get(name)
    return value.value if isinstance(value, ScalarNode) and isinstance(value.value, str) else default


def source_field(node: MapNode, name: str) -> SourceText | None:
    """Read a string with the locations of its characters: an expression."""
    value = node.get(name)
    return value.source if isinstance(value, ScalarNode) else None


def bool_field(node: MapNode, name: str) -> bool:
    """Read a boolean; False if it is absent."""
    value = node.get(name)
    return isinstance(value, ScalarNode) and value.value is True


def int_field(node: MapNode, name: str) -> int | None:
    """Read a whole number; JSON Schema also accepts 1.0 as one."""
    value = node.get(name)
    return int(value.value) if isinstance(value, ScalarNode) and isinstance(value.value, int | float) else None


def map_field(node: MapNode, name: str) -> MapNode:
    """Read a map; an empty one if it is absent."""
    value = node.get(name)
    return value if isinstance(value, MapNode) else MapNode(location=node.location)


def key_locations(node: MapNode) -> dict[str, Location]:
    """Return the location of each key of a map."""
    return {key.source.text: key.location for key, _ in node}


def key_origins(node: MapNode, *names: str) -> dict[tuple[str, str], Location]:
    """Return the location of each key of several maps, by the map's name and the key."""
    return {(name, key): place for name in names for key, place in key_locations(map_field(node, name)).items()}


def list_items(node: MapNode, name: str) -> tuple[YamlNode, ...]:
    """Read the items of a list."""
    value = node.get(name)
    return value.items if isinstance(value, ListNode) else ()


def map_items(node: MapNode, name: str) -> tuple[MapNode, ...]:
    """Read the items of a list of maps."""
    return tuple(item for item in list_items(node, name) if isinstance(item, MapNode))


def string_items(node: MapNode, name: str) -> tuple[str, ...]:
    """Read the items of a list of strings."""
    return tuple(item.source.text for item in list_items(node, name) if isinstance(item, ScalarNode))


def map_members(node: MapNode, name: str) -> list[tuple[ScalarNode, MapNode]]:
    """Read the members of a map of maps."""
    return [(key, value) for key, value in map_field(node, name) if isinstance(value, MapNode)]


def scalar_members(node: MapNode, name: str) -> list[tuple[str, ScalarNode]]:
    """Read the members of a map of scalars."""
    return [(key.source.text, value) for key, value in map_field(node, name) if isinstance(value, ScalarNode)]


def string_map(node: MapNode, name: str) -> dict[str, str]:
    """Read a map of strings: labels, annotations."""
    return {key: value.source.text for key, value in scalar_members(node, name)}


def report_repeated(code: ProblemCode, nodes: Iterable[YamlNode | None], problems: Problems) -> None:
    """Report every repeated name, with the line of its first occurrence."""
    first: dict[str, Location] = {}
    for node in nodes:
        if isinstance(node, ScalarNode):
            name = node.source.text
            if name in first:
                problems.error(code, f"'{name}' is already used in line {first[name].line}", node)
            first.setdefault(name, node.location)
