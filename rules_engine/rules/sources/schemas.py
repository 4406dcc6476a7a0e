"""`schema`: the JSON Schemas of rule files, single or combined."""

import re
from typing import Any

from rules_engine.language.headers import DOCUMENT_KINDS
from rules_engine.language.schemas import schema

SCHEMA_FILE = "gpu-rules.schema.json"
"""File name of the combined schema in a repository of rules. `check` skips it."""

_COMMENTS = re.compile(r"^# yaml-language-server: .*\n", re.MULTILINE)


def without_schema_comments(text: str) -> str:
    """Return the text of a file for another folder, where the paths in schema comments are not valid."""
    return _COMMENTS.sub("", text)


def combine_schemas() -> dict[str, Any]:
    """Return one schema for documents of any kind.

    The kinds are definitions without an `$id`, since few editors resolve an inner `$id`. Definitions with the same name
    are equal in all kinds, so that merging them loses nothing.
    """
    definitions: dict[str, Any] = {}
    for kind in DOCUMENT_KINDS:
        kind_schema = schema(kind)
        dialect = kind_schema.pop("$schema")
        kind_schema.pop("$id")
        definitions.update(kind_schema.pop("$defs"))
        definitions[kind] = kind_schema
    return {
        "$schema": dialect,
        "title": "gpu-rules",
        "description": "Any document of gpu-rules.",
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in DOCUMENT_KINDS],
        "$defs": dict(sorted(definitions.items())),
    }
