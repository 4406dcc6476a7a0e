"""`explain KIND.FIELD`: the documentation of a field, from the schema of its kind."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rules_engine.documents.headers import DOCUMENT_KINDS
from rules_engine.loading import schema
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.problems.problem import did_you_mean

Schema = Mapping[str, Any]


class UnknownFieldError(ValueError):
    """A path that names no field; the message is for the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDocumentation:
    """A field, and those below it by their names: type and description of each."""

    path: str
    type: str
    description: str
    details: Mapping[str, str]
    fields: Mapping[str, tuple[str, str]]

    def text(self) -> str:
        """Return the documentation as `kubectl explain` lays it out."""
        lines = [f"{self.path} <{self.type}>", f"    {self.description}"]
        lines += [f"    {name}: {value}" for name, value in self.details.items()]
        for name, (type_name, description) in self.fields.items():
            lines += ["", f"  {name} <{type_name}>", f"    {description}"]
        return "\n".join(lines)


def field_documentation(path: str) -> FieldDocumentation:
    """Return the documentation of a field, such as `FallbackLadder.spec.rungs`. Raises UnknownFieldError.

    Lists and maps need no index or key: `rungs.when` is a field of each rung.
    """
    kind, *names = path.split(".")
    kinds = {each.casefold(): each for each in DOCUMENT_KINDS}
    if kind.casefold() not in kinds:
        near = did_you_mean(kind, DOCUMENT_KINDS)
        raise UnknownFieldError(f"'{truncate(kind)}' is no kind{near}: must be one of {', '.join(DOCUMENT_KINDS)}")
    whole = schema(kinds[kind.casefold()])
    node, here, required = _resolve(whole, whole), kinds[kind.casefold()], False
    for name in names:
        owner = _members(node, whole)
        if name not in owner.get("properties", {}):
            near = did_you_mean(name, owner.get("properties", ()))
            raise UnknownFieldError(f"{here} has no field '{truncate(name)}'{near}")
        required = name in owner.get("required", ())
        node, here = _resolve(owner["properties"][name], whole), f"{here}.{name}"
    fields = _members(node, whole)
    needed = fields.get("required", ())
    return FieldDocumentation(
        path=here,
        type=f"{_type(node, whole)}, required" if required else _type(node, whole),
        description=node.get("description", ""),
        details=dict(_details(node)),
        fields={
            name: (_type(field, whole) + (", required" if name in needed else ""), field.get("description", ""))
            for name, field in ((name, _resolve(field, whole)) for name, field in fields.get("properties", {}).items())
        },
    )


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
