"""Manifests are decided as the pods that their controllers create."""

from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read.manifest_stream import stream_manifests
from rules_engine.model.problems.problem import Problems
from rules_engine.questions.diff.input.inputs import submit_manifest
from rules_engine.questions.diff.values import SubmittedPods

TEMPLATE = "{metadata: {name: ignored, labels: {app: a}}, spec: {containers: [{name: main}]}}"


def read(path: Path, text: str) -> tuple[list[SubmittedPods], list[str]]:
    """Return the pods of a file of manifests, and the problems of their numbers."""
    file = path / "manifests.yaml"
    file.write_text(text)
    problems = Problems()
    found = [
        submit_manifest(manifest, "default", problems) for part in stream_manifests([file]) for manifest in part.pods
    ]
    return found, [problem.message for problem in problems.items]


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        ("Deployment", f"{{replicas: 0, template: {TEMPLATE}}}", 0),
        ("Job", f"{{completions: 4, parallelism: 2, template: {TEMPLATE}}}", 4),
        ("Set", f"{{replicas: 2, templates: [{TEMPLATE}]}}", 1),
    ],
)
def test_a_workload_is_its_pods(tmp_path: Path, kind: str, spec: str, count: int) -> None:
    text = f"{{apiVersion: v1, kind: {kind}, metadata: {{name: train, namespace: ml}}, spec: {spec}}}"
    (submitted,), problems = read(tmp_path, text)
    found: Any = submitted.request.object
    assert submitted.count == count
    assert found["metadata"]["generateName"].startswith("train-")
    assert found["metadata"]["labels"]["app"] == "a"
    workload = submitted.workload
    assert (workload.namespace, workload.kind, workload.name) == ("ml", kind, "train")
    assert (submitted.request.namespace, submitted.request.operation) == ("ml", "CREATE")
    assert problems == []


def test_pods_of_a_stateful_set_have_a_name(tmp_path: Path) -> None:
    text = f"{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: train}}, spec: {{template: {TEMPLATE}}}}}"
    (submitted,), _ = read(tmp_path, text)
    assert submitted.request.name == "train-0"


def test_a_pod_keeps_its_name_and_gets_a_namespace(tmp_path: Path) -> None:
    text = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main}]}}"
    (submitted,), _ = read(tmp_path, text)
    assert (submitted.request.name, submitted.request.namespace, submitted.count) == ("a", "default", 1)


def test_a_number_of_pods_that_is_none_is_a_problem(tmp_path: Path) -> None:
    text = f"{{apiVersion: v1, kind: Deployment, metadata: {{name: a}}, spec: {{replicas: -1, template: {TEMPLATE}}}}}"
    _, problems = read(tmp_path, text)
    assert problems == ["replicas cannot be less than 0"]
