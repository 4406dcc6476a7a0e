"""The JSON Schemas: valid, described field by field, and consistent with the code."""

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rules_engine.documents import DOCUMENT_KINDS
from rules_engine.evaluation.nodes import NodeFilter
from rules_engine.kinds.injection.value import Entry, ResourceInjection
from rules_engine.kinds.ladder.value import FallbackLadder, Rung
from rules_engine.kinds.validation.value import Validation
from rules_engine.loading import schema
from rules_engine.model.rules import LabelSelector, Match, Rule

Schema = dict[str, Any]
TOP = Path(__file__).parents[2]


def properties(node: Any, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield each field of a schema with its path."""
    if isinstance(node, dict):
        for name, below in node.items():
            if name == "properties":
                for field, described in below.items():
                    yield f"{path}/{field}", described
                    yield from properties(described, f"{path}/{field}")
            elif name not in ("examples", "default"):
                yield from properties(below, f"{path}/{name}")
    elif isinstance(node, list):
        for below in node:
            yield from properties(below, path)


def objects(node: Any) -> Iterator[Schema]:
    """Yield each schema of an object with fields."""
    if isinstance(node, dict):
        if "properties" in node:
            yield node
        for name, below in node.items():
            if name not in ("examples", "default"):
                yield from objects(below)
    elif isinstance(node, list):
        for below in node:
            yield from objects(below)


FIELDS = [
    pytest.param(kind, field, id=f"{kind}{path}") for kind in DOCUMENT_KINDS for path, field in properties(schema(kind))
]


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_each_schema_meets_the_meta_schema(kind: str) -> None:
    Draft202012Validator.check_schema(schema(kind))
    assert schema(kind)["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert schema(kind)["title"] == kind
    assert schema(kind)["$id"].endswith(f"/{kind}.json")


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_each_field_is_described_with_an_example_that_holds(kind: str, field: Schema) -> None:
    assert field["description"].endswith(".")
    validator = Draft202012Validator({**field, "$defs": schema(kind)["$defs"]})
    assert field["examples"]
    for example in (*field["examples"], *([field["default"]] if "default" in field else [])):
        validator.validate(example)


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_the_definitions_and_the_document_are_described_too(kind: str) -> None:
    root = schema(kind)
    for definition in (*root["$defs"].values(), root):
        assert definition["description"].endswith(".")
        assert definition["title"]
        for example in definition["examples"]:
            Draft202012Validator({**definition, "$defs": root["$defs"]}).validate(example)


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_unknown_fields_are_refused_everywhere(kind: str) -> None:
    assert all(found["additionalProperties"] is False for found in objects(schema(kind)))


def test_definitions_of_one_name_are_the_same_everywhere() -> None:
    first: dict[str, tuple[str, Schema]] = {}
    for kind in DOCUMENT_KINDS:
        for name, definition in schema(kind)["$defs"].items():
            where, found = first.setdefault(name, (kind, definition))
            assert definition == found, f"$defs/{name} of {kind} differs from that of {where}"


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_every_definition_is_used(kind: str) -> None:
    text = str(schema(kind))
    assert all(f"'#/$defs/{name}'" in text for name in schema(kind)["$defs"])


def test_the_packaged_schemas_are_those_at_the_top() -> None:
    assert {path.stem for path in (TOP / "schemas").iterdir()} == set(DOCUMENT_KINDS)
    assert (TOP / "rules_engine" / "schemas").resolve() == (TOP / "schemas").resolve()


def _plain(value: Any) -> Any:
    """A default of the model as its YAML value."""
    match value:
        case Enum():
            return value.value
        case tuple():
            return [_plain(item) for item in value]
        case frozenset():
            return sorted(_plain(item) for item in value)
        case LabelSelector() | NodeFilter() | Match():
            return {}
    return dict(value) if hasattr(value, "keys") else value


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda found: found[1].upper(), name)


def _defaults(model: type) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(model):
        if field.default is not dataclasses.MISSING:
            found[_camel(field.name)] = _plain(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            found[_camel(field.name)] = _plain(field.default_factory())
    return found


@pytest.mark.parametrize(
    ("model", "kind", "where"),
    [
        (FallbackLadder, "FallbackLadder", ()),
        (ResourceInjection, "ResourceInjection", ()),
        (Validation, "Validation", ()),
        (Match, "Validation", ("match",)),
        (NodeFilter, "FallbackLadder", ("nodes",)),
        (Entry, "ResourceInjection", ()),
    ],
)
def test_defaults_are_those_of_the_model(model: type, kind: str, where: tuple[str, ...]) -> None:
    spec = schema(kind)["properties"]["spec"]
    for name in where:
        spec = spec["properties"][name]
    written = {name: field["default"] for name, field in spec["properties"].items() if "default" in field}
    meant = _defaults(model)
    # Labels and annotations of a rule are its metadata's; an injection's annotations are its default entry's.
    metadata = {"labels", "annotations"} if issubclass(model, Rule) else set()
    # Without a GPU type the injection is for any; `origin` is not written by authors.
    for name in meant.keys() - metadata - {"gpuType", "origin"}:
        assert written[name] == meant[name], name


def test_defaults_of_rungs_are_those_of_the_model() -> None:
    rung = schema("FallbackLadder")["properties"]["spec"]["properties"]["rungs"]["items"]["properties"]
    assert rung["assume"]["default"] is _defaults(Rung)["assume"]
    # The model keeps an absent weight apart from 1: counts: Scale wants it written.
    assert (rung["weight"]["default"], _defaults(Rung)["weight"]) == (1, None)


def test_what_reads_schemas_is_only_imported_when_a_document_is_read() -> None:
    # It takes longer to import than everything else that `gpu-rules --help` needs.
    script = "import sys, rules_engine.loading; sys.exit('jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=TOP, check=False).returncode == 0
