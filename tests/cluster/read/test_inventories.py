"""Clusters in files: inventories and output of kubectl."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules_engine.cluster.read.clusters import load_inventory
from rules_engine.cluster.read.inventory import Inventory
from rules_engine.model.kubernetes.cluster import Cluster, Node, Taint
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.rules.sources.documents import load_documents
from tests.support.loading import codes, load_text, load_view, rule


def loaded(folder: Path, spec: str) -> Cluster:
    """The cluster of an inventory without problems."""
    loaded = load_text(folder, rule("ClusterInventory", spec))
    assert loaded.problems == ()
    (inventory,) = loaded.of(Inventory)
    assert (inventory.name, inventory.location.line) == ("x", 3)
    return inventory.cluster


def as_texts(amounts: Any) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def test_every_field_of_a_node_is_read(tmp_path: Path) -> None:
    spec = (
        "{nodes: [{name: a, labels: {pool: small}, taints: [{key: k, value: v, effect: NoExecute}], ready: false, "
        "unschedulable: true, allocatable: {nvidia.com/gpu: 4, cpu: 0.5, memory: 256Gi}}]}"
    )
    assert loaded(tmp_path, spec).nodes == (
        Node(
            name="a",
            labels={"kubernetes.io/hostname": "a", "pool": "small"},
            taints=(Taint(key="k", value="v", effect="NoExecute"),),
            ready=False,
            unschedulable=True,
            allocatable={
                "nvidia.com/gpu": Quantity.of(4),
                "cpu": Quantity.parse("500m"),
                "memory": Quantity.parse("256Gi"),
            },
        ),
    )


def test_absent_fields_of_a_node_have_the_models_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, "{nodes: [{name: a}]}").nodes == (Node(name="a", labels={"kubernetes.io/hostname": "a"}),)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ("", ["a"]),
        ("count: 1", ["a"]),
        ("count: 3", ["a-1", "a-2", "a-3"]),
        ("count: 0", []),
        ("count: 0, scalable: true", ["a-new"]),
        ("scalable: true", ["a", "a-new"]),
        ("count: 2, scalable: true", ["a-1", "a-2", "a-new"]),
    ],
)
def test_a_count_makes_nodes_and_a_scalable_shape_one_more(tmp_path: Path, fields: str, names: list[str]) -> None:
    nodes = loaded(tmp_path, f"{{nodes: [{{name: a, {fields}}}]}}").nodes
    assert [node.name for node in nodes] == names
    assert [node.labels["kubernetes.io/hostname"] for node in nodes] == names


@pytest.mark.parametrize(
    ("fields", "allocatable"),
    [
        ("cards: 4", {"nvidia.com/gpu": "4"}),
        (
            "cards: 4, migDevices: [2g.20gb, 2g.20gb, 3g.40gb]",
            {"nvidia.com/mig-2g.20gb": "8", "nvidia.com/mig-3g.40gb": "4"},
        ),
        ("migDevices: [1g.10gb+me, 1c.2g.20gb]", {"nvidia.com/mig-1g.10gb.me": "1", "nvidia.com/mig-1c.2g.20gb": "1"}),
        ("cards: 2, allocatable: {cpu: 8, nvidia.com/gpu: 2}", {"cpu": "8", "nvidia.com/gpu": "2"}),
    ],
)
def test_allocatable_is_computed_from_cards(tmp_path: Path, fields: str, allocatable: dict[str, str]) -> None:
    (node,) = loaded(tmp_path, f"{{nodes: [{{name: a, {fields}}}]}}").nodes
    assert as_texts(node.allocatable) == allocatable


PODS = """\
{nodes: [{name: a, allocatable: {nvidia.com/gpu: 4}}, {name: b}], pods: [
  {spec: {nodeName: a, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1, cpu: 0.1}}}]}},
  {spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 200m}}}], overhead: {cpu: 100m, memory: 1Mi},
          initContainers: [{name: i, resources: {limits: {nvidia.com/gpu: 2}}}]}},
  {spec: {nodeName: a, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}, status: {phase: Succeeded}},
  {spec: {nodeName: b, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}, status: {phase: Failed}}]}
"""


def test_used_amounts_are_requests_of_bound_unfinished_pods(tmp_path: Path) -> None:
    first, second = loaded(tmp_path, PODS).nodes
    assert first.used == {
        "nvidia.com/gpu": Quantity.of(3),
        "cpu": Quantity.parse("400m"),
        "memory": Quantity.parse("1Mi"),
    }
    assert second.used == {}
    assert str(first.available("nvidia.com/gpu")) == "1"


def test_namespaces_have_the_labels_that_are_written_and_others_none(tmp_path: Path) -> None:
    inventory = loaded(tmp_path, "{nodes: [], namespaces: {ml: {team: ml}, empty: {}}}")
    name = "kubernetes.io/metadata.name"
    assert inventory.namespace_labels("ml") == {"team": "ml", name: "ml"}
    assert inventory.namespace_labels("elsewhere") == {name: "elsewhere"}


PRINTED = {
    "apiVersion": "v1",
    "kind": "List",
    "metadata": {"resourceVersion": ""},
    "items": [
        {
            "kind": "Node",
            "metadata": {"name": "a", "labels": {"pool": "small", "odd": 3}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
            "status": {
                "allocatable": {"nvidia.com/gpu": "4", "cpu": 7.5},
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "False"}],
            },
        },
        {"kind": "Node", "metadata": {"name": "b"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"kind": "Node", "spec": None},
        {"kind": "Namespace", "metadata": {"name": "ml", "labels": {"team": "ml"}}},
        {
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ml"},
            "spec": {"nodeName": "a", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        },
        {"kind": "Pod", "spec": {"nodeName": "gone"}},
        {"kind": "Pod", "spec": {}},
        {"kind": "Pod", "spec": {"nodeName": "a", "overhead": {"cpu": 1}}, "status": {"phase": "Failed"}},
        {"kind": "ConfigMap"},
        "odd",
    ],
}


@pytest.mark.parametrize("name", ["cluster.json", "cluster.yaml"])
def test_kubectl_output_is_read_unchanged(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(PRINTED))
    inventory, problems, sources = load_view(path)
    assert inventory is not None
    left_out = ("a Node without a name", "a Pod without a name", "a value that is not an object")
    assert sorted(problem.message for problem in problems) == [f"{what} is left out" for what in left_out]
    first, second = inventory.nodes
    assert first == Node(
        name="a",
        labels={"pool": "small"},
        taints=(Taint(key="k", effect="NoSchedule"),),
        ready=False,
        unschedulable=True,
        allocatable={"nvidia.com/gpu": Quantity.of(4), "cpu": Quantity.parse("7500m")},
        used={"nvidia.com/gpu": Quantity.of(1)},
    )
    assert (second.name, second.ready) == ("b", True)
    assert inventory.namespaces == {"ml": {"team": "ml"}}
    assert sources == {}


def test_a_list_of_nodes_from_the_api_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text(json.dumps({"kind": "NodeList", "items": [{"metadata": {"name": "a"}}]}))
    inventory, _, _ = load_inventory(tmp_path / "n.json")
    assert inventory is not None
    assert (inventory.name, [node.name for node in inventory.cluster.nodes]) == ("n", ["a"])


def test_duplicate_keys_in_kubectls_json_are_tolerated(tmp_path: Path) -> None:
    text = '{"kind": "List", "items": [{"kind": "Node", "kind": "Node", "metadata": {"name": "b", "name": "a"}}]}'
    (tmp_path / "c.json").write_text(text)
    cluster, _, _ = load_view(tmp_path / "c.json")
    assert cluster is not None
    assert [node.name for node in cluster.nodes] == ["a"]


def test_a_cluster_is_read_from_an_inventory_beside_other_documents(tmp_path: Path) -> None:
    inventory = rule("ClusterInventory", "{nodes: [{name: a}]}")
    test = rule("RuleTest", "{cluster: {file: x.yaml}, cases: 3}")
    load_text(tmp_path, f"{inventory}---\n{test}---\n")
    loaded_cluster, problems, _ = load_view(tmp_path / "x.yaml")
    assert loaded_cluster is not None
    assert [node.name for node in loaded_cluster.nodes] == ["a"]
    assert codes(problems) == ["empty-document"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (rule("ClusterInventory", "{nodes: [{name: a, cards: no}]}"), "wrong-type"),
        (
            rule("ClusterInventory", "{nodes: []}") + "---\n" + rule("ClusterInventory", "{nodes: []}", "z"),
            "not-a-cluster",
        ),
        (rule("FallbackLadder", "{rungs: []}"), "not-a-cluster"),
        ("kind: ConfigMap\n", "not-a-cluster"),
        ("kind: Pod\n---\nkind: ConfigMap\n", "not-a-cluster"),
        ("kind: Node\n", "not-a-cluster"),
        ("kind: PodList\nitems: []\n", "not-a-cluster"),
        ("3\n", "not-a-cluster"),
        ("", "not-a-cluster"),
    ],
)
def test_a_file_that_is_not_one_cluster_gives_none(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    inventory, problems, _ = load_view(path)
    assert inventory is None
    assert code in codes(problems)


def test_a_cluster_file_that_is_missing_gives_none(tmp_path: Path) -> None:
    inventory, problems, sources = load_view(tmp_path / "absent.yaml")
    assert (inventory, codes(problems), sources) == (None, ["missing-file"], {})


def test_inventories_of_a_folder_are_listed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(rule("ClusterInventory", "{nodes: []}", name))
    assert [inventory.name for inventory in load_documents([tmp_path]).of(Inventory)] == ["a", "b"]
