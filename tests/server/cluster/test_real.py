"""The live cluster and ladders against the real API server of KUBECONFIG.

KUBECONFIG=… pytest -m cluster tests/server/cluster
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rules_engine.model.kubernetes.cluster import Cluster, Freshness, Node
from rules_engine.rules.rule_set.rule_set import ClusterRequirements
from rules_engine.server.cluster.connection import Connection, load_kubeconfig
from rules_engine.server.cluster.live import LiveCluster
from rules_engine.server.commands import main
from tests.support.cluster import EVERYTHING, PODS
from tests.support.loading import load_view
from tests.support.real import GPU, MIG, PATIENCE_SECONDS, REAL, Kube, admitting, eventually, kubernetes
from tests.support.server import Running

pytestmark = REAL

RULES = """\
apiVersion: gpurules.io/v1
kind: FallbackLadder
metadata: {name: mig}
spec:
  offered: Available
  nodes: {selector: {matchLabels: {gpu-rules-test: %s}}, require: [Ready, MatchesPod]}
  match: {namespaceSelector: {matchLabels: {gpu-rules-test: %s}}}
  rungs:
    - {resource: nvidia.com/mig-2g.20gb}
    - {resource: nvidia.com/gpu}
"""


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes() as made:
        yield made


@pytest.fixture
def live() -> Iterator[LiveCluster]:
    made = LiveCluster(Connection(load_kubeconfig), EVERYTHING)
    made.start()
    try:
        assert made.wait_until(lambda cluster: cluster.known, PATIENCE_SECONDS), made.problems
        yield made
    finally:
        made.stop()


def find(cluster: Cluster, name: str) -> Node | None:
    return next((node for node in cluster.nodes if node.name == name), None)


def until(live: LiveCluster, holds: Callable[[Cluster], Any]) -> None:
    assert live.wait_until(lambda cluster: bool(holds(cluster)), PATIENCE_SECONDS), live.health


def free(cluster: Cluster, name: str, resource: str = GPU) -> str:
    node = find(cluster, name)
    return "" if node is None else str(node.available(resource))


def test_nodes_pods_and_namespaces_are_watched(kube: Kube, live: LiveCluster) -> None:
    name = kube.node("a", gpu="4")
    until(live, lambda cluster: free(cluster, name) == "4")
    until(live, lambda cluster: (node := find(cluster, name)) and node.ready and not node.taints)
    kube.core.patch_node(name, {"spec": {"unschedulable": True}})
    until(live, lambda cluster: (node := find(cluster, name)) and node.unschedulable)
    kube.core.patch_node(name, {"spec": {"unschedulable": False}})
    until(live, lambda cluster: cluster.namespaces.get(kube.name, {}).get("gpu-rules-test") == kube.name)
    kube.pod("one", GPU, nodeName=name)
    kube.pod("two", GPU, nodeName=name)
    until(live, lambda cluster: free(cluster, name) == "2")
    kube.core.patch_namespaced_pod_status("one", kube.name, {"status": {"phase": "Succeeded"}})
    until(live, lambda cluster: free(cluster, name) == "3")
    kube.delete_pod("two")
    until(live, lambda cluster: free(cluster, name) == "4")
    kube.offer(name, mig="8")
    until(live, lambda cluster: free(cluster, name, MIG) == "8")
    assert live.problems == []


def test_a_list_in_pages_is_complete(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.cluster.paging.FIRST_PAGE_OBJECTS", 1)
    monkeypatch.setattr("rules_engine.server.cluster.paging.PAGE_OBJECTS", 1)
    names = [kube.node(suffix, gpu="1") for suffix in "abc"]
    live = LiveCluster(Connection(load_kubeconfig), ClusterRequirements(nodes=True))
    live.start()
    try:
        assert live.wait_until(lambda cluster: cluster.known, PATIENCE_SECONDS)
        assert [free(live.current(), name) for name in names] == ["1", "1", "1"]
    finally:
        live.stop()


def test_watches_that_end_go_on_and_the_view_stays_fresh(kube: Kube) -> None:
    live = LiveCluster(Connection(load_kubeconfig), ClusterRequirements(nodes=True), max_staleness_seconds=3.0)
    live.start()
    try:
        assert live.wait_until(lambda cluster: cluster.known, PATIENCE_SECONDS)
        until(live, lambda _: live.health[0].counts["watches"] >= 4)
        name = kube.node("a", gpu="1")
        until(live, lambda cluster: free(cluster, name) == "1")
        assert (live.health[0].counts["lists"], live.problems) == (1, [])
    finally:
        live.stop()


def test_a_capture_loads_back(kube: Kube, live: LiveCluster, tmp_path: Path) -> None:
    name = kube.node("a", gpu="4")
    kube.pod("one", GPU, nodeName=name)
    until(live, lambda cluster: free(cluster, name) == "3")
    file = tmp_path / "captured.json"
    done = CliRunner().invoke(main, ["capture"])
    assert done.exit_code == 0, done.output
    file.write_text(done.stdout)
    loaded, problems, _ = load_view(file)
    assert (loaded is not None, problems) == (True, ())
    assert loaded is not None
    assert free(loaded, name) == "3"


def test_a_missing_permission_is_named(kube: Kube, tmp_path: Path) -> None:
    config = kube.service_account(tmp_path)
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    kube.rbac.create_cluster_role({"metadata": {"name": kube.name}, "rules": [rule]})
    context = {"kind": "ServiceAccount", "name": "default", "namespace": kube.name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": kube.name}
    kube.rbac.create_cluster_role_binding({"metadata": {"name": kube.name}, "subjects": [context], "roleRef": role})

    def configure(configuration: Any) -> None:
        from kubernetes import config as loading

        loading.load_kube_config(  # type: ignore[no-untyped-call]
            str(config), client_configuration=configuration, persist_config=False
        )

    live = LiveCluster(Connection(configure), PODS)
    live.start()
    try:
        until(live, lambda _: any("pods is forbidden" in problem for problem in live.problems))
        assert live.current().freshness is Freshness.NEVER
        until(live, lambda _: not any("nodes" in problem.partition(":")[0] for problem in live.problems))
        rule["resources"].append("pods")
        kube.rbac.patch_cluster_role(kube.name, {"rules": [rule]})
        assert live.wait_until(lambda cluster: cluster.known, PATIENCE_SECONDS)
    finally:
        live.stop()
        kube.rbac.delete_cluster_role_binding(kube.name)
        kube.rbac.delete_cluster_role(kube.name)


@pytest.fixture
def webhook(kube: Kube, tmp_path: Path) -> Iterator[Running]:
    """Run the server on this cluster, called for pods of the namespace."""
    with admitting(
        kube, tmp_path, RULES % (kube.name, kube.name), "--cluster", "kubeconfig", "--reserve-for", "all"
    ) as running:
        eventually(lambda: running.send("GET", "/readyz").status == 200)
        yield running


def requested(pod: Any) -> dict[str, str]:
    resources = pod.spec.containers[0].resources
    assert resources.limits == resources.requests
    limits: dict[str, str] = resources.limits
    return limits


def test_pods_fall_back_at_admission_and_run(kube: Kube, webhook: Running) -> None:
    mig, whole = kube.node("mig", mig="2"), kube.node("whole", gpu="4")
    # Pods are unchanged until the API server uses the configuration and the server has read the nodes.
    probe = manifest("probe", "3")
    eventually(lambda: GPU in requested(kube.core.create_namespaced_pod(kube.name, probe, dry_run="All")))
    pods = [kube.pod(f"p{number}", MIG, nodeSelector={"gpu-rules-test": kube.name}) for number in range(5)]
    assert [requested(pod) for pod in pods] == [{MIG: "1"}] * 2 + [{GPU: "1"}] * 3
    notes = [(pod.metadata.annotations or {}).get("gpurules.io/fallback") for pod in pods]
    assert notes == [None, None, *["2g.20gb->gpu"] * 3]

    def places() -> list[str]:
        found = [kube.core.read_namespaced_pod(f"p{number}", kube.name).spec.node_name for number in range(5)]
        return found if all(found) else []

    assert eventually(places) == [mig] * 2 + [whole] * 3
    kube.delete_pod("p0")
    eventually(
        lambda: (
            requested(kube.core.create_namespaced_pod(kube.name, manifest("again", "1"), dry_run="All")) == {MIG: "1"}
        )
    )
    assert requested(kube.pod("one-more", MIG, nodeSelector={"gpu-rules-test": kube.name})) == {MIG: "1"}


def manifest(name: str, count: str) -> dict[str, Any]:
    container = {"name": "main", "image": "app:1", "resources": {"limits": {MIG: count}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}
