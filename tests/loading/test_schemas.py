"""The JSON Schemas: valid, described field by field, and consistent with the code."""

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing.exceptions import Unresolvable

from rules_engine.documents import DOCUMENT_KINDS
from rules_engine.evaluation.nodes import NodeFilter
from rules_engine.kinds import KINDS, Kind
from rules_engine.kinds.injection.value import Entry, ResourceInjection
from rules_engine.kinds.ladder.value import FallbackLadder, Rung
from rules_engine.kinds.validation.value import Validation
from rules_engine.loading import schema
from rules_engine.loading.schemas import COMMON, SCHEMAS
from rules_engine.model.rules import LabelSelector, Match, Rule

Schema = dict[str, Any]
TOP = Path(__file__).parents[2]
FILES = sorted(SCHEMAS.iterdir())


def written(file: Path) -> Schema:
    found: Schema = json.loads(file.read_text())
    return found


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


def references(node: Any) -> Iterator[Schema]:
    """Yield each schema with a reference."""
    if isinstance(node, dict):
        if "$ref" in node:
            yield node
        for below in node.values():
            yield from references(below)
    elif isinstance(node, list):
        for below in node:
            yield from references(below)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_file_meets_the_meta_schema(file: Path) -> None:
    Draft202012Validator.check_schema(written(file))
    assert written(file)["$id"] == schema(DOCUMENT_KINDS[0])["$id"].replace(DOCUMENT_KINDS[0], file.stem)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_members_beside_a_reference_only_describe_it(file: Path) -> None:
    # A bundle replaces members of the field that is referred to, which is right for annotations only.
    for found in references(written(file)):
        assert found.keys() <= {"$ref", "description", "examples", "default"}, found


def test_common_definitions_are_used_by_more_than_one_kind() -> None:
    for name in written(SCHEMAS / COMMON)["$defs"].keys() - {"document", "rule", "cluster"}:
        users = [kind for kind in DOCUMENT_KINDS if name in schema(kind)["$defs"]]
        assert len(users) > 1, name


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_definitions_of_a_kind_are_used_and_are_not_common(kind: str) -> None:
    own = written(SCHEMAS / f"{kind}.json").get("$defs", {})
    assert own.keys() <= schema(kind)["$defs"].keys()
    assert not own.keys() & written(SCHEMAS / COMMON)["$defs"].keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_rule_has_the_common_fields(kind: Kind) -> None:
    spec = schema(kind.name)["properties"]["spec"]["properties"]
    for name, field in written(SCHEMAS / COMMON)["$defs"]["rule"]["properties"].items():
        assert spec[name]["description"] == field["description"]


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_a_printed_schema_refers_to_no_other_file(kind: str) -> None:
    for found in references(schema(kind)):
        assert found["$ref"].removeprefix("#/$defs/") in schema(kind)["$defs"]


def test_a_schema_of_another_folder_may_refer_to_common_definitions_and_to_itself(tmp_path: Path) -> None:
    own = {
        "$id": schema("Validation")["$id"].replace("Validation", "Tree"),
        "properties": {"name": {"$ref": "common.json#/$defs/name"}, "top": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    }
    (tmp_path / "Tree.json").write_text(json.dumps(own))
    assert schema("Tree", tmp_path) == {
        **own,
        "properties": {"name": {"$ref": "#/$defs/name"}, "top": {"$ref": "#/$defs/tree"}},
        "$defs": {"name": schema("Validation")["$defs"]["name"], **own["$defs"]},  # type: ignore[dict-item]
    }


def test_a_reference_to_another_place_is_not_retrieved(tmp_path: Path) -> None:
    (tmp_path / "Far.json").write_text('{"$ref": "https://127.0.0.1:1/far.json#/properties/x"}')
    with pytest.raises(Unresolvable):
        schema("Far", tmp_path)


def test_the_packaged_schemas_are_those_at_the_top() -> None:
    assert {path.stem for path in (TOP / "schemas").iterdir()} == {*DOCUMENT_KINDS, "common"}
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
