"""Pods come from manifests, from the clusters or from a log; each cluster has a column of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.questions.diff.input.inputs import DiffInputs
from tests.support.api import controller, live, node, write_list
from tests.support.evaluation import GPU, MIG3, asks, cluster
from tests.support.loading import rule

DEFAULT = cluster({GPU: 1})
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main}]}}"
INVENTORY = rule("ClusterInventory", "{nodes: [{name: big, allocatable: {nvidia.com/gpu: 8}}]}", "i")


def read(
    manifests: Sequence[Path] = (), clusters: Sequence[Path] = ()
) -> tuple[list[tuple[str, str, Cluster]], list[str]]:
    """Return the pods, each with its column, workload and cluster, and the problems."""
    problems = Problems()
    readings = [read_cluster([path], whole=True) for path in clusters]
    inputs = DiffInputs(manifests, None, readings, DEFAULT, problems)
    found = [
        (submitted.workload.cluster, f"{submitted.workload.namespace}/{submitted.workload.name}", view)
        for submitted, view in inputs.pods(_unchanged, "default", None)
    ]
    return found, [str(problem).replace(str(Path([*manifests, *clusters][0]).parent), "") for problem in problems.items]


def counts(manifests: Sequence[Path], clusters: Sequence[Path] = ()) -> dict[str, int]:
    """Return the number of pods by column."""
    readings = [read_cluster([path], whole=True) for path in clusters]
    inputs = DiffInputs(manifests, None, readings, DEFAULT, Problems())
    return {each.workload.cluster: each.count for each, _ in inputs.pods(_unchanged, "default", None)}


def _unchanged(request: AdmissionRequest, _view: Cluster) -> Json:
    pod: Json = request.object
    return pod


def dump(path: Path, name: str, nodes: dict[str, str]) -> Path:
    """Write a cluster with a node and a running pod."""
    items: list[Any] = [live(asks({GPU: 1}), ("ReplicaSet", name), name=name, on=name), node(name, nodes)]
    return write_list(path / f"{name}.json", [*items, controller("ReplicaSet", name, asks({GPU: 1}))])


def manifest(path: Path, name: str = "pod.yaml", text: str = POD) -> Path:
    (path / name).write_text(text)
    return path / name


def test_manifests_are_decided_on_the_default_cluster(tmp_path: Path) -> None:
    assert read([manifest(tmp_path)]) == ([("", "default/a", DEFAULT)], [])


def test_live_pods_are_decided_on_their_own_cluster(tmp_path: Path) -> None:
    east, west = dump(tmp_path, "east", {GPU: "2"}), dump(tmp_path, "west", {GPU: "3"})
    found, problems = read([], [east, west])
    assert [(column, name, view.nodes[0].name) for column, name, view in found] == [
        ("east", "ml/east", "east"),
        ("west", "ml/west", "west"),
    ]
    assert (dict(found[0][2].nodes[0].used), problems) == ({}, [])


def test_pods_of_an_inventory_are_live_pods(tmp_path: Path) -> None:
    pod = "{metadata: {name: a, namespace: ml}, spec: {nodeName: big, containers: [{name: main}]}}"
    found, problems = read([], [manifest(tmp_path, "i.yaml", INVENTORY.replace("]}", f"], pods: [{pod}]}}", 1))])
    assert ([(name, view.nodes[0].name) for _, name, view in found], problems) == ([("ml/a", "big")], [])


def test_manifests_are_decided_on_each_cluster_in_place_of_its_pods(tmp_path: Path) -> None:
    east, west = dump(tmp_path, "east", {GPU: "2"}), dump(tmp_path, "west", {MIG3: "2"})
    inventory = manifest(tmp_path, "inventory.yaml", INVENTORY)
    found, problems = read([manifest(tmp_path)], [east, west, inventory])
    assert [(column, name, view.nodes[0].name) for column, name, view in found] == [
        ("east", "default/a", "east"),
        ("west", "default/a", "west"),
        ("inventory", "default/a", "big"),
    ]
    assert problems == []


DAEMON_SET = (
    "{apiVersion: %s, kind: DaemonSet, metadata: {name: a}, "
    "spec: {template: {spec: {nodeSelector: {pool: gpu}, containers: [{name: main}]}}}}"
)


def test_a_daemon_set_has_a_pod_for_each_node_that_it_selects_and_tolerates(tmp_path: Path) -> None:
    labels = {"pool": "gpu"}
    nodes = [node(name, labels=labels) for name in "ab"] + [node("cordoned", labels=labels, cordoned=True)]
    nodes += [node("tainted", labels=labels, taints=["dedicated=x:NoSchedule"]), node("other")]
    clusters = [write_list(tmp_path / f"{name}.json", items) for name, items in (("all", nodes), ("none", nodes[3:]))]
    daemon_set = manifest(tmp_path, text=DAEMON_SET % "apps/v1")
    assert counts([daemon_set], clusters) == {"all": 3, "none": 0}
    assert counts([daemon_set]) == {"": 1}  # the nodes are not known
    assert counts([manifest(tmp_path, text=DAEMON_SET % "apps.kruise.io/v1alpha1")], clusters[:1]) == {"": 1}
    declared = rule("ClusterInventory", "{nodes: [{name: a, labels: {pool: gpu}, count: 0, scalable: true}]}", "i")
    assert counts([daemon_set], [manifest(tmp_path, "i.yaml", declared)]) == {"": 1}


def test_clusters_of_equal_names_have_their_paths_as_names(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = manifest(tmp_path, "i.yaml", INVENTORY)
    two = manifest(tmp_path / "other", "i.yaml", INVENTORY)
    found, _ = read([manifest(tmp_path)], [one, two])
    assert [column for column, _, _ in found] == [str(one), str(two)]


def test_the_only_cluster_has_no_name(tmp_path: Path) -> None:
    found, _ = read([manifest(tmp_path)], [manifest(tmp_path, "i.yaml", INVENTORY)])
    assert [(column, view.nodes[0].name) for column, _, view in found] == [("", "big")]


@pytest.mark.parametrize(
    ("text", "expected"), [("kind: Pod\nmetadata: {name: a}\n", "[not-a-cluster]"), (None, "[missing-file]")]
)
def test_a_cluster_that_cannot_be_read_is_a_problem(tmp_path: Path, text: str | None, expected: str) -> None:
    path = tmp_path / "absent.yaml" if text is None else manifest(tmp_path, "i.yaml", text)
    _, (problem,) = read([manifest(tmp_path)], [path])
    assert expected in problem


def test_files_of_a_folder_without_pods_are_passed_over(tmp_path: Path) -> None:
    manifest(tmp_path)
    other = manifest(tmp_path, "service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    test = manifest(tmp_path, "a.test.yaml", f"{{apiVersion: gpurules.io/v1, kind: RuleTest, cases: [{POD}]}}")
    found, problems = read([tmp_path])
    assert (len(found), problems) == (1, [])
    _, problems = read([other])
    assert "[not-a-pod]" in problems[0]
    expected = "/a.test.yaml:1:55: error: pods of tests, inventories and simulations are no input [not-a-pod]"
    assert read([test]) == ([], [expected])


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_live_objects_are_no_manifests(tmp_path: Path, form: str) -> None:
    other, *_ = items = [live(asks({GPU: 1}), name=name) for name in "ab"]
    del other["metadata"]["uid"]
    text = POD.replace("name: a", "name: a, uid: u")
    path = write_list(tmp_path / "pod.json", items) if form == "json" else manifest(tmp_path, text=text)
    _, (problem,) = read([path])
    assert problem.endswith(": error: this is a live object: give the file with --cluster [not-a-pod]")
