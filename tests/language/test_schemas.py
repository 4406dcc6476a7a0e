"""The JSON Schemas: valid, described field by field, and consistent with the code."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing.exceptions import Unresolvable

from rules_engine.accelerators.catalogue import Catalogue
from rules_engine.language.cel import Program
from rules_engine.language.headers import DOCUMENT_KINDS
from rules_engine.language.schemas import COMMON, SCHEMAS, schema
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.compiled import RuleKind
from rules_engine.rules.sources.documents import load_documents
from tools import schema_defaults

Schema = dict[str, Any]
TOP = Path(__file__).parents[2]
FILES = sorted(SCHEMAS.glob("*.json"))


def written(file: Path) -> Schema:
    content: Schema = json.loads(file.read_text())
    return content


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
def test_unknown_fields_are_rejected_everywhere(kind: str) -> None:
    # Parts of a Pod, which the table of Kubernetes' fields checks.
    of_pods = {"volume", "valueFrom", *(f"{name} of a volume" for name in ("Secret", "ConfigMap", "claim"))}
    of_pods |= {"key of a Secret", "key of a ConfigMap"}
    parts = [part for part in objects(schema(kind)) if part["title"] not in of_pods]
    assert all(part["additionalProperties"] is False for part in parts)


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
    for reference in references(written(file)):
        assert reference.keys() <= {"$ref", "description", "examples", "default"}, reference


def test_common_definitions_are_used_by_more_than_one_kind() -> None:
    for name in written(SCHEMAS / COMMON)["$defs"].keys() - {"document", "rule", "cluster", "scenario", "toleration"}:
        users = [kind for kind in DOCUMENT_KINDS if name in schema(kind)["$defs"]]
        assert len(users) > 1, name


def test_definitions_of_one_name_are_the_same_everywhere() -> None:
    first: Schema = {}
    for kind in DOCUMENT_KINDS:
        for name, definition in schema(kind)["$defs"].items():
            assert first.setdefault(name, definition) == definition, name


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_definitions_of_a_kind_are_used_and_are_not_common(kind: str) -> None:
    own = written(SCHEMAS / f"{kind}.json").get("$defs", {})
    assert own.keys() <= schema(kind)["$defs"].keys()
    assert not own.keys() & written(SCHEMAS / COMMON)["$defs"].keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_rule_has_the_common_fields(kind: RuleKind) -> None:
    spec = schema(kind.name)["properties"]["spec"]["properties"]
    for name, field in written(SCHEMAS / COMMON)["$defs"]["rule"]["properties"].items():
        assert spec[name]["description"] == field["description"]


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_a_printed_schema_refers_to_no_other_file(kind: str) -> None:
    for reference in references(schema(kind)):
        assert reference["$ref"].removeprefix("#/$defs/") in schema(kind)["$defs"]


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
        "$defs": {"name": schema("Validation")["$defs"]["name"], **own["$defs"]},
    }


def test_a_reference_to_another_place_is_not_retrieved(tmp_path: Path) -> None:
    (tmp_path / "Far.json").write_text('{"$ref": "https://127.0.0.1:1/far.json#/properties/x"}')
    with pytest.raises(Unresolvable):
        schema("Far", tmp_path)


def test_packaged_schemas_equal_the_top_level_ones() -> None:
    assert {path.stem for path in (TOP / "schemas").glob("*.json")} == {*DOCUMENT_KINDS, "common"}
    assert (TOP / "rules_engine" / "schemas").resolve() == (TOP / "schemas").resolve()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_schema_defaults_equal_value_type_defaults(file: Path) -> None:
    assert file.read_text() == schema_defaults.renewed(file.read_text())


def test_absence_is_no_default() -> None:
    spec = schema("FallbackLadder")["properties"]["spec"]["properties"]
    case = schema("RuleTest")["properties"]["spec"]["properties"]["cases"]["items"]["properties"]
    check = schema("Validation")["properties"]["spec"]["properties"]["validations"]["items"]["properties"]
    assert (spec["optOut"]["default"], spec["rungs"]["items"]["properties"]["assume"]["default"]) == ("Allowed", False)
    for field in (
        spec["rungs"]["items"]["properties"]["weight"],  # counts: Scale needs it, and Keep does not read it
        check["message"],  # the expression
        case["request"]["properties"]["namespace"],  # the pod's
        case["request"]["properties"]["subResource"],
        case["expect"]["properties"]["warnings"],  # not compared, unlike an empty list
    ):
        assert "default" not in field


SPECS = {
    "FallbackLadder": {"rungs": [{"resource": "nvidia.com/gpu"}]},
    "PodDefaults": {"containers": [{"which": "All"}], "namespaces": {"ml": {}}},
    "ResourceInjection": {"namespaces": {"ml": {}}},
    "Validation": {"validations": [{"expression": "true"}]},
    "WorkloadKind": {
        "group": "example.com",
        "kind": "Trainer",
        "templates": [{"path": "spec.template"}],
        "gang": {"minimum": "2"},
        "references": {"runtime": {"kind": "'Runtime'", "name": "object.spec.runtime"}},
    },
    "AcceleratorCatalogue": {
        "vendors": [{"name": "Example"}],
        "networks": [{"name": "fabric"}],
        "cards": [{"name": "Example-48GB"}],
        "labels": [{"name": "example.com/card", "meaning": "product"}],
        "drivers": [{"name": "gpu.example.com", "product": "model"}],
    },
    "RuleTest": {
        "cases": [{"name": "one", "pod": {"spec": {"containers": [{"name": "main"}]}}, "expect": {"allowed": True}}]
    },
    "Diagnostic": {
        "forEach": "Node",
        "when": "true",
        "severity": "Info",
        "reason": "Here",
        "messageExpression": "'here'",
        "remedies": [{"text": "Wait."}],
    },
    "Simulation": {
        "cluster": {"nodes": [{"name": "one"}]},
        "arrivals": [{"pod": {"kind": "Pod", "spec": {"containers": [{"name": "main"}]}}, "runFor": "1h"}],
        "events": [{"at": "1s", "node": "one", "becomes": "Drained"}],
    },
    "ClusterInventory": {"nodes": [{"name": "one", "taints": [{"key": "gpu", "effect": "NoSchedule"}]}]},
}
"""The shortest spec of each kind that has all its objects."""


def with_defaults(document: Any, of: Schema, definitions: Schema) -> Any:
    """Return a document with the default of every field that it does not have."""
    of = {**definitions.get(of.get("$ref", "").rpartition("/")[2], {}), **of}
    if isinstance(document, list):
        return [with_defaults(item, of.get("items", {}), definitions) for item in document]
    if not isinstance(document, dict):
        return document
    fields = of.get("properties", {})
    whole = {**{name: field["default"] for name, field in fields.items() if "default" in field}, **document}
    other = of.get("additionalProperties") or {}
    return {name: with_defaults(value, fields.get(name, other), definitions) for name, value in whole.items()}


def without_locations(value: Any) -> Any:
    """Return a loaded value without its locations, what is derived from them, and objects, which are never equal."""
    located = ("location", "origin", "fields", "inherited", "objects")
    if isinstance(value, SourceText):
        return value.text
    if isinstance(value, Program):
        return value.source.text
    if isinstance(value, Catalogue):
        return msgspec.to_builtins(value)
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.name not in located]
        return {name: without_locations(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {name: without_locations(below) for name, below in value.items()}
    return [without_locations(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("kind", DOCUMENT_KINDS)
def test_a_document_means_the_same_with_its_defaults_written(kind: str, tmp_path: Path) -> None:
    brief = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "one"}, "spec": SPECS[kind]}
    root = schema(kind)
    long = with_defaults(brief, root, root["$defs"])
    meant = []
    for document in (brief, long):
        file = tmp_path / "one.yaml"
        file.write_text(yaml.safe_dump(document))
        loaded = load_documents([file])
        assert loaded.problems == ()
        meant.append(without_locations(tuple(document.value for document in loaded.documents)))
    assert brief != long
    assert meant[0] == meant[1]


def test_schema_libraries_are_imported_only_to_read_a_document() -> None:
    # It takes longer to import than everything else that `gpu-rules --help` needs.
    script = "import sys, rules_engine.language; sys.exit(bool({'jsonschema', 'jsonschema_rs'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], cwd=TOP, check=False).returncode == 0
