"""A generated world on a real control plane, which changes as the naive one does."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, ClusterObjects
from tests.support.real import eventually, kubectl
from tests.support.real_scheduler import RealScheduler
from tests.support.waiting_worlds import World, is_lasting

Object = dict[str, Any]
Seen = tuple[str, str, str]
"""The node of the waiting pod, and the reason and message of its condition PodScheduled."""


class RealWorld:
    """A world whose nodes, pods and claims the control plane has; no other test uses it."""

    def __init__(self, real: RealScheduler, world: World) -> None:
        from kubernetes import client

        self._real = real
        self._core = real.core
        self._resources: Any = client.ResourceV1Api()
        self._namespace = real.namespaces[0]
        self._world = world
        self._volumes: list[str] = []
        self._changes = count()

    @contextmanager
    def created(self) -> Iterator[None]:
        """Create the world, and delete it afterwards."""
        nodes = [each["metadata"]["name"] for each in self._world.nodes]
        try:
            with self._real.cluster([], [], f"{nodes[0]}-empty"):
                for each in self._world.nodes:
                    self._create_node(each)
                for each in self._world.bound:
                    self._create_pod(each)
                for each in self._world.claims:
                    self._create_volume_claim(each["metadata"]["name"])
                self._wait_until_seen()
                self._create_pod(self._world.pod)
                yield
        finally:
            delete = "delete", "--ignore-not-found", "--wait=false"
            kubectl(*delete, "-n", self._namespace, "persistentvolumeclaims,resourceclaims", "--all")
            kubectl(*delete, "persistentvolumes", *self._volumes)
            kubectl(*delete, "nodes", *nodes)
            eventually(lambda: not self._items("resourceclaims") and not self._items("persistentvolumeclaims"))

    def _wait_until_seen(self) -> None:
        """Wait until the scheduler has seen everything, and tried all pods that it may try."""
        self._real.wait_for_nodes(f"{self._namespace}-{next(self._changes)}")

    def objects(self) -> ClusterObjects:
        """Read the objects that a diagnosis reads; of the nodes, those of the world."""
        by_kind: dict[str, list[Object]] = {kind: [] for kind in API_RESOURCES}
        for item in self._items(",".join(API_RESOURCES.values()), "--all-namespaces"):
            by_kind.setdefault(item["kind"], []).append(item)
        names = {each["metadata"]["name"] for each in self._world.nodes}
        by_kind["Node"] = [each for each in by_kind["Node"] if each["metadata"]["name"] in names]
        return ClusterObjects(by_kind)

    def seen(self) -> Seen:
        """Return what the scheduler has written about the waiting pod."""
        read = self._core.read_namespaced_pod(
            self._world.pod["metadata"]["name"], self._namespace, _preload_content=False
        )
        pod = json.loads(read.data)
        condition: Object = next(
            (each for each in pod["status"].get("conditions", []) if each["type"] == "PodScheduled"), {}
        )
        return pod["spec"].get("nodeName", ""), condition.get("reason", ""), condition.get("message", "")

    def waits(self) -> Seen:
        """Return what the scheduler writes about the pod, which it tries now; it must not find a node."""
        self._wait_until_seen()
        self._real.delete(self._named(self._world.pod))
        self._create_pod(self._world.pod)
        if self._world.missing_claims():
            # The scheduler writes nothing about a pod before its claims exist.
            self._wait_until_seen()
        else:
            eventually(lambda: any(self.seen()))
        seen = self.seen()
        assert not seen[0]
        return seen

    def starts(self) -> str:
        """Return the node of the pod, once the scheduler has found one."""
        return str(eventually(lambda: self.seen()[0]))

    def change(self, changed: World) -> None:
        """Let the control plane have another world."""
        world, self._world = self._world, changed
        for old, new in zip(world.nodes, changed.nodes, strict=True):
            if old != new:
                self._change_node(new)
        for each in world.bound:
            if each not in changed.bound:
                self._real.delete(self._named(each))
        for name in world.missing_claims():
            if name not in changed.missing_claims():
                self._create_resource_claim(name)
        existing = [each["metadata"]["name"] for each in world.claims]
        for name in world.missing_volumes():
            if name not in changed.missing_volumes():
                if name not in existing:
                    self._create_volume_claim(name)
                self._create_volume(name)
        if world.pod != changed.pod:
            # Most of a pod's spec cannot be changed.
            self._real.delete(self._named(world.pod))
            self._create_pod(changed.pod)

    def _items(self, resources: str, *arguments: str) -> list[Object]:
        listing = kubectl("get", resources, "-o", "json", *(arguments or ("-n", self._namespace)))
        assert listing.returncode == 0, listing.stderr
        items: list[Object] = json.loads(listing.stdout)["items"]
        return items

    def _named(self, pod: Object) -> Object:
        """Return the pod with its namespace on the control plane."""
        metadata = {"name": pod["metadata"]["name"], "namespace": self._namespace, "labels": pod["metadata"]["labels"]}
        if is_lasting(pod):
            # The owner must exist: a pod of the node itself needs no DaemonSet.
            node = self._core.read_node(pod["spec"]["nodeName"]).metadata
            owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
            metadata["ownerReferences"] = [owner]
        return {**pod, "metadata": metadata}

    def _create_pod(self, pod: Object) -> None:
        self._real.create(self._named(pod))

    def _create_node(self, node: Object) -> None:
        self._core.create_node({"metadata": {key: node["metadata"][key] for key in ("name", "labels")}})
        self._change_node(node)

    def _change_node(self, node: Object) -> None:
        name, spec = node["metadata"]["name"], node["spec"]
        self._core.patch_node_status(name, {"status": node["status"]})
        # The API server adds a taint to each new node.
        self._core.patch_node(name, {"spec": {"unschedulable": None, **spec}})

    def _create_resource_claim(self, name: str) -> None:
        self._resources.create_namespaced_resource_claim(self._namespace, {"metadata": {"name": name}, "spec": {}})

    def _create_volume_claim(self, name: str) -> None:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": f"{self._namespace}-{name}",
        }
        claim = {"metadata": {"name": name}, "spec": spec}
        self._core.create_namespaced_persistent_volume_claim(self._namespace, claim)

    def _create_volume(self, name: str) -> None:
        """Create the volume to which the control plane binds a claim."""
        volume = f"{self._namespace}-{name}"
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/nowhere"},
            "persistentVolumeReclaimPolicy": "Retain",
        }
        self._volumes.append(volume)
        self._core.create_persistent_volume({"metadata": {"name": volume}, "spec": spec})
        read = self._core.read_namespaced_persistent_volume_claim
        eventually(lambda: read(name, self._namespace).status.phase == "Bound")
