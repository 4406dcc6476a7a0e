"""Patches and pointers."""

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.json.patch import Json, PatchOperation, json_pointer
from tests.support.laws import jsons
from tests.support.patching import PatchRefusedError, apply_as_api_server, apply_strictly, diff, same, unescape

objects = st.dictionaries(st.text(max_size=3) | st.sampled_from(["~", "/", "a"]), jsons(), max_size=4)


@given(jsons(), jsons())
def test_a_patch_turns_one_value_into_the_other_under_rfc_6902(before: Json, after: Json) -> None:
    assert same(apply_strictly(before, diff(before, after)), after)


@given(objects, objects)
def test_a_patch_makes_the_object_in_the_api_servers_library(before: Json, after: Json) -> None:
    assert same(apply_as_api_server(before, diff(before, after)), after)


@given(objects, objects)
def test_every_operation_is_necessary_and_independent(before: Json, after: Json) -> None:
    patch = diff(before, after)
    paths = [operation.path for operation in patch]
    # Items that are appended to one list depend on each other.
    appends = any(path.endswith("/-") and operation.op == "add" for path, operation in zip(paths, patch, strict=True))
    if not appends:
        assert len(set(paths)) == len(paths)
        assert same(apply_strictly(before, patch[::-1]), after)
    for index in range(len(patch)):
        assert not same(apply_strictly(before, patch[:index] + patch[index + 1 :]), after)


@given(st.lists(st.text() | st.integers(0, 10**6), max_size=4))
def test_pointers_round_trip(keys: list[str | int]) -> None:
    text = json_pointer(*keys)
    assert [unescape(token) for token in text.split("/")[1:]] == [str(key) for key in keys]
    assert text.count("/") == len(keys)


@pytest.mark.parametrize(
    ("keys", "text"),
    [((), ""), (("",), "/"), (("a/b",), "/a~1b"), (("m~n",), "/m~0n"), (("~1",), "/~01"), (("a", 0, "é"), "/a/0/é")],
)
def test_pointers_of_rfc_6901(keys: tuple[str | int, ...], text: str) -> None:
    assert json_pointer(*keys) == text


def test_operations_as_rfc_6902_writes_them() -> None:
    assert PatchOperation("add", "/a", None).to_json() == {"op": "add", "path": "/a", "value": None}
    assert PatchOperation("remove", "/a").to_json() == {"op": "remove", "path": "/a"}


class TestTheTwoWaysOfApplying:
    """Otherwise the checks of the other tests could not fail."""

    def test_replacing_an_absent_member_fails_only_in_the_rfc(self) -> None:
        patch = (PatchOperation("replace", "/a", 1),)
        with pytest.raises(jsonpatch.JsonPatchException):
            apply_strictly({}, patch)
        assert apply_as_api_server({}, patch) == {"a": 1}

    @pytest.mark.parametrize(
        "operation",
        [
            PatchOperation("add", "/a/b", 1),
            PatchOperation("add", "/null/b", 1),
            PatchOperation("add", "/text/b", 1),
            PatchOperation("remove", "/a"),
            PatchOperation("remove", "/list/1"),
            PatchOperation("replace", "/list/1", 1),
            PatchOperation("add", "/list/2", 1),
            PatchOperation("add", "/list/7/a", 1),
        ],
    )
    def test_both_reject_a_missing_parent_and_a_missing_member(self, operation: PatchOperation) -> None:
        document: Json = {"null": None, "list": [0], "text": "x"}
        with pytest.raises(PatchRefusedError):
            apply_as_api_server(document, (operation,))
        with pytest.raises((jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError)):
            apply_strictly(document, (operation,))
