"""A captured cluster is one file that loads back unchanged, without what may be secret."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import (
    API_KINDS,
    AUTOSCALER_STATUS,
    POD_GROUPS,
    STATUS_NAME,
    plain_kind,
)
from rules_engine.model.kubernetes.removed_values import removed_values
from rules_engine.server.commands import main
from tests.support.apiserver import ApiServer, Silence, Status, bound, namespace, node
from tests.support.cluster import capture, viewing
from tests.support.cluster_files import PLANTED, SECRET, autoscaler_status, item
from tests.support.loading import load_view

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def run(api: ApiServer, folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["capture", "--kubeconfig", str(api.kubeconfig(folder)), *options])


def relevant(cluster: Cluster) -> tuple[Any, Any]:
    """Return everything that decisions on GPUs depend on."""
    nodes = {
        n.name: (n.labels, n.taints, n.ready, n.unschedulable, n.allocatable, {k: v for k, v in n.used.items() if v})
        for n in cluster.nodes
    }
    return nodes, cluster.namespaces


def test_a_captured_cluster_loads_back_as_it_was(api: ApiServer, tmp_path: Path) -> None:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]
    labels = {"zone": "a", "example.com/empty": "", "true": "yes", "version": "1.10"}
    api.put("nodes", node("one", {GPU: 4, MIG: 7, "pods": 110}, labels=labels, taints=taints))
    api.put("nodes", node("two", {GPU: 8, "memory": "262144Ki", "cpu": "63500m"}, ready=False))
    api.put("nodes", node("three", unschedulable=True))
    api.put("pods", bound("p", "one", {GPU: 1, "cpu": 2}))
    api.put("pods", bound("q", "one", {MIG: 3}, namespace="other"))
    api.put("pods", bound("waits", "", {GPU: 1}))
    api.put("pods", bound("lost", "gone", {GPU: 1}))
    api.put("namespaces", namespace("ml", team="vision"))
    api.put("namespaces", namespace("bare"))
    with viewing(api) as view:
        live = view.synced()
    loaded, problems, _ = load_view(capture(api, tmp_path))
    assert problems == ()
    assert loaded is not None
    assert relevant(loaded) == relevant(live)


def test_a_capture_has_all_kinds_in_one_list_and_a_line_for_each_object(api: ApiServer, tmp_path: Path) -> None:
    for kind, each in API_KINDS.items():
        name = STATUS_NAME.name if kind == AUTOSCALER_STATUS else f"a-{kind.lower()}"
        api.put(each.resource, {"metadata": {"name": name, "namespace": "ml"}})

    done = run(api, tmp_path)

    captured = json.loads(done.stdout)
    assert (captured["apiVersion"], captured["kind"]) == ("v1", "List")
    assert [(item["kind"], item["apiVersion"]) for item in captured["items"]] == [
        (plain_kind(kind), each.api_version) for kind, each in API_KINDS.items()
    ]
    assert [json.loads(line.rstrip(",")) for line in done.stdout.splitlines()[1:-1]] == captured["items"]
    counts = ", ".join(f"{each.resource} 1" for each in API_KINDS.values())
    assert done.stderr.startswith("cluster: the current context of the kubeconfig, read at ")
    assert done.stderr.endswith(f": {counts}\n")


def test_no_secret_is_captured(api: ApiServer, tmp_path: Path) -> None:
    planted = [each for each in PLANTED if each["kind"] in API_KINDS]
    api.put("configmaps", {**autoscaler_status("ready"), "binaryData": {"a": SECRET}})
    api.put("configmaps", item("ConfigMap", "planted", "kube-system", data={"status": SECRET}))
    for each in planted:
        api.put(API_KINDS[each["kind"]].resource, each)

    done = run(api, tmp_path)

    assert SECRET in json.dumps(api.objects)
    assert SECRET not in done.output
    objects = [item for item in json.loads(done.stdout)["items"] if "metadata" in item]
    assert {item["kind"] for item in objects} == {each["kind"] for each in planted} | {"ConfigMap"}
    [status] = [item for item in objects if item["kind"] == "ConfigMap"]
    assert status["data"] == {"status": "ready"}
    [pod] = [item for item in objects if item["kind"] == "Pod"]
    assert {"spec.containers.env.value", "spec.containers.command"} <= removed_values(pod).keys()
    assert pod["metadata"]["annotations"]["kept"] == "yes"


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("collection", ["deviceclasses", "jobs", "nodes"])
def test_kinds_that_cannot_be_listed_are_named_and_left_out(
    api: ApiServer, tmp_path: Path, collection: str, status: int
) -> None:
    api.put("namespaces", namespace("ml"))
    api.fail(collection, Status(status, "not for you"))

    done = run(api, tmp_path)

    assert done.exit_code == 0
    assert f"gpu-rules capture: warning: cannot list {collection}: {status}: not for you\n" in done.stderr
    kinds = {plain_kind(kind) for kind, each in API_KINDS.items() if each.resource != collection}
    assert {item["kind"].removesuffix("List") for item in json.loads(done.stdout)["items"]} == kinds


@pytest.mark.parametrize("options", [(), ("-n", "ml")])
def test_with_rights_in_one_namespace_its_objects_are_captured(
    api: ApiServer, tmp_path: Path, options: tuple[str, ...]
) -> None:
    own = options[-1] if options else "default"
    api.forbidden = {each.resource for each in API_KINDS.values()}
    api.forbidden |= {f"/apis/{each.api_version}/namespaces/{own}/podgroups" for each in POD_GROUPS.values()}
    api.forbidden.add(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{own}/workloads")
    page = {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "a", "namespace": own}}]}
    api.single |= {f"/api/v1/namespaces/{own}/{name}": page for name in ("pods", "serviceaccounts")}

    done = run(api, tmp_path, *options)

    assert done.exit_code == 0
    _, warning = done.stderr.splitlines()
    assert warning.startswith("gpu-rules capture: warning: cannot list nodes, ")
    assert f"; only pods, serviceaccounts of namespace {own} are read: 403: nodes is forbidden: " in warning
    (tmp_path / "cluster.json").write_text(done.stdout)
    objects = read_cluster([tmp_path / "cluster.json"]).objects
    assert objects is not None
    assert objects.partial == {"Pod": own, "ServiceAccount": own}
    assert objects.absent == {kind for kind in API_KINDS if not API_KINDS[kind].optional} - objects.partial.keys()
    assert [each.name for each in objects.pods] == ["a"]


def test_a_kind_without_objects_is_known_to_have_none(api: ApiServer, tmp_path: Path) -> None:
    api.put("nodes", node("one"))
    api.fail("jobs", Status(403))
    objects = read_cluster([capture(api, tmp_path)]).objects
    assert objects is not None
    assert objects.absent == {"Job"}


def test_a_cluster_that_cannot_be_read_in_time_is_not_captured(api: ApiServer, tmp_path: Path) -> None:
    api.fail("nodes", Silence())
    done = run(api, tmp_path, "--timeout", "1")
    message = "gpu-rules capture: cannot list nodes: the cluster was not read in 1 s\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize("option", ["-oyaml", "--output=c.json"])
def test_a_capture_has_one_form_and_goes_to_standard_output(option: str) -> None:
    done = CliRunner().invoke(main, ["capture", option])
    assert done.exit_code == 2
    assert "one form of file, for --cluster, to standard output: write > FILE" in done.stderr
