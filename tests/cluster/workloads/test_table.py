"""The packaged table: valid rows with their sources, and the numbers that the controllers give."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read.manifests import Manifest, find_manifests, manifest_json
from rules_engine.cluster.workloads.kind import WorkloadKind, read_workload_kind
from rules_engine.cluster.workloads.table import PACKAGED, ObjectKey, WorkloadTable, read_group
from rules_engine.language.schemas import validate
from rules_engine.language.yaml.documents import Dialect
from rules_engine.language.yaml.nodes import MapNode, YamlNode, find_node
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.problems.problem import Problems
from tests.support.loading import documents, rule

GROUPS = [*map(read_group, PACKAGED)]
PODLESS = [row for group in GROUPS for row in group.values() if not row.templates]
SOURCE = re.compile(r"^ *# .*\w\.(go|py|scala|yaml)\b", re.MULTILINE)
"""A comment with a file of a controller."""


@pytest.mark.parametrize(("group", "file"), PACKAGED.items(), ids=str)
def test_packaged_rows_are_valid_and_have_a_source(group: str, file: Path) -> None:
    text = file.read_text()
    found, faults = documents(text)
    problems = Problems()
    header = text[: text.index("apiVersion:")]
    for document, written in zip(found, text.split("\n---\n"), strict=True):
        assert isinstance(document.root, MapNode)
        row = read_workload_kind(validate("WorkloadKind", document.root, problems), problems)
        assert row.group == group
        assert WorkloadTable().row(row.group, row.kind) == read_group(row.group)[row.kind]
        assert SOURCE.search(written) or SOURCE.search(header), row.name
    assert [*faults, *problems.items] == []
    assert len(read_group(group)) == len(found)


def test_the_names_of_rows_differ() -> None:
    names = Counter(row.name for group in GROUPS for row in group.values())
    assert names.most_common(1)[0][1] == 1


def recorded() -> Iterator[tuple[str, YamlNode, dict[str, Any]]]:
    for file in sorted(Path(__file__).with_name("recorded").glob("*.yaml")):
        found, problems = documents(file.read_text(), Dialect.MANIFESTS)
        assert problems == []
        for document in found:
            case: Any = manifest_json(document.root)
            yield f"{file.stem}: {case['case']}", document.root, case


RECORDED = [*recorded()]


def count(pod: Manifest) -> int | str:
    return f"{pod.template.parallel} (unknown)" if pod.template.unknown else pod.template.parallel


def gpus(pod: Manifest) -> int:
    """Return the GPUs of a pod's containers."""
    spec: Any = pod.pod["spec"]
    limits = [each["resources"].get("limits", {}) for each in spec["containers"] if "resources" in each]
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)


def path(pod: Manifest) -> str:
    return ".".join(map(str, pod.path))


@pytest.mark.parametrize(("root", "case"), [each[1:] for each in RECORDED], ids=[each[0] for each in RECORDED])
def test_a_row_counts_the_pods_that_the_controller_makes(root: YamlNode, case: dict[str, Any]) -> None:
    def find(_group: str, key: ObjectKey) -> Any:
        return next((each for each in case["others"] if (each["kind"], each["metadata"]["name"]) == key[:2]), None)

    problems = Problems()
    pods = {path(pod): pod for pod in find_manifests(find_node(root, ("object",)), problems, WorkloadTable(find=find))}
    # A template that the record does not have makes no pods.
    assert {at: count(pod) for at, pod in pods.items()} == {**dict.fromkeys(pods, 0), **case["pods"]}
    assert {at: pods[at].template.total for at in case.get("total", {})} == case.get("total", {})
    assert {at: pods[at].template.minimum for at in case.get("minimum", {})} == case.get("minimum", {})
    assert {at: gpus(pods[at]) for at in case.get("gpus", {})} == case.get("gpus", {})
    assert pods or problems.items
    for pod in pods.values():
        gang = pod.facts.gang
        assert (gang and {"minimum": gang.minimum, "number": gang.number}) == case.get("gang")
        assert pod.facts.decided_by == case.get("decidedBy", "")
        assert as_mapping(pod.pod["spec"]).get("schedulerName") == case.get("scheduler") or "scheduler" not in case
        if pod.template.parallel:
            assert pod.facts.count_field or pod.kind in ("DaemonSet", "AppWrapper")


def test_each_row_with_pods_has_two_records() -> None:
    objects = [case["object"] for _, _, case in RECORDED]
    known = Counter((each["apiVersion"].rpartition("/")[0], each["kind"]) for each in objects)
    rows = [row for group in GROUPS for row in group.values() if row.templates]
    assert [row.name for row in rows if known[row.group, row.kind] < 2] == []


def read(text: str) -> tuple[int, list[str]]:
    """Return the number of pod templates of a manifest, and the warnings."""
    (document,), _ = documents(text, Dialect.MANIFESTS)
    problems = Problems()
    return len(find_manifests(document.root, problems)), [problem.message for problem in problems.items]


@pytest.mark.parametrize("row", PODLESS, ids=lambda row: row.name)
def test_a_kind_without_templates_has_no_pods_though_it_names_gpus(row: WorkloadKind) -> None:
    version = f"{row.group}/v1" if row.group else "v1"
    text = f"apiVersion: {version}\nkind: {row.kind}\nmetadata: {{name: x}}\nspec: {{nvidia.com/gpu: 8}}\n"
    assert read(text) == (0, [])


@pytest.mark.parametrize("group", ["example.com", "../core", "a/b"])
def test_a_group_without_a_file_has_no_rows(group: str) -> None:
    assert read_group(group) == {}
    assert WorkloadTable().row(group, "Deployment") is None


def test_a_row_of_the_user_wins() -> None:
    (document,), _ = documents(rule("WorkloadKind", "{group: apps, kind: Deployment}"))
    assert isinstance(document.root, MapNode)
    row = read_workload_kind(document.root, Problems())
    assert WorkloadTable((row,)).row("apps", "Deployment") is row
    assert WorkloadTable((row,)).row("apps", "ReplicaSet") is WorkloadTable().row("apps", "ReplicaSet")
    # Kubernetes' own kinds are found without their group.
    assert WorkloadTable().row("", "Deployment") is WorkloadTable().row("apps", "Deployment")


def test_a_trainjob_without_its_runtime_is_unknown() -> None:
    text = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: {runtimeRef: {name: torch}}\n"
    reason = "ClusterTrainingRuntime torch is not in the input"
    assert read(text) == (0, [f"pods of TrainJob/(no name) unknown: {reason}"])
