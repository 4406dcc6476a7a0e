"""Large output of kubectl as the cluster of a simulation: the same as small output, object by object."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.documents import large_clusters
from rules_engine.documents.load import load_cluster
from rules_engine.documents.simulations import load_simulation
from rules_engine.loading.files import MAX_FILE_BYTES
from rules_engine.model.problems.problem import Problem
from rules_engine.model.rules.simulation import Simulation
from tests.support.loading import rule

PADDING = "x" * (MAX_FILE_BYTES // 2)
"""Text that a simulation does not read; two of them make a file large."""


def metadata(name: str, **more: Any) -> dict[str, Any]:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": PADDING, "team": "ml"}
    return {"name": name, "annotations": applied, "managedFields": [{"manager": PADDING}], **more}


ITEMS: list[dict[str, Any]] = [
    {
        "kind": "Node",
        "metadata": metadata("n", labels={"zone": "a"}),
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": "4", "cpu": 8.5},
            "images": [{"names": ["cuda"]}],
            "conditions": [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "False"}],
        },
    },
    *(
        {
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ml"},
            "spec": {
                "nodeName": "n",
                "containers": [{"name": "c", "image": "cuda", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "hostIP": "10.0.0.1"},
        }
        for name in ("a", "b")
    ),
    {"kind": "Namespace", "metadata": {"name": "ml", "labels": {"team": "a"}}},
    {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5},
    {"kind": "Event", "metadata": {"name": "e"}},
]


def written(folder: Path, document: Any) -> Path:
    path = folder / "cluster.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=2))
    assert path.stat().st_size > MAX_FILE_BYTES
    return path


def read(folder: Path, cluster: Path) -> tuple[Simulation | None, tuple[Problem, ...]]:
    path = folder / "scenario.yaml"
    path.write_text(rule("Simulation", "{}"))
    simulation, problems, _ = load_simulation(path, cluster)
    return simulation, problems


def sound(folder: Path, document: Any) -> Simulation:
    simulation, problems = read(folder, written(folder, document))
    assert problems == ()
    assert simulation is not None
    return simulation


def test_a_large_list_is_the_same_cluster(tmp_path: Path) -> None:
    simulation = sound(tmp_path, {"apiVersion": "v1", "items": ITEMS, "kind": "List"})
    assert simulation.cluster == load_cluster(tmp_path / "cluster.json")[0]
    node, (a, b) = simulation.objects.nodes[0], simulation.objects.pods
    assert node == {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"zone": "a"}, "annotations": {"team": "ml"}},
        "spec": ITEMS[0]["spec"],
        "status": {
            "allocatable": {"nvidia.com/gpu": "4", "cpu": "8.5"},
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }
    assert a == {**ITEMS[1], "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
    assert [item.name for item in simulation.objects.of("PriorityClass")] == ["high"]
    assert simulation.objects.of("Event") == ()
    assert a.spec["containers"] is b.spec["containers"]


def test_items_of_a_node_list_need_no_kind(tmp_path: Path) -> None:
    items = [{"metadata": metadata("n")}, {"metadata": metadata("m")}, 3]
    simulation = sound(tmp_path, {"items": items, "kind": "NodeList"})
    assert [node.name for node in simulation.cluster.nodes] == ["n", "m"]


def test_cached_values_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_clusters, "MAX_SHARED", 1)
    simulation = sound(tmp_path, {"kind": "List", "items": ITEMS})
    assert simulation.objects.pods[1].spec == ITEMS[2]["spec"]


def test_a_list_that_is_cut_is_a_problem_at_its_place(tmp_path: Path) -> None:
    text = json.dumps({"kind": "List", "items": ITEMS}, indent=1)[:-4]
    simulation, (problem,) = read(tmp_path, written(tmp_path, text))
    assert simulation is None
    assert problem.code == "json-syntax"
    assert problem.location.line == text.count("\n") + 1


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "List", "items": [{"kind": "ConfigMap", "metadata": metadata("c")}]},
        {"kind": "ConfigMap", "metadata": metadata("c")},
    ],
    ids=["a list", "an object"],
)
def test_other_large_files_are_no_clusters(document: Any, tmp_path: Path) -> None:
    simulation, problems = read(tmp_path, written(tmp_path, document))
    assert simulation is None
    assert [problem.code for problem in problems] == ["file-too-large"]


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    simulation, (problem,) = read(tmp_path, tmp_path / f"{'x' * 300}.json")
    assert simulation is None
    assert problem.code == "unreadable-file"
