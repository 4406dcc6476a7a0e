"""`schema`: the JSON Schemas of rule files, one by one or all in one."""

from typing import Any

from rules_engine.documents import DOCUMENT_KINDS
from rules_engine.loading import schema


def combined_schema() -> dict[str, Any]:
    """Return one schema for files of any kind: each document must be of exactly one kind.

    The kinds' own definitions get names of their own, as few editors resolve an `$id` inside a document.
    """
    definitions: dict[str, Any] = {}
    for kind in DOCUMENT_KINDS:
        whole = schema(kind)
        own = whole.pop("$defs", {})
        dialect = whole.pop("$schema")
        whole.pop("$id")
        definitions[kind] = _renamed(whole, kind)
        definitions.update({f"{kind}.{name}": _renamed(part, kind) for name, part in own.items()})
    return {
        "$schema": dialect,
        "title": "gpu-rules",
        "description": "Any document of gpu-rules.",
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in DOCUMENT_KINDS],
        "$defs": definitions,
    }


def _renamed(part: Any, kind: str) -> Any:
    """Return a part of a kind's schema, with its references updated to the new paths of the definitions."""
    if isinstance(part, dict):
        return {
            key: f"#/$defs/{kind}.{value.removeprefix('#/$defs/')}"
            if key == "$ref" and isinstance(value, str)
            else _renamed(value, kind)
            for key, value in part.items()
        }
    return [_renamed(item, kind) for item in part] if isinstance(part, list) else part
