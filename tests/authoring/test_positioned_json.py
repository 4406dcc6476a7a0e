"""Positioned JSON: the values of the standard library, numbers as text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.converting.positioned_json import JsonError, Node, Number, Object, parse_json
from rules_engine.loading.yaml.documents import MAX_DEPTH


def plain(node: Node) -> Any:
    match node.value:
        case Object(members):
            return {member.name: plain(member.value) for member in members}
        case tuple(items):
            return [plain(item) for item in items]
        case Number(text):
            return json.loads(text)
        case value:
            return value


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_the_reader_agrees_with_the_standard_library(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert plain(parse_json(text, "f")) == value


def test_numbers_keep_their_text() -> None:
    assert parse_json(" 1.50e+2 ", "f").value == Number("1.50e+2")


def test_every_value_and_key_has_its_location() -> None:
    root = parse_json('{\n  "a": [1, "xy"],\n  "é": {}\n}', "f")
    assert isinstance(root.value, Object)
    first, second = root.value.members
    assert (str(first.key.location), first.key.length) == ("f:2:3", 3)
    assert isinstance(first.value.value, tuple)
    assert [(str(item.location), item.length) for item in first.value.value] == [("f:2:9", 1), ("f:2:12", 4)]
    assert str(second.value.location) == "f:3:8"


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    assert parse_json('"a\\ud800b"', "f").value == "a\ufffdb"
    assert parse_json('"\\ud83d\\ude00"', "f").value == "😀"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "f:1:1", "unexpected end"),
        ('{"a": ', "f:1:7", "unexpected end"),
        ('{"a"', "f:1:5", "unexpected end"),
        ('{"a": 1,}', "f:1:9", "key in double quotes"),
        ("{a: 1}", "f:1:2", "key in double quotes"),
        ('{"a" 1}', "f:1:6", "expected ':'"),
        ("[1 2]", "f:1:4", "expected ','"),
        ("[1,]", "f:1:4", "expected a JSON value"),
        ('{"a": 1}\n}', "f:2:1", "unexpected text after"),
        ('["a\nb"]', "f:1:2", "not terminated"),
        ('"\\x"', "f:1:1", "not terminated"),
        ("NaN", "f:1:1", "expected a JSON value"),
        ("'a'", "f:1:1", "expected a JSON value"),
        ("01", "f:1:2", "unexpected text after"),
        ("\ufeff1", "f:1:1", "expected a JSON value"),
        ("[" * (MAX_DEPTH + 2), f"f:1:{MAX_DEPTH + 2}", f"deeper than {MAX_DEPTH}"),
    ],
)
def test_invalid_json_is_reported_at_its_location(text: str, place: str, message: str) -> None:
    with pytest.raises(JsonError) as caught:
        parse_json(text, "f")
    assert str(caught.value.problem.location) == place
    assert message in caught.value.problem.message


def test_values_may_be_nested_up_to_the_bound() -> None:
    assert parse_json("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH, "f")
