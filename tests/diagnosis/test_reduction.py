"""Objects are reduced to the members that are kept, by a fast decoder and by a lenient one alike."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rules_engine.diagnosis.reading import reduction
from rules_engine.diagnosis.reading.reduction import (
    NotAnObjectError,
    Page,
    Reducer,
    type_meta_of,
)
from rules_engine.loading.json_items import TooDeepError, parse_lenient
from rules_engine.loading.yaml.documents import MAX_DEPTH
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED, Kept

SECRET = "hunter2"


def pod_with(**members: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ml"}, **members}


def read(kept: Kept, value: Json) -> dict[str, Json]:
    """Reduce an object by both ways, which must agree."""
    reducer = Reducer("Pod", kept)
    decoded = reducer.decode(json.dumps(value))
    assert decoded == reducer.reduce(value) == reducer.decode(json.dumps(value, indent=4))
    return decoded


def test_only_kept_members_and_the_identity_are_read() -> None:
    kept: Kept = {"spec": {"nodeName": None, "containers": {"name": None}}, "status": {"phase": None}}
    metadata = {"name": "a", "namespace": "ml", "uid": "u", "resourceVersion": "7", "creationTimestamp": None}
    value = pod_with(
        metadata={**metadata, "labels": {"x": "y"}, "generateName": "g"},
        spec={"nodeName": "n", "containers": [{"name": "c", "image": "i"}, {"image": "j"}], "dnsPolicy": "Default"},
    )
    assert read(kept, value) == {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "n", "containers": [{"name": "c"}, {}]},
    }


def test_a_kind_is_set_even_if_the_items_of_a_list_have_none() -> None:
    assert read({}, {"metadata": {"name": "a"}}) == {"kind": "Pod", "metadata": {"name": "a"}}


@pytest.mark.parametrize("value", [None, [], {}, [{}], [None, {"name": "c"}], "text", 1.5, True, [[]], ["x"]])
def test_members_of_other_types_are_no_errors(value: Json) -> None:
    read({"spec": {"containers": {"name": None}}}, pod_with(spec={"containers": value}))
    read({"spec": {"containers": {"name": None}}}, pod_with(spec=value))


CONTAINER = {
    "name": "c",
    "env": [{"name": "TOKEN", "value": SECRET}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": SECRET}}}, None],
    "envFrom": [{"secretRef": {"name": SECRET}, "prefix": SECRET}],
}


@pytest.mark.parametrize(
    "kept",
    [
        None,
        {"spec": None},
        {"spec": {"containers": None}},
        {"spec": {"containers": {"name": None, "env": None, "envFrom": None}}},
        {"spec": {"containers": {"name": None, "env": {"name": None, "value": None}, "envFrom": {"prefix": None}}}},
    ],
)
def test_values_of_the_environment_are_never_kept(kept: Kept) -> None:
    value = read(kept, pod_with(spec={"containers": [CONTAINER]}))
    assert SECRET not in json.dumps(value)
    assert value["spec"] == {"containers": [{"name": "c", "env": [{"name": "TOKEN"}, {"name": "B"}], "envFrom": []}]}


@pytest.mark.parametrize(
    "kept", [None, {"metadata": {"annotations": None}}, {"metadata": {"annotations": {"a": None}}}]
)
def test_the_object_that_kubectl_applied_is_never_kept(kept: Kept) -> None:
    value = read(kept, pod_with(metadata={"name": "a", "annotations": {"a": "b", LAST_APPLIED: SECRET}}))
    assert value["metadata"] == {"name": "a", "annotations": {"a": "b"}}
    other = read(
        {"metadata": {"annotations": {LAST_APPLIED: None}}}, pod_with(metadata={"annotations": {LAST_APPLIED: "x"}})
    )
    assert other["metadata"] == {"annotations": {}}


def test_a_label_may_have_the_name_of_the_environment() -> None:
    labels: Json = {"env": "prod", "envFrom": "x"}
    kept: Kept = {"metadata": {"labels": {"env": None, "envFrom": None}}}
    for each in (kept, {"metadata": {"labels": None}}):
        assert read(each, pod_with(metadata={"labels": labels}))["metadata"] == {"labels": labels}


def test_equal_values_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    reducer = Reducer("Pod", {"metadata": {"labels": None}})
    first, second = (reducer.decode(json.dumps(pod_with(metadata={"labels": {"a": "b"}}))) for _ in range(2))
    assert first["metadata"]["labels"] is second["metadata"]["labels"]  # type: ignore[index,call-overload]
    monkeypatch.setattr(reduction, "MAX_SHARED", 3)
    monkeypatch.setattr(reduction, "MAX_SHARED_CHARACTERS", 50)
    for number in range(9):
        assert read({"spec": None}, pod_with(spec=str(number) * 60))["spec"] == str(number) * 60
        reducer.decode(json.dumps(pod_with(metadata={"labels": {"a": str(number)}})))
        assert len(reducer._shared) <= 3


@pytest.mark.parametrize("kept", [{"spec": None}, {"spec": {"x": None}}, None])
@pytest.mark.parametrize("open", ['{"a":', "["])
def test_a_value_nested_too_deeply_is_an_error(kept: Kept, open: str) -> None:
    close = {"[": "]", '{"a":': "}"}[open]
    reducer = Reducer("Pod", kept)
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(TooDeepError):
            reducer.decode('{"spec": {"x": ' + open * depth + "1" + close * depth + "}}")


def test_the_skipped_part_of_an_object_is_not_nested_too_deeply_for_the_parser() -> None:
    text = '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(TooDeepError):
        Reducer("Pod", {}).decode(text)
    with pytest.raises(TooDeepError):
        type_meta_of(text)
    with pytest.raises(TooDeepError):
        type_meta_of('{"kind": 5, ' + text[1:])


def test_half_of_a_surrogate_pair_is_replaced() -> None:
    encoded = r"""{"metadata": {"name": "a\ud800\ud83d\ude00", "labels": {"b\udfff": ["c\ud800"]}},
        "spec": {"containers": [{"env": [{"name": "D\ud800", "value": "e"}]}]}}"""
    reducer = Reducer("Pod", {"metadata": {"labels": None}, "spec": {"containers": {"env": None}}})
    for value in (
        reducer.decode(encoded),
        reducer.decode(Raw(encoded.encode())),
        reducer.reduce(parse_lenient(encoded)),
    ):
        assert value["metadata"] == {"name": "a\ufffd😀", "labels": {"b\ufffd": ["c\ufffd"]}}
        assert value["spec"] == {"containers": [{"env": [{"name": "D\ufffd"}]}]}


@pytest.mark.parametrize("encoded", ["", "{", '{"a": 1', "{} {}", "nonsense"])
def test_a_text_that_is_no_json_is_an_error(encoded: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        Reducer("Pod", {}).decode(encoded)
    with pytest.raises(json.JSONDecodeError):
        type_meta_of(encoded)


@pytest.mark.parametrize("value", [None, [], 1, "x"])
def test_a_value_that_is_no_object_is_an_error(value: Json) -> None:
    with pytest.raises(NotAnObjectError):
        Reducer("Pod", {}).decode(json.dumps(value))
    with pytest.raises(NotAnObjectError):
        Reducer("Pod", {}).reduce(value)


@pytest.mark.parametrize(
    ("value", "head"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, ("v1", "Pod")),
        ({"kind": "Pod", "spec": {}}, ("", "Pod")),
        ({"kind": 5, "apiVersion": "v1"}, ("v1", "")),
        ({}, ("", "")),
        ([], ("", "")),
    ],
)
def test_the_head_of_an_object_is_its_version_and_kind(value: Json, head: tuple[str, str]) -> None:
    assert type_meta_of(json.dumps(value)) == head


def test_a_page_of_the_live_api_has_objects_and_the_next_token() -> None:
    kept: dict[str, Kept] = {"Pod": {"spec": {"nodeName": None}}}
    items = [{"metadata": {"name": "a"}, "spec": {"nodeName": "n", "x": 1}}, {"metadata": {"name": "b"}}]
    body = {"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": "t", "x": 1}, "items": items}
    page = Reducer("Pod", kept.get("Pod", {})).read_page(json.dumps(body).encode())
    assert page == Page(
        objects=(
            {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"nodeName": "n"}},
            {"kind": "Pod", "metadata": {"name": "b"}},
        ),
        next="t",
        resource_version="9",
    )


@pytest.mark.parametrize("body", [b'{"items": null}', b"{}", b'{"items": [], "metadata": {}}'])
def test_a_page_may_be_empty(body: bytes) -> None:
    assert Reducer("Job", {}).read_page(body) == Page(objects=(), next="", resource_version="")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"items": {}}',
        b'{"items": [1]}',
        b'{"items": [], "metadata": {"continue": 1}}',
        b'{"items": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    ],
)
def test_a_body_that_is_no_page_is_an_error(body: bytes) -> None:
    with pytest.raises(NotAnObjectError):
        Reducer("Pod", {}).read_page(body)


NAMES = st.sampled_from(["spec", "a", "b", "env", "envFrom", LAST_APPLIED, "name", "value"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=3), st.just(SECRET))
VALUES: st.SearchStrategy[Json] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
KEPT: st.SearchStrategy[Kept] = st.recursive(
    st.none(), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)


@given(KEPT, st.dictionaries(NAMES, VALUES, max_size=4))
def test_decoding_and_reducing_agree(kept: Kept, value: dict[str, Json]) -> None:
    members = read(kept, value)
    assert LAST_APPLIED not in json.dumps(members)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_reducing_twice_changes_nothing(value: dict[str, Json]) -> None:
    kept: Kept = {"spec": {"a": None, "env": {"name": None}}, "b": None}
    members = read(kept, value)
    assert read(kept, members) == members
