"""A real kube-scheduler that is followed pod by pod; everything else on its cluster must stand still."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from tests.support.api import NOW
from tests.support.clusters import NAMESPACES
from tests.support.real import PATIENCE_SECONDS, Kube, eventually, kubernetes
from tests.support.scenarios import OWNER_LABELS, OWNERS, PRIORITIES

Object = dict[str, Any]

RETRY_SECONDS = 3.0
"""Time in which the scheduler binds a pod after others have ended for it; it takes a tenth of a second."""

BARRIER = "gpu-rules-test-barrier"
FINALIZER = "gpu-rules/test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The scheduler's decision on a pod.

    `node` is "" if it was not bound. `message`: that of a pod that could not be bound at once; if it has a node, then
    other pods have ended for it there.
    """

    pod: Object
    node: str
    message: str


@contextmanager
def real_scheduler() -> "Iterator[RealScheduler]":
    """Yield a real scheduler that no other test uses; remove what tests create."""
    with kubernetes(alone=True) as kube:
        made = RealScheduler(kube)
        try:
            made.start()
            yield made
        finally:
            made.stop()


class RealScheduler:
    """Nodes, namespaces and pods of generated clusters on the real control plane."""

    def __init__(self, kube: Kube) -> None:
        from kubernetes import client

        self.kube = kube
        self.core = kube.core
        self.namespaces = [f"{kube.name}-{name}" for name in NAMESPACES]
        self._barrier = f"{kube.name}-barrier"
        self._apps: Any = client.AppsV1Api()
        self._scheduling: Any = client.SchedulingV1Api()
        self._priorities: list[str] = []
        self._owners: dict[tuple[str, str], str] = {}
        """The uids of ReplicaSets, by name and namespace."""

    def start(self) -> None:
        for name, labels in zip(self.namespaces, NAMESPACES.values(), strict=True):
            self.core.create_namespace({"metadata": {"name": name, "labels": labels}})
        for name in self.namespaces:
            eventually(partial(self.core.read_namespaced_service_account, "default", name))

    def stop(self) -> None:
        self.delete_priority_classes()
        for name, namespace in self._owners:
            self._apps.patch_namespaced_replica_set(name, namespace, {"metadata": {"finalizers": None}})
        for name in self.namespaces:
            self.core.delete_namespace(name)

    def create_priorities_and_owners(self) -> None:
        """Create the PriorityClasses of scenarios, and their ReplicaSets, which get no pods of their own."""
        for name, values in PRIORITIES.items():
            self.create_priority_class(f"{self.kube.name}-{name}", **values)
        for namespace in self.namespaces:
            for name, selector in OWNERS.items():
                template = {
                    "metadata": {"labels": OWNER_LABELS[name]},
                    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
                }
                made = self._apps.create_namespaced_replica_set(
                    namespace,
                    {
                        "metadata": {"name": name, "finalizers": [FINALIZER]},
                        "spec": {"replicas": 0, "selector": selector, "template": template},
                    },
                )
                self._owners[name, namespace] = made.metadata.uid
                # One that is being deleted is read by the scheduler as any other, and its controller leaves it alone.
                self._apps.delete_namespaced_replica_set(name, namespace, propagation_policy="Orphan")

    def create_priority_class(self, name: str, value: int, **fields: Any) -> None:
        self._scheduling.create_priority_class({"metadata": {"name": name}, "value": value, **fields})
        self._priorities.append(name)

    def delete_priority_classes(self) -> None:
        for name in self._priorities:
            self._scheduling.delete_priority_class(name)

    def own(self, pod: Object, owner: str) -> None:
        """Add the reference to the ReplicaSet that controls a pod."""
        uid = self._owners[owner, pod["metadata"]["namespace"]]
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid, "controller": True}
        pod["metadata"]["ownerReferences"] = [reference]

    def pod_names(self) -> set[str]:
        """Read the names of all pods, with their namespaces."""
        return {f"{found.namespace}/{found.name}" for found in self.objects().pods}

    @contextmanager
    def cluster(self, nodes: Sequence[Object], bound: Sequence[Object], name: str) -> Iterator[None]:
        """Create a cluster that the scheduler has seen whole; delete it afterwards."""
        made: list[str] = []
        try:
            for node in nodes:
                made.append(node["metadata"]["name"])
                self._create_node(node)
            for pod in bound:
                self.create(pod)
                if "deletionTimestamp" in pod["metadata"]:
                    # No kubelet ends it.
                    self.core.delete_namespaced_pod(
                        pod["metadata"]["name"], pod["metadata"]["namespace"], grace_period_seconds=30
                    )
            made.append(self._barrier)
            self._create_barrier(self._barrier)
            self.wait_for_nodes(name)
            yield
        finally:
            for namespace in self.namespaces:
                self.core.delete_collection_namespaced_pod(namespace, body={"gracePeriodSeconds": 0})
            for node_name in made:
                self.core.delete_node(node_name)

    def objects(self) -> ClusterObjects:
        """Read the nodes, pods and namespaces of the API server."""
        core = self.core
        listed = {"Node": core.list_node, "Pod": core.list_pod_for_all_namespaces, "Namespace": core.list_namespace}
        objects = {kind: json.loads(read(_preload_content=False).data)["items"] for kind, read in listed.items()}
        return ClusterObjects(objects, now=NOW)

    def attempt(self, pod: Object) -> Attempt:
        """Create a pod, and wait until the scheduler has bound it or found no node for it; then delete it."""
        created = self.create(pod)
        found = self._decided(created)
        if not found.node:
            self.delete(created)
        elif found.message:
            self._bind_nominated(pod, found)
        return found

    def delete(self, pod: Object) -> None:
        """Delete a pod at once."""
        metadata = pod["metadata"]
        self.core.delete_namespaced_pod(metadata["name"], metadata["namespace"], grace_period_seconds=0)

    def create(self, pod: Object) -> Object:
        """Create a pod, and return it as stored; it ends at once when it is deleted."""
        # The images are never run.
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])):
            container["image"] = "app:1"
            requests = container["resources"]["requests"]
            container["resources"]["limits"] = {key: value for key, value in requests.items() if "/" in key}
        metadata = {key: value for key, value in pod["metadata"].items() if key != "deletionTimestamp"}
        body = {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 0, **pod["spec"]}}
        read = self.core.create_namespaced_pod(metadata["namespace"], body, _preload_content=False)
        stored: Object = json.loads(read.data)
        if "startTime" in pod.get("status", {}):
            self.started(stored, pod["status"]["startTime"])
        return stored

    def started(self, pod: Object, time: str) -> None:
        """Set the time at which a bound pod started, as a kubelet does."""
        metadata = pod["metadata"]
        self.core.patch_namespaced_pod_status(
            metadata["name"], metadata["namespace"], {"status": {"startTime": time}}, _preload_content=False
        )

    def _create_node(self, node: Object) -> None:
        status = {"allocatable": node["status"]["allocatable"], "capacity": node["status"]["allocatable"]}
        self.core.create_node({"metadata": node["metadata"], "spec": node["spec"], "status": status})
        # The API server adds a taint to each new node.
        self.change_node(node["metadata"]["name"], {"taints": node["spec"]["taints"]})

    def change_node(self, name: str, spec: Object) -> Object:
        """Change members of a node's spec, and return the node as stored."""
        read = self.core.patch_node(name, {"spec": spec}, _preload_content=False)
        stored: Object = json.loads(read.data)
        return stored

    def _create_barrier(self, name: str) -> None:
        amounts = {"cpu": "1", "memory": "1Gi", "pods": "1"}
        taints = [{"key": BARRIER, "effect": "NoExecute"}]
        self._create_node({"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"allocatable": amounts}})

    def wait_for_nodes(self, value: str) -> None:
        """Wait until the scheduler has seen all changes of nodes: it binds a pod by a label of which this is the first
        use, and which is the last change."""
        self.core.patch_node(self._barrier, {"metadata": {"labels": {BARRIER: value}}})
        pod = {
            "metadata": {"name": "barrier", "namespace": self.kube.name},
            "spec": {
                "containers": [{"name": "main", "resources": {"requests": {}}}],
                "nodeSelector": {BARRIER: value},
                "tolerations": [{"key": BARRIER, "operator": "Exists"}],
            },
        }
        created = self.create(pod)
        try:
            self._decided(created, bound=True)
        finally:
            self.delete(created)

    def _decided(self, created: Object, *, bound: bool = False) -> Attempt:
        """Return what the scheduler decided on a pod since it was created; with `bound`, wait until it has a node."""
        message = ""
        for stored in self._states(created, PATIENCE_SECONDS):
            if node := stored["spec"].get("nodeName", ""):
                return Attempt(pod=created, node=node, message=message)
            if conditions := stored["status"].get("conditions"):
                message = message or conditions[0]["message"]
                nominated = stored["status"].get("nominatedNodeName", "")
                if not bound:
                    return Attempt(pod=created, node=nominated, message=message)
        pytest.fail(f"the scheduler did not decide on {created['metadata']['name']}")

    def _bind_nominated(self, pod: Object, attempt: Attempt) -> None:
        """Wait until the scheduler binds a pod for which others end; bind it if it does not.

        Of a pod with several terms of anti-affinity, or kept away by terms with a namespaceSelector, kube-scheduler
        overlooks that the others have ended, and tries it again after five minutes only
        (plugins/interpodaffinity/plugin.go, isSchedulableAfterPodChange).
        """
        for stored in self._states(attempt.pod, RETRY_SECONDS):
            if node := stored["spec"].get("nodeName"):
                assert node == attempt.node
                return
        self.delete(attempt.pod)
        self.create({**pod, "spec": {**pod["spec"], "nodeName": attempt.node}})

    def _states(self, created: Object, seconds: float) -> Iterator[Object]:
        """Yield the states of a pod since it was created."""
        from kubernetes.watch import Watch

        metadata = created["metadata"]
        watch: Any = Watch()  # type: ignore[no-untyped-call]
        for event in watch.stream(
            self.core.list_namespaced_pod,
            metadata["namespace"],
            field_selector=f"metadata.name={metadata['name']}",
            # Without a version, a watch begins with the last state.
            resource_version=metadata["resourceVersion"],
            timeout_seconds=int(seconds),
        ):
            yield event["raw_object"]
