"""`schema`: the JSON Schemas of rule files, one by one or all in one."""

import re
from typing import Any

from rules_engine.documents.headers import DOCUMENT_KINDS
from rules_engine.loading import schema

SCHEMA_FILE = "gpu-rules.schema.json"
"""Name of the file with the combined schema in a repository of rules. `check` passes it over."""

_COMMENTS = re.compile(r"^# yaml-language-server: .*\n", re.MULTILINE)


def schema_comment(path: str) -> str:
    """Return the comment that names the schema of a document for editors; `path` is relative to the document's file.

    The language server reads it for each document: a file with several has it in each.
    """
    return f"# yaml-language-server: $schema={path}"


def without_schema_comments(text: str) -> str:
    """Return the text of a file for another folder, where the paths in these comments lead nowhere."""
    return _COMMENTS.sub("", text)


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
