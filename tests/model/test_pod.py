"""Pods: parsing and editing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError, json_type
from rules_engine.model.kubernetes.pod import ANNOTATIONS, POD_LIMITS, POD_REQUESTS, Pod, Role
from rules_engine.model.kubernetes.quantity import Quantity
from tests.support.evaluation import container, pod
from tests.support.laws import pods


def test_regular_containers_come_before_init_containers() -> None:
    made = pod(container("a"), container("b"), init=[container("i"), container("s", sidecar=True), container("j")])
    read = Pod.parse(made)
    assert read.containers == ()
    assert [(c.name, c.role, c.path) for c in read.all_containers] == [
        ("a", Role.REGULAR, ("spec", "containers", 0)),
        ("b", Role.REGULAR, ("spec", "containers", 1)),
        ("i", Role.INIT, ("spec", "initContainers", 0)),
        ("s", Role.SIDECAR, ("spec", "initContainers", 1)),
        ("j", Role.INIT, ("spec", "initContainers", 2)),
    ]
    made = pod(container("a", {"x": 1}), container("b", {"x": 1}), init=[container("i", {"x": 1})])
    assert [c.name for c in Pod.parse(made).regular] == ["a", "b"]


def test_containers_without_resources_are_omitted() -> None:
    read = Pod.parse({"spec": {"containers": [*[{}] * 20_000, container("a", {"x": 1})], "initContainers": [{}]}})
    assert [item.name for item in read.containers] == ["a"]
    assert len(read.all_containers) == 20_002


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("x", "/spec/containers/1: must be an object, not a string"),
        ({"name": 1}, "/spec/containers/1/name: must be a string, not a number"),
        ({"restartPolicy": []}, "/spec/containers/1/restartPolicy: must be a string, not a list"),
        ({"resources": []}, "/spec/containers/1/resources: must be an object, not a list"),
        ({"resources": {"limits": 1}}, "/spec/containers/1/resources/limits: must be an object, not a number"),
        ({"resources": {"requests": ""}}, "/spec/containers/1/resources/requests: must be an object, not a string"),
    ],
)
def test_a_malformed_container_is_an_error_even_if_no_rule_needs_it(wrong: Json, message: str) -> None:
    with pytest.raises(PodError, match=f"^{message}$"):
        Pod.parse({"spec": {"containers": [{}, wrong]}})


@pytest.mark.parametrize(
    "bare",
    [
        None,
        {},
        {"name": None, "restartPolicy": None},
        {"resources": {}},
        {"resources": {"limits": None, "requests": {}}},
    ],
)
def test_all_containers_includes_containers_without_amounts(bare: Json) -> None:
    read = Pod.parse({"spec": {"containers": [bare]}})
    assert read.containers == ()
    [item] = read.all_containers
    assert (item.name, item.role, dict(item.limits), dict(item.requests)) == ("", Role.REGULAR, {}, {})


def test_a_regular_container_that_restarts_always_is_no_sidecar() -> None:
    assert Pod.parse(pod(container("a", sidecar=True))).all_containers[0].role is Role.REGULAR


def test_limit_or_request_prefers_the_limit_and_requested_the_request() -> None:
    read = Pod.parse(pod(container(limits={"a": 1, "b": 2}, requests={"b": 3, "c": 4}))).containers[0]
    assert [str(read.limit_or_request(name)) for name in "abcd"] == ["1", "2", "4", "None"]
    assert [str(read.requested(name)) for name in "abcd"] == ["1", "3", "4", "None"]


def test_resources_lists_every_requested_resource() -> None:
    made = pod(container("a", limits={"x": 0, "z": 1}), init=[container("i", requests={"y": 1})])
    assert Pod.parse(made).resources == {"y", "z"}


def test_the_effective_request_follows_kep_753_plus_overhead() -> None:
    # Kubernetes' own example of KEP-753: sidecars count for the init containers after them only.
    made = pod(
        container("a", {"cpu": "1"}),
        container("b", limits={"cpu": "2"}),
        init=[
            container("i", {"cpu": "3"}),
            container("s", {"cpu": "500m"}, sidecar=True),
            container("j", {"cpu": "4"}),
            container("t", requests={"cpu": "1"}, sidecar=True),
        ],
        overhead={"cpu": "250m"},
    )
    assert Pod.parse(made).effective_requests() == {"cpu": Quantity.parse("4750m").nanos}


@pytest.mark.parametrize(
    ("level", "cpu", "memory"),
    [
        ({"requests": {"cpu": "4", "memory": "3"}}, "4250m", "3"),
        ({"limits": {"cpu": "4", "memory": "3"}}, "1250m", "3"),
        ({"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}, "2250m", "0"),
    ],
)
def test_the_pod_level_request_replaces_the_aggregate(level: Json, cpu: str, memory: str) -> None:
    read = Pod.parse(pod(container("a", {"cpu": "1"}), overhead={"cpu": "250m"}, resources=level))
    requests = {name: str(Quantity(nanos)) for name, nanos in read.effective_requests().items()}
    assert (requests["cpu"], requests.get("memory", "0")) == (cpu, memory)


def test_effective_requests_include_every_resource_of_the_pod() -> None:
    level: Json = {"requests": {"b": "1"}, "limits": {"c": "1"}}
    read = Pod.parse(pod(container("x", {"a": 1}), resources=level, overhead={"d": "1"}))
    assert set(read.effective_requests()) == set("abcd")


def test_edits_of_the_pod_level_are_applied() -> None:
    edited = Pod.parse(pod(container(), resources={"requests": {"cpu": "1"}})).edited(
        {POD_REQUESTS: {"cpu": "2"}, POD_LIMITS: {"cpu": "3"}}
    )
    assert (edited.requests, edited.limits) == ({"cpu": Quantity.of(2)}, {"cpu": Quantity.of(3)})
    again = Pod.parse(edited.raw)
    assert (again.requests, again.limits) == (edited.requests, edited.limits)


@pytest.mark.parametrize(
    ("amount_json", "read"),
    [
        (2, "2"),
        (1.5, "1500m"),
        (1e3, "1k"),
        (-0.0, "0"),
        (0.1, "100m"),
        (1e-7, "100e-9"),
        (" 2Gi\n", "2Gi"),
        (None, "0"),
    ],
)
def test_a_quantity_may_be_a_number_null_or_padded_as_in_the_api(amount_json: Any, read: str) -> None:
    made = json.loads(json.dumps({"spec": {"containers": [{"resources": {"limits": {"a": amount_json}}}]}}))
    parsed = Pod.parse(made)
    assert parsed.containers[0].limits["a"] == Quantity.parse(read)
    # Numbers and null are written as the API server would, and the request stays as it is.
    texts = {"a": amount_json if isinstance(amount_json, str) else read}
    assert parsed.raw == {"spec": {"containers": [{"resources": {"limits": texts}}]}}
    assert made == {"spec": {"containers": [{"resources": {"limits": {"a": amount_json}}}]}}


def test_every_amount_of_a_pod_is_text() -> None:
    amounts = {"requests": {"cpu": 0.5, "memory": "1Gi"}, "limits": {"cpu": 2000}}
    texts = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2k"}}

    def spec(amounts: Any, overhead: Any) -> Any:
        lists = {"containers": [{}, {"resources": amounts}], "initContainers": [{"resources": amounts}]}
        return {"spec": {**lists, "resources": amounts, "overhead": overhead}}

    parsed = Pod.parse(spec(amounts, {"cpu": 1}))
    assert parsed == Pod.parse(spec(texts, {"cpu": "1"}))
    assert parsed.raw == spec(texts, {"cpu": "1"})


@pytest.mark.parametrize(
    "value",
    [True, [], {}, float("nan"), float("inf"), 10**64, -(2**15_000), "", "x"],
    ids=["bool", "list", "object", "nan", "infinity", "65 digits", "4516 digits", "empty", "text"],
)
def test_an_invalid_quantity_is_an_error_with_its_path(value: Any) -> None:
    made: Json = {"spec": {"overhead": {"a/b~": value}}}
    with pytest.raises(PodError) as caught:
        Pod.parse(made)
    assert caught.value.path == "/spec/overhead/a~1b~0"
    assert str(caught.value).startswith("/spec/overhead/a~1b~0: ")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "a number"),
        (1.5, "a number"),
        ("", "a string"),
        ([], "a list"),
        ({}, "an object"),
    ],
)
def test_json_types_have_their_json_names(value: Any, name: str) -> None:
    assert json_type(value) == name


class TestEdits:
    def test_strings_are_set_and_missing_parents_created(self) -> None:
        edited = Pod.parse({"spec": {"containers": [{}, {"name": "b"}]}}).edited(
            {ANNOTATIONS: {"a/b": "c"}, ("spec", "containers", 1, "resources", "limits"): {"x": "1", "y": "2"}}
        )
        assert edited.raw == {
            "metadata": {"annotations": {"a/b": "c"}},
            "spec": {"containers": [{}, {"name": "b", "resources": {"limits": {"x": "1", "y": "2"}}}]},
        }
        assert edited.annotations == {"a/b": "c"}
        [changed] = edited.containers
        assert (changed.path, str(changed.limits["y"])) == (("spec", "containers", 1), "2")

    def test_none_removes(self) -> None:
        edited = Pod.parse({"metadata": {"annotations": {"a": "1", "b": "2"}}}).edited({ANNOTATIONS: {"a": None}})
        assert edited.raw == {"metadata": {"annotations": {"b": "2"}}}
        assert edited.annotations == {"b": "2"}

    def test_later_edits_override_earlier_edits(self) -> None:
        read = Pod.parse({"spec": {"containers": [{"resources": {"limits": {"x": "1", "y": "1"}}}]}})
        limits = read.containers[0].limits_path
        edited = read.edited({limits: {"x": "2", "y": None}}).edited({limits: {"x": "3", "z": "4"}})
        assert edited.edits == {limits: {"x": "3", "y": None, "z": "4"}}
        assert {name: str(amount) for name, amount in edited.containers[0].limits.items()} == {"x": "3", "z": "4"}
        assert edited.resources == {"x", "z"}

    def test_without_edits_the_pod_is_the_same_object(self) -> None:
        read = Pod.parse({"metadata": {"labels": {"a": "1"}}})
        assert read.edited({}) is read
        assert read.raw is read.original

    @given(st.data(), pods())
    def test_an_edited_pod_equals_the_pod_parsed_from_its_json(self, data: st.DataObject, made: Any) -> None:
        read = Pod.parse(made)
        paths = [path for item in read.all_containers for path in (item.limits_path, item.requests_path)]
        texts = st.dictionaries(st.sampled_from(["cpu", "nvidia.com/gpu", "new"]), st.none() | st.sampled_from("12"))
        edited = read.edited(data.draw(st.dictionaries(st.sampled_from([ANNOTATIONS, *paths]), texts)))
        again = Pod.parse(edited.raw)
        for name in (
            "annotations",
            "labels",
            "containers",
            "all_containers",
            "overhead",
            "placement",
            "resources",
            "name",
            "namespace",
        ):
            assert getattr(edited, name) == getattr(again, name)
