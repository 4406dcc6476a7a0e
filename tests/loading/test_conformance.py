"""The quick test of documents: True only for those in which jsonschema finds no problem."""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.documents.headers import DOCUMENT_KINDS
from rules_engine.loading import schema
from rules_engine.loading.conformance import conformance
from rules_engine.loading.schemas import SCHEMAS, _conforms, _validator
from tests.loading.test_schemas import TOP

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    1.5,
    2**70,
    "",
    "a",
    "A\n",
    "nvidia.com/gpu",
    "a" * 300,
    [],
    ["a", "a"],
    [1],
    {},
)
"""Values that fit few fields, and at which types of Python and JSON differ."""

EXAMPLES = [(kind, example) for kind in DOCUMENT_KINDS for example in schema(kind)["examples"]]

SHIPPED = [
    document
    for folder in ("rules", "examples")
    for file in sorted((TOP / folder).rglob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
]


@pytest.mark.parametrize("document", [*SHIPPED, *(example for _, example in EXAMPLES)], ids=lambda d: d["kind"])
def test_shipped_documents_need_no_jsonschema(document: Any) -> None:
    assert _conforms(document["kind"], SCHEMAS)(document)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all values of a document, without its own."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, member in members for place in ((*path, key), *places(member, (*path, key)))]


DOCUMENTS = [*EXAMPLES, *((document["kind"], document) for document in SHIPPED)]


@given(st.data())
def test_a_document_that_conforms_is_valid(data: st.DataObject) -> None:
    kind, example = data.draw(st.sampled_from(DOCUMENTS))
    document = copy.deepcopy(example)
    for _ in range(data.draw(st.integers(1, 2))):
        *above, last = data.draw(st.sampled_from(places(document)))
        owner: Any = document
        for step in above:
            owner = owner[step]
        match data.draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                owner[last] = data.draw(st.sampled_from(ODD))
            case "remove":
                del owner[last]
            case _ if isinstance(owner, list):
                owner.append(owner[int(last)])
            case _:
                owner[data.draw(st.sampled_from(["extra", "file", "pod", "A b", ""]))] = owner[last]
        if not places(document):
            break

    if _conforms(kind, SCHEMAS)(document):
        assert list(_validator(kind, SCHEMAS).errors(document)) == []


@pytest.mark.parametrize(
    ("part", "valid", "invalid"),
    [
        ({"type": "string"}, ["", "a"], [None, 1, True]),
        ({"type": ["integer", "null"]}, [1, None], [True, 1.0, "1"]),
        ({"type": "number"}, [1, 1.5], [True]),
        ({"pattern": "^a$"}, ["a", 1], ["a\n", "b"]),
        ({"enum": ["a", "b"]}, ["a"], ["c", 1, None]),
        ({"const": "a"}, ["a"], ["b", 1]),
        ({"maxLength": 2}, ["ab", 1], ["abc"]),
        ({"minItems": 1, "maxItems": 2}, [[1], [1, 2], "x"], [[], [1, 2, 3]]),
        ({"uniqueItems": True}, [["a", "b"], [], "aa"], [["a", "a"], [1, 1]]),
        ({"uniqueItems": False}, [["a", "a"]], []),
        ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}, "x"], [{}, {"a": 1, "b": 2}]),
        ({"minimum": 1, "maximum": 2}, [1, 1.5, 2, "x", True], [0, 3]),
        ({"items": {"type": "string"}}, [["a"], [], "x"], [[1]]),
        ({"propertyNames": {"maxLength": 1}}, [{"a": 1}, {}, "ab"], [{"ab": 1}]),
        ({"required": ["a"]}, [{"a": 1}, "x"], [{}]),
        ({"properties": {"a": {"type": "null"}}}, [{"a": None}, {"b": 1}, {}, "x"], [{"a": 1}]),
        ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}, {}], [{"b": 1}]),
        ({"additionalProperties": {"type": "null"}}, [{"a": None}], [{"a": 1}]),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1, "b": 1}, {"b": 1}, "x"], [{}]),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1}, {"b": 1}, "x"], [{}, {"a": 1, "b": 1}]),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{"a": 1, "b": 1}, {}, "x"], [{"a": 1}]),
        ({"$ref": "other.json#/$defs/tree"}, [{"below": {"below": {}}}], [{"below": {"below": 1}}]),
        ({"$defs": {"own": {"type": "null"}}, "$ref": "#/$defs/own"}, [None], [1]),
        ({"oneOf": [{"type": "null"}]}, [], [None]),
        ({"not": {"type": "null"}}, [], [1]),
    ],
    ids=str,
)
def test_each_keyword_is_tested(part: Any, valid: list[Any], invalid: list[Any]) -> None:
    tree = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}}
    conforms = conformance(part, {"other.json": {"$defs": {"tree": tree}}})
    assert [conforms(value) for value in valid] == [True] * len(valid)
    assert [conforms(value) for value in invalid] == [False] * len(invalid)
