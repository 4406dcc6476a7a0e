"""A YAML document as a tree of positioned values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.source import Location, SourceText

Plain: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Surprise:
    """A scalar that YAML parsers read differently: `reading` says how, `spellings` are unambiguous.

    Each spelling is a text with its value; the last one is for the text itself. `number` is the probable number, for
    the schema to check.
    """

    code: Code
    text: str
    reading: str
    spellings: tuple[tuple[str, Plain], ...]
    number: int | float | None = None

    def message(self, spellings: Sequence[tuple[str, Plain]]) -> str:
        """Return the message that recommends some of the spellings."""
        others = " or ".join(text for text, value in spellings if not isinstance(value, str))
        quoted = next((text for text, value in spellings if isinstance(value, str)), "")
        advice = f"{others}, or {quoted} for the text" if others and quoted else others or quoted
        return f"{self.text} {self.reading}: write {advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    """A scalar; `source.text` is the text as written, `value` its value in YAML."""

    value: Plain
    source: SourceText
    quoted: bool = False
    surprise: Surprise | None = None

    @property
    def location(self) -> Location:
        return self.source.location

    @property
    def length(self) -> int:
        """The number of columns in its first line, at least one."""
        breaks = self.source.breaks
        return max(1, len(self.source.text) if len(breaks) == 1 else breaks[1][0])

    def json(self) -> Json:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNode:
    """A list and its location."""

    items: tuple["YamlNode", ...]
    location: Location
    length: int = 1

    def json(self) -> Json:
        return [item.json() for item in self.items]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapNode:
    """A map with distinct string keys, and its location."""

    members: dict[str, tuple[ScalarNode, "YamlNode"]] = field(default_factory=dict)
    location: Location
    length: int = 1

    def json(self) -> dict[str, Json]:
        return {name: value.json() for name, (_, value) in self.members.items()}

    def get(self, name: str) -> "YamlNode | None":
        """Return the value of a member; None if it is absent."""
        member = self.members.get(name)
        return member[1] if member else None

    def key(self, name: str) -> ScalarNode | None:
        """Return the key of a member, for its location."""
        member = self.members.get(name)
        return member[0] if member else None

    def __iter__(self) -> Iterator[tuple[ScalarNode, "YamlNode"]]:
        return iter(self.members.values())


YamlNode: TypeAlias = ScalarNode | ListNode | MapNode


def find_node(root: YamlNode, path: JsonPath) -> YamlNode:
    """Return the node at a path, or the deepest existing one above it."""
    for step in path:
        below = child_node(root, step)
        if below is None:
            return root
        root = below
    return root


def first_key(node: YamlNode) -> YamlNode:
    """Return the first key of a map, for locations of problems; the node itself if it has none."""
    return next((key for key, _ in node), node) if isinstance(node, MapNode) else node


def child_node(node: YamlNode, step: str | int) -> YamlNode | None:
    """Return a member or an item; None if it is absent."""
    if isinstance(node, MapNode) and isinstance(step, str):
        return node.get(step)
    if isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
        return node.items[step]
    return None


def remove_paths(root: MapNode, paths: frozenset[JsonPath]) -> MapNode:
    """Return the tree without the nodes at these paths; the root itself always stays."""
    if not paths:
        return root
    return cast(MapNode, _remove_paths(root, (), paths))


def _remove_paths(node: YamlNode, here: JsonPath, paths: frozenset[JsonPath]) -> YamlNode:
    if isinstance(node, ScalarNode):
        return node
    if isinstance(node, ListNode):
        items = tuple(
            _remove_paths(item, (*here, index), paths)
            for index, item in enumerate(node.items)
            if (*here, index) not in paths
        )
        return ListNode(items=items, location=node.location, length=node.length)
    members = {
        name: (key, _remove_paths(value, (*here, name), paths))
        for name, (key, value) in node.members.items()
        if (*here, name) not in paths
    }
    return MapNode(members=members, location=node.location, length=node.length)
