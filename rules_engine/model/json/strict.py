"""Strict JSON readers: a value that is absent or null is empty; a value of the wrong type is an error with its path."""

from collections.abc import Mapping
from typing import TypeAlias

from rules_engine.model.json.patch import Json, json_pointer

JsonPath: TypeAlias = tuple[str | int, ...]
"""A path in a JSON value: member names and indexes from the root."""


class PodError(ValueError):
    """A Pod, or the request for one, that does not conform to the API; `path` is a JSON Pointer."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class TooLargeError(ValueError):
    """A part of a Pod with too many items; `path` is a JSON Pointer."""

    def __init__(self, path: JsonPath, count: int, what: str, bound: int) -> None:
        self.path = json_pointer(*path)
        super().__init__(f"{self.path}: {count} {what}, more than {bound}")


def read_mapping(raw: Json, path: JsonPath) -> dict[str, Json]:
    """Return an object's members. Raises PodError."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise PodError(json_pointer(*path), f"must be an object, not {json_type(raw)}")
    return raw


def read_list(raw: Json, path: JsonPath) -> list[Json]:
    """Return a list's items. Raises PodError."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise PodError(json_pointer(*path), f"must be a list, not {json_type(raw)}")
    return raw


def read_string(raw: Json, path: JsonPath) -> str:
    """Return a string. Raises PodError."""
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise PodError(json_pointer(*path), f"must be a string, not {json_type(raw)}")
    return raw


def read_string_map(raw: Json, path: JsonPath) -> Mapping[str, str]:
    """Return an object whose values are strings, as labels and annotations are. Raises PodError."""
    return {name: read_string(value, (*path, name)) for name, value in read_mapping(raw, path).items()}


def json_type(value: Json) -> str:
    """Return the JSON type of a value, with an article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"
