"""The model of the scheduler agrees with a real kube-scheduler of Kubernetes 1.36, pod by pod.

KUBECONFIG=… pytest -m cluster tests/scheduling
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from rules_engine.model.cluster_objects import ClusterObjects
from rules_engine.scheduling import Scheduler, compare, parse_recorded, scheduler_of
from tests.support.clusters import NAMESPACES, Generator
from tests.support.real import PATIENCE_SECONDS, REAL, Kube, eventually, kubernetes
from tests.support.scheduling import NOW

pytestmark = REAL

Object = dict[str, Any]

CLUSTERS = 200
BATCH = 20
"""Clusters of one test; a failure names its seed."""
PODS = 3

BARRIER = "gpu-rules-test-barrier"


@pytest.fixture(scope="module")
def real() -> Iterator["Real"]:
    with kubernetes(alone=True) as kube:
        made = Real(kube)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.mark.parametrize("first", range(0, CLUSTERS, BATCH))
def test_counts_agree_with_the_message_of_kube_scheduler(real: "Real", first: int) -> None:
    for seed in range(first, first + BATCH):
        generator = Generator(Random(seed), f"{real.kube.name}-")
        nodes = generator.nodes()
        with real.cluster(nodes, generator.bound(nodes), f"s{seed}"):
            for number in range(PODS):
                subject = generator.pending(nodes)
                subject["metadata"]["name"] = f"p{number}"
                found = real.scheduler().explain(subject)
                stored = real.attempt(subject)
                chosen = stored["spec"].get("nodeName")
                if chosen:
                    assert chosen in found.feasible_nodes, seed
                    continue
                text = stored["status"]["conditions"][0]["message"]
                recorded = parse_recorded(text)
                assert recorded is not None, text
                assert compare(recorded, found), f"seed {seed}, pod {number}:\n{text}\n{found.message()}"


class Real:
    """Nodes, namespaces and pods of generated clusters on the real control plane."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.core = kube.core
        self.namespaces = [f"{kube.name}-{name}" for name in NAMESPACES]

    def start(self) -> None:
        for name, labels in zip(self.namespaces, NAMESPACES.values(), strict=True):
            self.core.create_namespace({"metadata": {"name": name, "labels": labels}})
        for name in self.namespaces:
            eventually(partial(self.core.read_namespaced_service_account, "default", name))

    def stop(self) -> None:
        for name in self.namespaces:
            self.core.delete_namespace(name)

    @contextmanager
    def cluster(self, nodes: list[Object], bound: list[Object], name: str) -> Iterator[None]:
        """Create a cluster that the scheduler has seen whole; delete it afterwards."""
        made: list[str] = []
        try:
            for node in nodes:
                self._create_node(node)
                made.append(node["metadata"]["name"])
            for pod in bound:
                self._create(pod)
                if "deletionTimestamp" in pod["metadata"]:
                    # No kubelet ends it.
                    self.core.delete_namespaced_pod(pod["metadata"]["name"], pod["metadata"]["namespace"])
            barrier = f"{self.kube.name}-barrier"
            self._create_barrier(barrier)
            made.append(barrier)
            self._wait_for_the_scheduler(barrier, name)
            yield
        finally:
            for namespace in self.namespaces:
                self.core.delete_collection_namespaced_pod(namespace, body={"gracePeriodSeconds": 0})
            for node_name in made:
                self.core.delete_node(node_name)

    def scheduler(self) -> Scheduler:
        """Return the model on the objects of the API server."""
        core = self.core
        listed = {
            "Node": core.list_node,
            "Pod": core.list_pod_for_all_namespaces,
            "Namespace": core.list_namespace,
        }
        objects = {kind: json.loads(read(_preload_content=False).data)["items"] for kind, read in listed.items()}
        return scheduler_of(ClusterObjects(objects, now=NOW))

    def attempt(self, pod: Object) -> Object:
        """Create a pod, and return it after the scheduler's first attempt; delete it if it is not bound."""
        self._create(pod)
        stored = self._decided(pod)
        if not stored["spec"].get("nodeName"):
            self.core.delete_namespaced_pod(
                pod["metadata"]["name"], pod["metadata"]["namespace"], grace_period_seconds=0
            )
        return stored

    def _create(self, pod: Object) -> None:
        # The images are never run.
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])):
            container["image"] = "app:1"
            requests = container["resources"]["requests"]
            container["resources"]["limits"] = {key: value for key, value in requests.items() if "/" in key}
        metadata = {key: value for key, value in pod["metadata"].items() if key != "deletionTimestamp"}
        self.core.create_namespaced_pod(metadata["namespace"], {"metadata": metadata, "spec": pod["spec"]})

    def _create_node(self, node: Object) -> None:
        status = {"allocatable": node["status"]["allocatable"], "capacity": node["status"]["allocatable"]}
        self.core.create_node({"metadata": node["metadata"], "spec": node["spec"], "status": status})
        # The API server adds a taint to each new node.
        self.core.patch_node(node["metadata"]["name"], {"spec": {"taints": node["spec"]["taints"] or None}})

    def _create_barrier(self, name: str) -> None:
        amounts = {"cpu": "1", "memory": "1Gi", "pods": "1"}
        taints = [{"key": BARRIER, "effect": "NoSchedule"}]
        self._create_node({"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"allocatable": amounts}})

    def _wait_for_the_scheduler(self, node_name: str, value: str) -> None:
        """Wait until the scheduler binds a pod to a node by a label that is the last change of all nodes."""
        self.core.patch_node(node_name, {"metadata": {"labels": {BARRIER: value}}})
        pod = {
            "metadata": {"name": "barrier", "namespace": self.kube.name},
            "spec": {
                "containers": [{"name": "main", "resources": {"requests": {}}}],
                "nodeSelector": {BARRIER: value},
                "tolerations": [{"key": BARRIER, "operator": "Exists"}],
            },
        }
        self._create(pod)
        try:
            self._decided(pod, bound=True)
        finally:
            self.kube.delete_pod("barrier")

    def _decided(self, pod: Object, *, bound: bool = False) -> Object:
        """Return a pod once the scheduler has decided on it; with `bound`, once it has a node."""
        from kubernetes.watch import Watch

        metadata = pod["metadata"]
        watch: Any = Watch()  # type: ignore[no-untyped-call]
        for event in watch.stream(
            self.core.list_namespaced_pod,
            metadata["namespace"],
            field_selector=f"metadata.name={metadata['name']}",
            timeout_seconds=int(PATIENCE_SECONDS),
        ):
            stored: Object = event["raw_object"]
            if stored["spec"].get("nodeName") or (not bound and stored["status"].get("conditions")):
                watch.stop()
                return stored
        pytest.fail(f"the scheduler did not decide on {metadata['name']}")
