"""`explain KIND.FIELD`: the documentation of a field, from the schema of its kind."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rules_engine.language.headers import DOCUMENT_KINDS
from rules_engine.language.schemas import schema
from rules_engine.model.problems.problem import did_you_mean
from rules_engine.model.problems.source import truncate

Schema = Mapping[str, Any]


class UnknownFieldError(ValueError):
    """A path that names no field; the message is for the command line."""


def field_documentation(path: str) -> str:
    """Return the documentation of a field and of the fields below it, as `kubectl explain` lays it out.

    Lists and maps need no index or key: `FallbackLadder.spec.rungs.when` is a field of each rung. Raises
    UnknownFieldError.
    """
    kind, *names = path.split(".")
    here = {each.casefold(): each for each in DOCUMENT_KINDS}.get(kind.casefold())
    if here is None:
        near = did_you_mean(kind, DOCUMENT_KINDS)
        raise UnknownFieldError(f"'{truncate(kind)}' is no kind{near}: must be one of {', '.join(DOCUMENT_KINDS)}")
    whole = schema(here)
    node, required = _resolve(whole, whole), False
    for name in names:
        owner = _members(node, whole)
        fields = owner.get("properties", {})
        if name not in fields:
            raise UnknownFieldError(f"{here} has no field '{truncate(name)}'{did_you_mean(name, fields)}")
        node, here, required = _resolve(fields[name], whole), f"{here}.{name}", name in owner.get("required", ())
    lines = [_title(here, node, whole, required=required), f"    {node.get('description', '')}"]
    lines += [f"    {name}: {value}" for name, value in _details(node)]
    owner = _members(node, whole)
    for name, value in owner.get("properties", {}).items():
        field = _resolve(value, whole)
        title = _title(name, field, whole, required=name in owner.get("required", ()))
        lines += ["", f"  {title}", f"    {field.get('description', '')}"]
        lines += [f"    {label}: {text}" for label, text in _details(field) if label != "example"]
    return "\n".join(lines)


def _title(name: str, node: Schema, whole: Schema, *, required: bool) -> str:
    return f"{name} <{_type(node, whole)}{', required' if required else ''}>"


def _details(node: Schema) -> Iterator[tuple[str, str]]:
    if "enum" in node:
        yield "one of", ", ".join(map(str, node["enum"]))
    if "default" in node:
        yield "default", json.dumps(node["default"])
    for example in node.get("examples", ())[:1]:
        yield "example", json.dumps(example, ensure_ascii=False)


def _resolve(node: Schema, whole: Schema) -> Schema:
    """Return a schema with its `$ref` resolved; its own members take precedence."""
    reference = node.get("$ref")
    return {**_resolve(whole["$defs"][reference.rpartition("/")[2]], whole), **node} if reference else node


def _members(node: Schema, whole: Schema) -> Schema:
    """Return the schema with the fields below a field: its own, or those of the items of a list or map."""
    while "properties" not in node:
        inner = node.get("items", node.get("additionalProperties"))
        if not isinstance(inner, Mapping):
            return {}
        node = _resolve(inner, whole)
    return node


def _type(node: Schema, whole: Schema) -> str:
    kind = node.get("type", "value")
    if kind == "array" and isinstance(node.get("items"), Mapping):
        return f"list of {_type(_resolve(node['items'], whole), whole)}"
    return " or ".join(kind) if isinstance(kind, list) else str(node.get("title", kind))
