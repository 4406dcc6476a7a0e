"""Schemas of outputs in JSON."""

from typing import Any


def objects_of(schema: Any) -> list[Any]:
    """Return every schema of an object with fixed members; of an answer that may fail, as it is if it does not."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    found = [each for below in inner for each in objects_of(below)]
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict) or "type" not in schema:
        return found
    return [{**schema, **schema["anyOf"][-1]} if "anyOf" in schema else schema, *found]
