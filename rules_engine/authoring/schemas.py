"""`schema`: the JSON Schemas of rule files, one by one or all in one."""

from typing import Any

from rules_engine.documents import DOCUMENT_KINDS
from rules_engine.loading import schema


def combined_schema() -> dict[str, Any]:
    """Return one schema for files of any kind: each document must be of exactly one kind.

    The kinds are definitions without an `$id`, as few editors resolve one inside a document. Definitions of one name
    are the same in all kinds.
    """
    definitions: dict[str, Any] = {}
    for kind in DOCUMENT_KINDS:
        whole = schema(kind)
        dialect = whole.pop("$schema")
        whole.pop("$id")
        definitions.update(whole.pop("$defs"))
        definitions[kind] = whole
    return {
        "$schema": dialect,
        "title": "gpu-rules",
        "description": "Any document of gpu-rules.",
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in DOCUMENT_KINDS],
        "$defs": dict(sorted(definitions.items())),
    }
