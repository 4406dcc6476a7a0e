"""Captured clusters load back unchanged."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rules_engine.documents.clusters import load_cluster
from rules_engine.evaluation.nodes.reservations import is_extended_resource
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from server.cluster.capture import as_json, as_yaml, cluster_inventory
from tests.support.apiserver import ApiServer, bound, namespace, node
from tests.support.cluster import viewing

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def relevant(cluster: Cluster) -> tuple[Any, Any]:
    """Return everything that decisions on GPUs depend on."""
    nodes = {
        n.name: (
            n.labels,
            n.taints,
            n.ready,
            n.unschedulable,
            {resource: quantity for resource, quantity in n.allocatable.items() if resource != "pods"},
            {resource: quantity for resource, quantity in n.used.items() if is_extended_resource(resource)},
        )
        for n in cluster.nodes
    }
    return nodes, cluster.namespaces


@pytest.mark.parametrize(("render", "suffix"), [(as_yaml, ".yaml"), (as_json, ".json")])
def test_a_captured_cluster_loads_back_as_it_was(
    api: ApiServer, tmp_path: Path, render: Callable[[Mapping[str, Json]], str], suffix: str
) -> None:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]
    labels = {"zone": "a", "example.com/empty": "", "true": "yes", "version": "1.10"}
    api.put("nodes", node("one", {GPU: 4, MIG: 7, "pods": 110}, labels=labels, taints=taints))
    api.put("nodes", node("two", {GPU: 8, "memory": "262144Ki", "cpu": "63500m"}, ready=False))
    api.put("nodes", node("three", unschedulable=True))
    api.put("pods", bound("p", "one", {GPU: 1, "cpu": 2}))
    api.put("pods", bound("q", "one", {MIG: 3}, namespace="other"))
    api.put("pods", bound("cpu-only", "one", {"cpu": 2}))
    api.put("pods", bound("waits", "", {GPU: 1}))
    api.put("pods", bound("lost", "gone", {GPU: 1}))
    api.put("namespaces", namespace("ml", team="vision"))
    api.put("namespaces", namespace("bare"))
    with viewing(api) as view:
        live = view.synced()
        text = render(cluster_inventory(live, view.live.pod_usages()))
    file = tmp_path / f"captured{suffix}"
    file.write_text(text)
    loaded, problems, _ = load_cluster(file)
    assert problems == ()
    assert loaded is not None
    assert relevant(loaded) == relevant(live)
    assert "cpu-only" not in text


def test_a_captured_cluster_has_a_line_for_each_object(api: ApiServer) -> None:
    api.put("nodes", node("one", {GPU: 4}))
    api.put("pods", bound("p", "one", {GPU: 1}))
    with viewing(api) as view:
        cluster = view.synced()
        written = as_yaml(cluster_inventory(cluster, view.live.pod_usages()))
    assert (
        written
        == """\
# Written by gpu-rules capture. Of each node: cpu, memory and extended resources, labels, taints, Ready and cordon.
# Of pods: those that hold extended resources, each as one container; free cpu and memory cannot be derived from this.
# Of devices that drivers offer: the attributes that a DeviceClass selects by; of claims, the devices.
apiVersion: "gpurules.io/v1"
kind: "ClusterInventory"
metadata: {"name": "captured"}
spec:
  nodes:
    - {"name": "one", "labels": {"kubernetes.io/hostname": "one"}, \
"allocatable": {"cpu": "64", "memory": "263Gi", "nvidia.com/gpu": "4"}}
  namespaces: {}
  pods:
    - {"metadata": {"name": "p", "namespace": "ml"}, "spec": {"nodeName": "one", \
"containers": [{"name": "all", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}
"""
    )
