"""PriorityClasses and RuntimeClasses in clusters from files, as rules see them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.creation.pod_creation import PodCreation
from rules_engine.cluster.creation.priority import mutate
from rules_engine.cluster.devices.offers import cluster_view
from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.cluster.read.inventory import Inventory
from rules_engine.model.kubernetes.cluster import Classes, ClassScheduling
from tests.support.loading import load_text

TOLERATION: dict[str, Any] = {"key": "nvidia.com/gpu", "operator": "Exists", "tolerationSeconds": 5}
OBJECTS: list[dict[str, Any]] = [
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "normal"}, "value": 5,
     "globalDefault": True},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9},
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia",
     "scheduling": {"nodeSelector": {"pool": "gpu"}, "tolerations": [TOLERATION]}},
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"},
]  # fmt: skip
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
PRIORITY = {"normal": True, "high": False}
RUNTIME = {"nvidia": ClassScheduling({"pool": "gpu"}, (TOLERATION,)), "gvisor": ClassScheduling()}


def inventory(*objects: dict[str, Any]) -> dict[str, Any]:
    spec = {"nodes": [{"name": "n"}], "objects": [*objects]}
    return {"apiVersion": "gpurules.io/v1", "kind": "ClusterInventory", "metadata": {"name": "c"}, "spec": spec}


def listed(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": [NODE, *objects]}


@pytest.mark.parametrize("form", [inventory, listed])
@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (OBJECTS, Classes(PRIORITY, RUNTIME)),
        (OBJECTS[:2], Classes(priority=PRIORITY)),
        (OBJECTS[2:], Classes(runtime=RUNTIME)),
        ([], Classes()),
    ],
    ids=["both", "priority", "runtime", "none"],
)
def test_a_kind_without_an_object_in_a_file_was_not_read(
    form: Any, objects: list[dict[str, Any]], expected: Classes, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(form(*objects)))
    reading = read_cluster([file])
    assert reading.objects is not None
    assert reading.cluster is not None
    assert reading.cluster.classes == reading.objects.view.classes == expected


def test_a_cluster_written_into_a_document_has_all_its_classes(tmp_path: Path) -> None:
    (document,) = load_text(tmp_path, json.dumps(inventory())).of(Inventory)
    assert document.cluster.classes == cluster_view(document.objects()).classes == Classes({}, {})


@pytest.mark.parametrize("objects", [OBJECTS[2:], OBJECTS])
def test_priorities_are_unknown_to_rules_if_the_priority_of_a_pod_is(
    objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(inventory(*objects)))
    reading = read_cluster([file])
    assert reading.objects is not None
    assert reading.cluster is not None
    creation = PodCreation(pod={"spec": {"priorityClassName": "high"}}, namespace="default", objects=reading.objects)
    mutate(creation)
    assert (reading.cluster.classes.priority is None) == bool(creation.unknown)


def test_malformed_members_of_classes_count_as_absent(tmp_path: Path) -> None:
    malformed = [
        {**OBJECTS[0], "globalDefault": "true"},
        {**OBJECTS[2], "scheduling": {"nodeSelector": ["a"], "tolerations": {"key": "a"}}},
        {**OBJECTS[3], "scheduling": {"nodeSelector": {"a": 1, "b": "c"}, "tolerations": [1, TOLERATION]}},
    ]
    (tmp_path / "cluster.json").write_text(json.dumps(listed(*malformed)))
    cluster = read_cluster([tmp_path / "cluster.json"]).cluster
    assert cluster is not None
    runtime = {"nvidia": ClassScheduling(), "gvisor": ClassScheduling({"b": "c"}, (TOLERATION,))}
    assert cluster.classes == Classes({"normal": False}, runtime)
