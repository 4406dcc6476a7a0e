"""Diagnoses of RuleTests, and the objects of their clusters."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, ClusterObjects
from rules_engine.model.rules.rule_test import RuleTest
from rules_engine.rules.sources.documents import load_documents
from tests.support.api import GPU, api_object, event, node, pod
from tests.support.loading import codes, load_text, load_view, rule

DIAGNOSES = """diagnoses:
    - name: one is found
      reasons: [Cordoned]
      expect: [{reason: Cordoned, object: Node/worker, message: cordoned}]
    - {name: nothing else, expect: []}"""


TEST = "apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {{name: {}}}\nspec:\n  {}\n  {}\n"


def only(folder: Path, cluster: str) -> RuleTest:
    text = TEST.format("one", cluster, DIAGNOSES)
    loaded = load_text(folder, text, "test.yaml")
    assert loaded.problems == ()
    (found,) = loaded.tests
    return found


def inline(cluster: Any) -> str:
    return f"cluster: {json.dumps(cluster)}"


def objects(folder: Path, cluster: str) -> ClusterObjects:
    (found,) = only(folder, cluster).objects.values()
    assert found() is found()
    return found()


def test_every_field_of_a_diagnosis_is_read(tmp_path: Path) -> None:
    first, second = only(tmp_path, "cluster: {nodes: [{name: worker}]}").diagnoses
    assert (first.name, first.reasons, second.reasons, second.expect) == (
        "one is found",
        frozenset({"Cordoned"}),
        None,
        (),
    )
    (finding,) = first.expect
    assert (finding.reason, finding.object, finding.message) == ("Cordoned", "Node/worker", "cordoned")
    assert (finding.location.line, first.reason_locations["Cordoned"].line) == (9, 8)


def test_a_test_without_diagnoses_has_no_objects(tmp_path: Path) -> None:
    case = "{name: a, pod: {spec: {containers: [{name: main}]}}, expect: {allowed: true}}"
    (found,) = load_text(tmp_path, rule("RuleTest", f"{{cases: [{case}]}}"), "test.yaml").tests
    assert (found.diagnoses, found.objects) == ((), {})


def test_an_inventory_becomes_api_objects(tmp_path: Path) -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"}]
    bound = api_object("Pod", "p", spec=pod("p", {GPU: "3"}, on="worker-1")["spec"])
    worker = {"name": "worker", "count": 2, "labels": {"pool": "a"}, "allocatable": {GPU: 4}}
    inventory = {
        "nodes": [
            {**worker, "unschedulable": True, "ready": False},
            {"name": "tainted", "scalable": True, "taints": taints},
        ],
        "namespaces": {"ml": {"team": "a"}},
        "pods": [bound],
    }
    api_objects = objects(tmp_path, inline(inventory))
    first, second, tainted = api_objects.nodes
    assert first == {
        "kind": "Node",
        "metadata": {"name": "worker-1", "labels": {"kubernetes.io/hostname": "worker-1", "pool": "a"}},
        "spec": {"unschedulable": True},
        "status": {
            "capacity": {GPU: "4"},
            "allocatable": {GPU: "4"},
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }
    assert second.name == "worker-2"
    assert tainted.spec["taints"] == [
        {"key": "gpu", "effect": "NoSchedule"},
        {"key": "a", "effect": "NoExecute", "value": "b"},
    ]
    assert [str(item.object_name) for item in api_objects.pods] == ["Pod/default/p"]
    assert [item.metadata for item in api_objects.of("Namespace")] == [{"name": "ml", "labels": {"team": "a"}}]
    view = api_objects.node_view("worker-1")
    assert view is not None
    assert str(view.available(GPU)) == "1"
    assert api_objects.absent == {"ResourceClaim", "ResourceClaimTemplate"}
    assert api_objects.now == datetime(1970, 1, 1, tzinfo=UTC)


WHOLE = {
    "nodes": [{"name": "worker"}],
    "namespaces": {"other": {"a": "b"}, "ml": {"team": "c"}},
    "objects": [
        api_object("Node", "whole", status={"allocatable": {GPU: 4}, "capacity": {GPU: 8}}),
        pod("p", {GPU: "3"}, on="whole"),
        pod("gone", {GPU: 1}, on="gone"),
        pod("done", {GPU: 1}, on="whole", phase="Succeeded"),
        api_object("Pod", "waiting", "ml"),
        api_object("Namespace", "ml", metadata={"labels": {"team": "a"}}),
        api_object("Job", "j", "ml", anything=[1]),
        event(node("whole"), "x", last="2026-11-23T13:00:00Z"),
    ],
}


def test_objects_are_added_to_the_nodes_and_pods(tmp_path: Path) -> None:
    test = only(tmp_path, inline(WHOLE))
    assert [(api_objects.name, str(api_objects.available(GPU))) for api_objects in test.cluster.nodes] == [
        ("worker", "0"),
        ("whole", "1"),
    ]
    assert test.cluster.namespaces == {"ml": {"team": "c"}, "other": {"a": "b"}}
    api_objects = test.objects[""]()
    assert [item.name for item in api_objects.nodes] == ["worker", "whole"]
    whole = api_objects.find("Node", "whole")
    assert whole is not None
    assert whole.status == {"allocatable": {GPU: "4"}, "capacity": {GPU: "8"}}
    assert [item.name for item in api_objects.pods] == ["p", "gone", "done", "waiting"]
    assert [item.name for item in api_objects.pods_on("whole")] == ["p"]
    assert sorted(item.name for item in api_objects.of("Namespace")) == ["ml", "other"]
    assert [item.name for item in api_objects.of("Job")] == ["j"]
    assert api_objects.now == datetime(2026, 11, 23, 13, tzinfo=UTC)


def test_the_output_of_kubectl_has_all_its_objects(tmp_path: Path) -> None:
    deleted = pod(
        "p",
        {GPU: 1},
        on="worker",
        metadata={"deletionTimestamp": "2099-01-01T00:00:00Z", "creationTimestamp": "2026-11-20T08:00:00Z"},
    )
    items: list[Any] = [node(), deleted, api_object("ConfigMap", "c")]
    (tmp_path / "kubectl.json").write_text(json.dumps({"kind": "List", "items": items}))
    api_objects = objects(tmp_path, "cluster: {file: kubectl.json}")
    assert [item["kind"] for kind in API_RESOURCES for item in api_objects.of(kind)] == ["Node", "Pod"]
    assert api_objects.now == datetime(2026, 11, 23, 9, tzinfo=UTC)
    (tmp_path / "kubectl.json").write_text(json.dumps({"kind": "NodeList", "items": [{"metadata": {"name": "one"}}]}))
    assert [item.object_name.name for item in objects(tmp_path, "cluster: {file: kubectl.json}").nodes] == ["one"]


def test_objects_of_a_file_are_shared_by_its_tests(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(rule("ClusterInventory", "{objects: [{kind: Node, metadata: {name: a}}]}"))
    several = "clusters: {one: {file: cluster.yaml}, two: {nodes: []}}"
    texts = [TEST.format("a", "cluster: {file: cluster.yaml}", DIAGNOSES), TEST.format("b", several, DIAGNOSES)]
    loaded = load_text(tmp_path, "---\n".join(texts), "test.yaml")
    assert loaded.problems == ()
    first, second = loaded.tests
    assert (first.cluster.nodes[0].name, first.objects[""]()) == ("a", second.objects["one"]())
    assert second.objects["two"]().nodes == ()


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("{objects: [{kind: Nod, metadata: {name: a}}]}", "unknown-kind"),
        ("{objects: [{kind: Node}]}", "missing-field"),
        ("{objects: [{kind: Node, metadata: {name: a}, statsu: {}}]}", "unknown-pod-field"),
        ("{nodes: [{name: a}], objects: [{kind: Node, metadata: {name: a}}]}", "duplicate-node"),
        ("{objects: [{kind: Node, metadata: {name: a}}, {kind: Node, metadata: {name: a}}]}", "duplicate-node"),
        ("{objects: [{kind: Node, metadata: {name: a}, status: {allocatable: {cpu: many}}}]}", "bad-quantity"),
        ("{objects: [{kind: Pod, metadata: {name: a}, spec: {containers: 1}}]}", "bad-pod"),
        ("{}", "missing-field"),
    ],
)
def test_problems_of_objects(spec: str, code: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(rule("ClusterInventory", spec))
    assert code in codes(load_documents([file]).problems)


def test_a_file_without_a_cluster_has_no_objects(tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("just text")
    text = TEST.format("one", "cluster: {file: none.yaml}", DIAGNOSES)
    (draft,) = load_text(tmp_path, text, "test.yaml").of(RuleTest, valid=False)
    assert draft.objects[""]().nodes == ()
    assert load_view(tmp_path / "none.yaml")[0] is None
