"""Schemas of outputs in JSON."""

from typing import Any


def objects_of(schema: Any) -> list[Any]:
    """Return every schema of an object with fixed members."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    found = [each for below in inner for each in objects_of(below)]
    return [schema, *found] if isinstance(schema, dict) and "required" in schema else found
