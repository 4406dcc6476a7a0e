"""Admission by both endpoints: /validate gets a pod as the API server has changed it after /mutate."""

import pytest

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import generate_name, is_generated_name
from rules_engine.model.rules.admission import pod_request
from rules_engine.rules.evaluation.admission import admit_pod, validation_request
from tests.support.evaluation import check, cluster, compiled, container, pod, validation


def unnamed(base: str) -> dict[str, Json]:
    made = pod(container("main"))
    return {**made, "metadata": {"generateName": base}}


def test_a_pod_has_a_name_at_validate() -> None:
    named = validation(check("object.metadata.name == request.name && request.name == 'train-xxxxx'", "unnamed"))
    request = pod_request(unnamed("train-"), namespace="ml")
    admission = admit_pod(compiled(named), request, cluster())
    assert admission.allowed
    assert admission.result == request.object
    assert request.raw["name"] == ""


@pytest.mark.parametrize("metadata", [{"name": "a", "generateName": "b-"}, {"name": "a"}, {}, None])
def test_a_pod_keeps_its_name(metadata: Json) -> None:
    made: Json = {"metadata": metadata, "spec": {}}
    request = validation_request(pod_request(None, namespace="ml"), made)
    assert request.object is made
    assert request.raw["object"] is made
    assert (request.name, request.raw["name"]) == ("", "")


@pytest.mark.parametrize("base", ["a", "train-", "n" * 58, "n" * 100])
def test_generated_names_are_recognized(base: str) -> None:
    name = generate_name(base)
    assert is_generated_name(name, base)
    assert len(name) <= 63
    assert not is_generated_name(name[:-1], base)
    assert not is_generated_name(name, "")
