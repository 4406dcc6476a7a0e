"""The quick test of documents: True only for those in which jsonschema finds no problem."""

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from rules_engine.language.headers import DOCUMENT_KINDS
from rules_engine.language.schemas import (
    SCHEMAS,
    _compile_pattern,
    _conforms,
    _explicit_spaces,
    _kind_validator,
    schema,
)
from rules_engine.language.yaml.documents import LOADER
from tests.language.test_schemas import TOP

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    1.5,
    2**63 - 1,
    2**70,
    -(10**400),
    1e308,
    math.nan,
    -math.inf,
    "",
    "a",
    "A\n",
    "\x85",
    "\ud800",
    "٣",
    "nvidia.com/gpu",
    "a" * 300,
    [],
    ["a", "a"],
    [1],
    {},
    {1: 2},
    {"\ud800": 1},
)
"""Values that fit few fields, and at which types of Python, Rust and JSON differ."""

EXAMPLES = [(kind, example) for kind in DOCUMENT_KINDS for example in schema(kind)["examples"]]

SHIPPED = [
    document
    for folder in ("rules", "examples")
    for file in sorted((TOP / folder).rglob("*.yaml"))
    for document in yaml.load_all(file.read_text(), Loader=LOADER)
    if document.get("kind") in DOCUMENT_KINDS
]


@pytest.mark.parametrize("document", [*SHIPPED, *(example for _, example in EXAMPLES)], ids=lambda d: d["kind"])
def test_shipped_documents_need_no_jsonschema(document: Any) -> None:
    assert _conforms(document["kind"], SCHEMAS, document)


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
                owner[last] = copy.copy(data.draw(st.sampled_from(ODD)))
            case "remove":
                del owner[last]
            case _ if isinstance(owner, list):
                owner.append(owner[int(last)])
            case _:
                owner[data.draw(st.sampled_from(["extra", "file", "pod", "A b", ""]))] = owner[last]
        if not places(document):
            break

    if _conforms(kind, SCHEMAS, document):
        assert list(_kind_validator(kind, SCHEMAS).errors(document)) == []


@pytest.mark.parametrize("name", ["\ud800", 1])
def test_values_that_rust_does_not_have_are_left_to_jsonschema(name: Any) -> None:
    assert not _conforms("Validation", SCHEMAS, {name: 1})


def patterns(part: Any) -> Iterator[str]:
    """Yield the patterns in a part of a schema."""
    if isinstance(part, dict) and isinstance(part.get("pattern"), str):
        yield part["pattern"]
    for member in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from patterns(member)


PATTERNS = sorted({found for file in SCHEMAS.glob("*.json") for found in patterns(json.loads(file.read_text()))})
CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def matches(pattern: str) -> Callable[[str], bool]:
    """Return the test of a pattern as the quick test has it."""
    return Draft202012Validator(_explicit_spaces({"pattern": pattern})).is_valid


@pytest.mark.parametrize("pattern", PATTERNS)
@given(data=st.data())
def test_patterns_match_the_same_texts(pattern: str, data: st.DataObject) -> None:
    exact = _compile_pattern(pattern)
    encodable = st.characters(exclude_categories=["Cs"])
    # Texts that a lookahead refuses are also of interest.
    text = data.draw(st.from_regex(re.sub(r"\(\?[=!][^()]*\)", "", exact.pattern), alphabet=encodable))
    more = data.draw(st.sampled_from(["\n", "\r", "\u2028", " ", "\x85", "٣", "{{", ""]) | st.text(encodable))

    for value in (text, text + more, more + text, text[: len(text) // 2] + more, more):
        assert matches(pattern)(value) == (exact.search(value) is not None)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_the_same_characters(pattern: str) -> None:
    quick, exact = matches(pattern), _compile_pattern(pattern)
    assert [char for char in CHARACTERS if quick(char) != (exact.search(char) is not None)] == []
