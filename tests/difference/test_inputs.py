"""INPUT may be manifests or live objects; several clusters each have a column of their own."""

import io
import json
import resource
import sys
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import pytest

from rules_engine.difference.reading.inputs import Inputs
from rules_engine.loading.files import STDIN
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.admission import AdmissionRequest
from tests.support.api import controller, live, node, write_list
from tests.support.evaluation import GPU, MIG1, MIG3, asks, cluster
from tests.support.loading import rule

DEFAULT = cluster({GPU: 1})
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main}]}}"
INVENTORY = rule("ClusterInventory", "{nodes: [{name: big, allocatable: {nvidia.com/gpu: 8}}]}", "i")


def read(
    paths: Sequence[Path], clusters: Sequence[Path] = (), usage: Set[str] | None = frozenset()
) -> tuple[list[tuple[str, str, Cluster]], list[str]]:
    """Return the pods, each with its column, workload and cluster, and the problems."""
    problems = Problems()
    with Inputs(paths, clusters, DEFAULT, problems) as inputs:
        inputs.read()
        found = [
            (submitted.workload.cluster, f"{submitted.workload.namespace}/{submitted.workload.name}", view)
            for submitted, view in inputs.pods(_unchanged, "default", usage)
        ]
    return found, [str(problem).replace(str(Path(paths[0]).parent), "") for problem in problems.items]


def _unchanged(request: AdmissionRequest, _view: Cluster) -> Json:
    return request.object


def dump(path: Path, name: str, *, nodes: dict[str, str] | None = None) -> Path:
    """Write a dump with a running pod, and a node if it has resources."""
    items: list[Any] = [live(asks({GPU: 1}), ("ReplicaSet", name), name=name, on=name)]
    items += [controller("ReplicaSet", name, asks({GPU: 1}))]
    return write_list(path / f"{name}.json", items + ([node(name, nodes)] if nodes else []))


def manifest(path: Path, name: str = "pod.yaml", text: str = POD) -> Path:
    (path / name).write_text(text)
    return path / name


def test_pods_are_decided_on_the_default_cluster(tmp_path: Path) -> None:
    found, problems = read([manifest(tmp_path), dump(tmp_path, "east")])
    assert found == [("", "default/a", DEFAULT), ("", "ml/east", DEFAULT)]
    assert problems == []


def test_a_file_counts_once(tmp_path: Path) -> None:
    path = dump(tmp_path, "east")
    (tmp_path / "link.json").symlink_to(path)
    found, _ = read([path, tmp_path / "link.json", tmp_path, tmp_path / "." / path.name])
    assert [name for _, name, _ in found] == ["ml/east"]


def test_manifests_among_live_objects_are_left_out_with_a_warning(tmp_path: Path) -> None:
    made = [controller("ReplicaSet", "a", asks({GPU: 1})), live(asks({GPU: 1}), name="b"), {"kind": "PodMetrics"}]
    for item in made[:2]:
        del item["metadata"]["uid"]
    found, problems = read([write_list(tmp_path / "mixed.json", [*made, live(asks({GPU: 1}), name="c")])])
    assert [name for _, name, _ in found] == ["ml/c"]
    message = "2 manifests among live objects left out: write them to another file"
    assert problems == [f"/mixed.json:1:1: warning: {message} [unread-object]"]


def test_a_folder_may_have_more_files_than_may_be_open(tmp_path: Path) -> None:
    for number in range(30):
        manifest(tmp_path, f"{number}.yaml")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 10, limits[1]))
    try:
        found, problems = read([tmp_path])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (len(found), problems) == (30, [])


def test_live_pods_are_decided_on_their_own_cluster(tmp_path: Path) -> None:
    ((_, _, view),), _ = read([dump(tmp_path, "east", nodes={GPU: "2"})])
    assert [node.name for node in view.nodes] == ["east"]
    assert str(view.nodes[0].used[GPU]) == "1"


def test_manifests_are_decided_on_the_cluster_of_a_dump(tmp_path: Path) -> None:
    found, _ = read([manifest(tmp_path), dump(tmp_path, "east", nodes={GPU: "2"})])
    assert [(name, view.nodes[0].name) for _, name, view in found] == [("default/a", "east"), ("ml/east", "east")]


def test_objects_of_one_cluster_may_be_in_several_files(tmp_path: Path) -> None:
    pods = write_list(tmp_path / "pods.json", [live(asks({GPU: 1}), on="n")])
    nodes = write_list(tmp_path / "nodes.json", [node("n", {GPU: "2"})])
    ((_, _, view),), _ = read([pods, nodes])
    assert [str(node.used[GPU]) for node in view.nodes] == ["1"]
    ((_, _, view),), _ = read([pods, nodes], usage=None)
    assert [dict(node.used) for node in view.nodes] == [{}]


def test_a_pod_of_several_files_counts_once(tmp_path: Path) -> None:
    pods = [live(asks({GPU: 1}), name=f"p{number}", on="n" if number % 2 else "") for number in range(4)]
    items = [*pods, *pods[:1], node("n", {GPU: "4"})]
    paths = [write_list(tmp_path / "all.json", items), write_list(tmp_path / "few.json", pods[1:])]
    found, problems = read(paths)
    assert ([name for _, name, _ in found], problems) == ([f"ml/p{number}" for number in range(4)], [])
    assert [str(node.used[GPU]) for node in found[0][2].nodes] == ["2"]


def test_files_of_several_clusters_are_a_problem(tmp_path: Path) -> None:
    one, other = node("n", {GPU: "1"}), node("n", {GPU: "2"})
    other["metadata"]["uid"] = "b"
    east, west = write_list(tmp_path / "east.json", [one]), write_list(tmp_path / "west.json", [other])
    _, (problem,) = read([east, west])
    message = "there is another node n: name the file of each cluster with --cluster"
    assert problem == f"/west.json:1:1: error: {message} [duplicate-node]"
    assert read([east, west], [west]) == ([], [])


def test_each_cluster_has_a_column(tmp_path: Path) -> None:
    east, west = dump(tmp_path, "east", nodes={GPU: "2"}), dump(tmp_path, "west", nodes={MIG3: "2"})
    inventory = manifest(tmp_path, "inventory.yaml", INVENTORY)
    found, problems = read([manifest(tmp_path), east], [east, west, inventory])
    assert [(column, name, view.nodes[0].name) for column, name, view in found] == [
        ("east", "default/a", "east"),
        ("west", "default/a", "west"),
        ("inventory", "default/a", "big"),
        ("east", "ml/east", "east"),
    ]
    assert problems == []


def test_live_pods_of_a_file_that_is_no_cluster_are_in_every_column(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = manifest(tmp_path, "i.yaml", INVENTORY)
    two = manifest(tmp_path / "other", "i.yaml", INVENTORY)
    found, _ = read([dump(tmp_path, "east")], [one, two])
    assert [column for column, _, _ in found] == [str(one), str(two)]


def test_a_dump_of_pods_alone_is_no_cluster_of_its_own(tmp_path: Path) -> None:
    path = dump(tmp_path, "east")
    _, (problem,) = read([path], [path])
    assert "[not-a-cluster]" in problem


def test_the_only_cluster_has_no_name(tmp_path: Path) -> None:
    found, _ = read([manifest(tmp_path)], [manifest(tmp_path, "i.yaml", INVENTORY)])
    assert [(column, view.nodes[0].name) for column, _, view in found] == [("", "big")]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("i.yaml", POD, "[not-a-cluster]"),
        ("absent.yaml", None, "[missing-file]"),
        ("pods.json", '{"items": [{"kind": "Pod", "metadata": {"uid": "1"}}', "-syntax]"),
        ("pods.json", '{"kind": "List", "items": [{"kind": "Pod", "metadata": {"uid": "1"}}]}', "[not-a-cluster]"),
    ],
)
def test_a_cluster_that_cannot_be_read_is_a_problem(tmp_path: Path, name: str, text: str | None, expected: str) -> None:
    path = tmp_path / name if text is None else manifest(tmp_path, name, text)
    _, (problem,) = read([manifest(tmp_path)], [path])
    assert expected in problem


def test_files_that_cannot_be_read_are_problems(tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to("link.yaml")
    found, problems = read([tmp_path / "absent.yaml", tmp_path / "link.yaml", manifest(tmp_path)])
    assert len(found) == 1
    assert problems[0] == "/absent.yaml:1:1: error: file or folder not found [missing-file]"
    assert "cannot be read" in problems[1]


def test_a_dump_that_is_cut_is_a_problem(tmp_path: Path) -> None:
    path = dump(tmp_path, "east")
    path.write_text(path.read_text()[:-3])
    _, problems = read([path])
    assert "[json-syntax]" in problems[0]


def test_json_without_live_objects_is_read_as_manifests(tmp_path: Path) -> None:
    made = {**asks({MIG1: 1}), "apiVersion": "v1"}
    found, problems = read([write_list(tmp_path / "pods.json", [made])])
    assert [name for _, name, _ in found] == ["default/job"]
    assert problems == []


@pytest.mark.parametrize("text", [POD, json.dumps({"items": [live(asks({GPU: 1}))], "kind": "PodList"})])
def test_standard_input_may_be_of_either_kind(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    found, problems = read([STDIN])
    assert (len(found), problems) == (1, [])


def test_files_of_a_folder_without_pods_are_passed_over(tmp_path: Path) -> None:
    manifest(tmp_path)
    other = manifest(tmp_path, "service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    manifest(tmp_path, "pods.schema.json", json.dumps({"examples": [{"spec": {"containers": []}}]}))
    test = manifest(tmp_path, "a.test.yaml", f"{{apiVersion: gpurules.io/v1, kind: RuleTest, cases: [{POD}]}}")
    found, problems = read([tmp_path])
    assert (len(found), problems) == (1, [])
    _, problems = read([other])
    assert "[not-a-pod]" in problems[0]
    expected = "/a.test.yaml:1:55: error: pods of tests, inventories and simulations are no input [not-a-pod]"
    assert read([test]) == ([], [expected])


def test_live_objects_in_yaml_are_a_problem(tmp_path: Path) -> None:
    found, problems = read([manifest(tmp_path, text=POD.replace("name: a", "name: a, uid: u"))])
    assert found == []
    assert problems == ["/pod.yaml:1:2: error: live objects are read in JSON only: write them with -o json [not-a-pod]"]


def test_several_files_may_be_of_one_cluster_with_its_nodes(tmp_path: Path) -> None:
    found, _ = read([dump(tmp_path, "east", nodes={GPU: "2"}), dump(tmp_path, "west")])
    assert [(name, len(view.nodes)) for _, name, view in found] == [("ml/east", 1), ("ml/west", 1)]


def test_progress_is_of_all_bytes_that_are_read(tmp_path: Path) -> None:
    paths = [manifest(tmp_path), dump(tmp_path, "east", nodes={GPU: "2"}), dump(tmp_path, "west")]
    clusters = [paths[1], manifest(tmp_path, "inventory.yaml", INVENTORY)]
    counted: list[int] = []
    with Inputs(paths, clusters, DEFAULT, Problems(), counted.append) as inputs:
        inputs.read()
        counted.clear()
        list(inputs.pods(_unchanged, "default", frozenset()))
        sizes = [path.stat().st_size for path in paths]
        assert sum(counted) == inputs.size == sizes[0] + sizes[1] + 2 * sizes[2]
