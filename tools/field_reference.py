"""Tables of docs/reference/rules.md, from schemas/. `python -m tools.field_reference` updates them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rules_engine.language.headers import DOCUMENT_KINDS
from rules_engine.language.schemas import schema
from rules_engine.rules.kinds import KINDS
from tools.documents import REPOSITORY, fill_marked

DOCUMENT = REPOSITORY / "docs/reference/rules.md"
RULE_KINDS = tuple(kind.name for kind in KINDS)

# An inline cluster of a RuleTest has the nodes of an inventory, which are documented there. Each of several clusters is
# like the one cluster, an expectation on one of them like that on all, and a namespace's entry of PodDefaults like the
# spec.
DOCUMENTED_ELSEWHERE = (
    "spec.cluster.nodes[].",
    "spec.clusters.NAME.",
    "spec.cases[].expectOn.NAME.",
    "spec.namespaces.NAME.pod.",
    "spec.namespaces.NAME.containers[].",
)

# Types with fields, which are documented once.
DOCUMENTED_AS_TYPES = ("#/$defs/labelSelector", "#/$defs/taint")

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A field as a row of a table."""

    path: str
    type: str
    default: str
    meaning: str

    def __str__(self) -> str:
        cells = (f"`{self.path}`", self.type, self.default, self.meaning)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def rows(kind: str) -> tuple[Row, ...]:
    """Return the fields of a kind's spec."""
    whole = schema(kind)
    spec = whole["properties"]["spec"]
    return tuple(row for row in _fields(spec, "spec", whole["$defs"]) if not row.path.startswith(DOCUMENTED_ELSEWHERE))


def _fields(node: Schema, path: str, definitions: Mapping[str, Schema]) -> Iterator[Row]:
    node = _resolved(node, definitions)
    required = node.get("required", [])
    for name, field in node.get("properties", {}).items():
        here = f"{path}.{name}"
        resolved = _resolved(field, definitions)
        default = "**required**" if name in required else _default(resolved)
        yield Row(here, _type(field, definitions), default, resolved["description"])
        if field.get("$ref") in DOCUMENTED_AS_TYPES:
            continue
        yield from _fields(resolved, here, definitions)
        if isinstance(resolved.get("items"), dict) and resolved["items"].get("$ref") not in DOCUMENTED_AS_TYPES:
            yield from _fields(resolved["items"], f"{here}[]", definitions)
        if isinstance(resolved.get("additionalProperties"), dict):
            yield from _fields(resolved["additionalProperties"], f"{here}.NAME", definitions)


def _resolved(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Return a schema with its `$ref` resolved; its own description, examples and default take precedence."""
    reference = node.get("$ref")
    return {**definitions[reference.rsplit("/", 1)[-1]], **node} if reference else node


def _default(field: Schema) -> str:
    if "default" not in field:
        return ""
    default = field["default"]
    return f"`{default}`" if isinstance(default, str) and default else f"`{json.dumps(default)}`"


def _type(field: Schema, definitions: Mapping[str, Schema]) -> str:
    reference = field.get("$ref")
    if reference:
        return _link(definitions[reference.rsplit("/", 1)[-1]]["title"])
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    kind = field["type"]
    if kind == "array":
        return f"list of {_type(field['items'], definitions)}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        names = field.get("propertyNames", {})
        of = _type(field["additionalProperties"], definitions)
        return f"{of} by {names.get('title') or _type(names, definitions)}" if names else f"{of} by name"
    if kind == "integer" and ("minimum" in field or "maximum" in field):
        return f"integer{_range(field)}"
    if isinstance(kind, list):
        return " or ".join(kind)
    return str(field.get("title", kind)) if kind == "object" else str(kind)


def _range(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", at least {low}" if low is not None else f", at most {high}"


def _link(title: str) -> str:
    if title == "node":
        return "[node](#clusterinventory)"
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def table(section: str) -> str:
    """Return the table of a section: a kind, `common` (fields of all rules) or `types`."""
    if section == "types":
        return _types()
    common = [row for row in rows(RULE_KINDS[0]) if all(row in rows(kind) for kind in RULE_KINDS[1:])]
    if section == "common":
        return _table(common)
    return _table([row for row in rows(section) if section not in RULE_KINDS or row not in common])


def _table(found: list[Row]) -> str:
    return "\n".join(("| field | type | default | meaning |", "|---|---|---|---|", *map(str, found))) + "\n"


def _types() -> str:
    definitions: dict[str, Schema] = {}
    for kind in DOCUMENT_KINDS:
        definitions.update(schema(kind)["$defs"])
    parts = []
    for definition in sorted(definitions.values(), key=lambda definition: str(definition["title"]).lower()):
        if definition["title"] == "node":
            continue
        example = json.dumps(definition["examples"][0], ensure_ascii=False)
        parts.append(f"### {definition['title']}\n\n{definition['description']} Example: `{example}`\n")
        found = list(_fields(definition, "", definitions))
        if found:
            parts.append(_table([Row(row.path[1:], row.type, row.default, row.meaning) for row in found]))
    return "\n".join(parts)


def renewed(text: str) -> str:
    """Return the document with current tables."""
    return fill_marked(text, r"fields: (\w+)", table)


def sections(text: str) -> tuple[str, ...]:
    """Return the sections that the document marks."""
    return tuple(re.findall(r"<!-- fields: (\w+) -->", text))


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
