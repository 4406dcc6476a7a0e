"""Edited values, and the patch of edits."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.json.edits import Edits, JsonText, apply_edits, merge_edits, patch_bytes, patch_operations
from rules_engine.model.json.patch import Json, PatchOperation, json_pointer
from rules_engine.model.json.strict import JsonPath
from tests.support.laws import jsons, pods
from tests.support.patching import apply_as_api_server, apply_strictly, diff, same

NAMES = st.sampled_from(["a", "b", "a/b"])
"""Keys of objects that edits are made in."""

TEXTS = st.sampled_from(["t", "m~n", "a/c"])
"""Keys of encoded members: no edit replaces the object of another."""

LIST = JsonText.of([{"key": "a"}, "é", True])
"""A list to set as a whole: longer than those in `objects`, so that the smallest patch replaces it."""

MEMBERS = st.dictionaries(TEXTS, st.none() | st.sampled_from(["", "1", "x", LIST]), max_size=3)

objects = st.dictionaries(
    NAMES | TEXTS,
    st.recursive(
        st.none() | st.sampled_from(["1", "x"]) | st.just(1) | st.booleans(),
        lambda inner: st.dictionaries(NAMES | TEXTS, inner, max_size=3) | st.lists(inner, max_size=2),
        max_leaves=8,
    ),
    max_size=4,
)


@st.composite
def edits_of(draw: st.DrawFn, value: Json) -> Edits:
    """Edits of existing and of missing objects in a value."""
    return {draw(paths_in(value)): draw(MEMBERS) for _ in range(draw(st.integers(0, 4)))}


@st.composite
def paths_in(draw: st.DrawFn, value: Json) -> JsonPath:
    """The path of an object: never through a text, and through lists only at an existing item."""
    path: list[str | int] = []
    while draw(st.booleans()):
        if isinstance(value, list):
            index = draw(st.integers(0, len(value) - 1))
            path.append(index)
            value = value[index]
        else:
            members = value if isinstance(value, dict) else {}
            possible = [name for name in ("a", "b", "a/b") if _goes_on(members.get(name))]
            if not possible:
                break
            path.append(draw(st.sampled_from(possible)))
            value = members.get(str(path[-1]))
    while isinstance(value, list):
        path.append(0)
        value = value[0]
    return tuple(path)


def _goes_on(value: Json) -> bool:
    """Return True if a path may go through the value."""
    if isinstance(value, list):
        return bool(value) and all(map(_goes_on, value))
    return value is None or isinstance(value, dict)


@given(st.data(), objects)
def test_the_patch_makes_the_edits_wherever_it_is_applied(data: st.DataObject, value: Json) -> None:
    edits = data.draw(edits_of(value))
    before = copy.deepcopy(value)
    after = apply_edits(value, edits)
    assert value == before
    assert same(apply_strictly(value, patch_operations(value, edits)), after)
    if isinstance(value, dict):
        assert same(apply_as_api_server(value, patch_operations(value, edits)), after)


@given(st.data(), objects)
def test_the_patch_is_minimal(data: st.DataObject, value: Json) -> None:
    edits = data.draw(edits_of(value))
    whole = [json_pointer(*path, name) for path, names in edits.items() for name in names]
    ours, smallest = patch_operations(value, edits), diff(value, apply_edits(value, edits), whole)
    assert sorted(ours, key=lambda operation: operation.path) == sorted(smallest, key=lambda operation: operation.path)


@given(st.data(), objects)
def test_merged_edits_equal_successive_edits(data: st.DataObject, value: Json) -> None:
    first = data.draw(edits_of(value))
    then = data.draw(edits_of(apply_edits(value, first)))
    merged, successive = apply_edits(value, merge_edits(first, then)), apply_edits(apply_edits(value, first), then)
    assert same(_without_empty(merged), _without_empty(successive))


def _without_empty(value: Json) -> Json:
    """Return an object without empty objects, which only successive edits create for members that they remove."""
    if not isinstance(value, dict):
        return value
    members = {name: _without_empty(member) for name, member in value.items()}
    return {name: member for name, member in members.items() if member != {}}


@given(jsons())
def test_edits_without_effect_return_the_same_object(value: Json) -> None:
    assert apply_edits(value, {}) is value
    assert patch_operations(value, {}) == ()


@pytest.mark.parametrize(
    "edits",
    [
        {("labels",): {"a": "1"}},
        {("labels",): {"b": None}},
        {("annotations",): {"b": None}},
        {("items", 0, "limits"): {"x": None}},
        {("null",): {"x": None}},
    ],
)
def test_edits_to_the_present_values_change_nothing(edits: Edits) -> None:
    value: Json = {"labels": {"a": "1"}, "items": [{}], "null": None}
    assert apply_edits(value, edits) is value
    assert patch_operations(value, edits) == ()


@pytest.mark.parametrize(
    ("value", "edits", "operations"),
    [
        ({}, {("m", "n"): {"a/b": "1"}}, [PatchOperation("add", "/m", {"n": {"a/b": "1"}})]),
        ({"m": None}, {("m", "n"): {"a": "1"}}, [PatchOperation("add", "/m", {"n": {"a": "1"}})]),
        ({"m": {}}, {("m", "n"): {"a": "1"}}, [PatchOperation("add", "/m/n", {"a": "1"})]),
        ({"m": {"n": {}}}, {("m", "n"): {"a/b": "1"}}, [PatchOperation("add", "/m/n/a~1b", "1")]),
        (
            {},
            {("r", "requests"): {"x": "2"}, ("r", "limits"): {"x": "2", "y": None}},
            [PatchOperation("add", "/r", {"limits": {"x": "2"}, "requests": {"x": "2"}})],
        ),
        ({"m": {"a": None}}, {("m",): {"a": "1"}}, [PatchOperation("add", "/m/a", "1")]),
        ({"m": {"a": 1}}, {("m",): {"a": "1"}}, [PatchOperation("replace", "/m/a", "1")]),
        ({"m": {"b": "1", "a": "1"}}, {("m",): {"b": "2", "a": None}}, [
            PatchOperation("remove", "/m/a"), PatchOperation("replace", "/m/b", "2")
        ]),
        ({"m": {"a": ["1"]}}, {("m",): {"a": JsonText.of(["1", "2"])}}, [
            PatchOperation("add", "/m/a/-", "2")
        ]),
        ({"m": {"a": ["1"]}}, {("m",): {"a": JsonText.of(["1"])}}, []),
        ({}, {("m",): {"a": JsonText.of(["1"])}}, [PatchOperation("add", "/m", {"a": ["1"]})]),
        ({"l": [None]}, {("l", 0, "m"): {"a": "1"}}, [PatchOperation("replace", "/l/0", {"m": {"a": "1"}})]),
    ],
)  # fmt: skip
def test_operations_are_in_order_of_path(value: Json, edits: Edits, operations: list[PatchOperation]) -> None:
    assert list(patch_operations(value, edits)) == operations


@given(pods(), st.sampled_from(["limits", "requests"]), st.sampled_from(["1", None]))
def test_unedited_parts_are_shared(made: Any, section: str, text: str | None) -> None:
    edited: Any = apply_edits(made, {("spec", "containers", 0, "resources", section): {"new": text}})
    assert edited["metadata"] is made["metadata"]
    assert all(
        new is old for new, old in zip(edited["spec"]["containers"][1:], made["spec"]["containers"][1:], strict=True)
    )


@given(st.data(), pods())
def test_patch_bytes_is_an_upper_bound(data: st.DataObject, made: Any) -> None:
    changes = data.draw(edits_of(made))
    encoded = json.dumps([operation.to_json() for operation in patch_operations(made, changes)], ensure_ascii=False)
    assert len(encoded.encode()) <= patch_bytes(changes) + len("[]")


def test_objects_that_are_created_count_their_bytes() -> None:
    edits: Edits = {("a",) * 9: {"b": ""}}
    (operation,) = patch_operations({}, edits)
    assert len(json.dumps(operation.to_json())) <= patch_bytes(edits)


@pytest.mark.parametrize("text", ["€" * 1000, "x" * 1000 + "é", "\ud800" * 1000, ""])
def test_characters_count_their_bytes_of_utf_8(text: str) -> None:
    edits: Edits = {("a",): {"b": text, "c": "x" * 1000, "d": None, "é": "€"}}
    size = len(text.encode(errors="surrogatepass")) + 1000
    assert size < patch_bytes(edits) < size + 300
