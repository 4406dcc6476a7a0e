"""A real kube-scheduler on clusters with devices of drivers, for which objects of resource.k8s.io/v1 are created."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from tests.support.api import DRIVER, NOW
from tests.support.real import kubernetes
from tests.support.real_scheduler import BARRIER, Attempt, Object, RealScheduler

KINDS = {"DeviceClass": "device_class", "ResourceSlice": "resource_slice", "ResourceClaim": "resource_claim"}


@contextmanager
def real_devices() -> "Iterator[RealDevices]":
    """Yield a real scheduler that no other test uses; remove what tests create."""
    with kubernetes(alone=True) as kube:
        made = RealDevices(RealScheduler(kube))
        made.start()
        try:
            yield made
        finally:
            made.stop()


class RealDevices:
    """Nodes, pods and devices of generated clusters on the real control plane, in the namespace of the test run."""

    def __init__(self, scheduler: RealScheduler) -> None:
        from kubernetes import client

        self.scheduler = scheduler
        self.namespace = scheduler.kube.name
        self.low = f"{self.namespace}-low"
        self._core = scheduler.core
        self._api: Any = client.ResourceV1Api()

    def start(self) -> None:
        """Create a PriorityClass below zero."""
        self.scheduler.create_priority_class(self.low, -1)

    def stop(self) -> None:
        self.scheduler.delete_priority_classes()

    def attempt(self, pod: Object) -> Attempt:
        """Create a pod, and wait until the scheduler has bound it or found no node for it."""
        return self.scheduler._decided(self.scheduler.create(pod))

    @contextmanager
    def cluster(
        self,
        nodes: Sequence[Object],
        bound: Sequence[Object],
        classes: Sequence[Object],
        slices: Sequence[Object],
        holders: Sequence[tuple[Object, Object]],
        name: str,
    ) -> Iterator[None]:
        """Create a cluster that the scheduler has seen whole; delete it afterwards.

        `holders`: pods that run, with the claims that are allocated to them.
        """
        scheduler = self.scheduler
        barrier = f"{self.namespace}-barrier"
        try:
            for node in nodes:
                scheduler._create_node(node)
            for each in classes:
                self._api.create_device_class(each, _preload_content=False)
            for each in slices:
                self._api.create_resource_slice(each, _preload_content=False)
            for pod, claim in holders:
                self._hold(pod, claim)
            for pod in bound:
                scheduler.create(self.placed(pod))
            scheduler._create_barrier(barrier)
            self.pass_barrier(name)
            yield
        finally:
            self._core.delete_collection_namespaced_pod(self.namespace, body={"gracePeriodSeconds": 0})
            for each in self.objects().of("ResourceClaim"):
                self._delete_claim(each.name)
            self._api.delete_collection_resource_slice()
            self._api.delete_collection_device_class()
            for node in (*(node["metadata"]["name"] for node in nodes), barrier):
                self._core.delete_node(node)

    def placed(self, pod: Object) -> Object:
        """Return a pod in the namespace of the test run."""
        return {**pod, "metadata": {**pod["metadata"], "namespace": self.namespace}}

    def _hold(self, pod: Object, claim: Object) -> None:
        """Create a pod that runs, and its claim with the devices."""
        created = self.scheduler.create(self.placed(pod))
        user = {"name": created["metadata"]["name"], "uid": created["metadata"]["uid"]}
        extended = "annotations" in claim["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", **user, "controller": True}
        metadata = {
            **claim["metadata"],
            "namespace": self.namespace,
            **({"ownerReferences": [owner]} if extended else {}),
        }
        self.create_claim(metadata, claim["status"], user)

    def create_claim(self, metadata: Object, status: Object, user: Object | None = None) -> None:
        """Create a claim that is allocated, and reserved for a pod."""
        request = {"name": "r", "exactly": {"deviceClassName": "any"}}
        self._api.create_namespaced_resource_claim(
            self.namespace, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}, _preload_content=False
        )
        reserved = [{"resource": "pods", **user}] if user else []
        self._api.patch_namespaced_resource_claim_status(
            metadata["name"], self.namespace, {"status": {**status, "reservedFor": reserved}}, _preload_content=False
        )

    def _delete_claim(self, name: str) -> None:
        from kubernetes.client.exceptions import ApiException

        try:
            self._api.patch_namespaced_resource_claim(name, self.namespace, {"metadata": {"finalizers": None}})
            self._api.delete_namespaced_resource_claim(name, self.namespace)
        except ApiException as error:
            if error.status != 404:  # deleted by a controller
                raise

    def pass_barrier(self, value: str) -> None:
        """Wait until the scheduler has seen all changes: it binds a pod for which it needs the last object of each.

        `value`: of its first use.
        """
        scheduler = self.scheduler
        node = f"{self.namespace}-barrier"
        name = f"{node}-{value}"
        self._api.create_device_class({"metadata": {"name": name}, "spec": {}}, _preload_content=False)
        self._api.create_resource_slice(
            {
                "metadata": {"name": name},
                "spec": {
                    "driver": f"barrier.{DRIVER}",
                    "nodeName": node,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "device"}],
                },
            },
            _preload_content=False,
        )
        # A DeviceTaintRule may taint all devices.
        request = {"name": "r", "exactly": {"deviceClassName": name, "tolerations": [{"operator": "Exists"}]}}
        self._api.create_namespaced_resource_claim(
            self.namespace,
            {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}},
            _preload_content=False,
        )
        self._core.patch_node(node, {"metadata": {"labels": {BARRIER: value}}})
        pod = {
            "metadata": {"name": "barrier", "namespace": self.namespace},
            "spec": {
                "containers": [{"name": "main", "resources": {"requests": {}}}],
                "nodeSelector": {BARRIER: value},
                "tolerations": [{"key": BARRIER, "operator": "Exists"}],
                "resourceClaims": [{"name": "r", "resourceClaimName": name}],
            },
        }
        created = scheduler.create(pod)
        try:
            scheduler._decided(created, bound=True)
        finally:
            scheduler.delete(created)

    def objects(self) -> ClusterObjects:
        """Read the nodes, pods, namespaces and objects of drivers."""
        api = self._api
        listed = {
            "DeviceClass": api.list_device_class,
            "ResourceSlice": api.list_resource_slice,
            "ResourceClaim": api.list_resource_claim_for_all_namespaces,
            "Node": self._core.list_node,
            "Pod": self._core.list_pod_for_all_namespaces,
            "Namespace": self._core.list_namespace,
        }
        objects = {kind: json.loads(read(_preload_content=False).data)["items"] for kind, read in listed.items()}
        return ClusterObjects(objects, now=NOW)

    def devices_of(self, pod: str) -> tuple[tuple[str, str, str], ...]:
        """Return the devices in the claim that the scheduler made for a bound pod, in the order of the claim."""
        read = self._core.read_namespaced_pod(pod, self.namespace, _preload_content=False)
        status = json.loads(read.data)["status"].get("extendedResourceClaimStatus")
        if status is None:
            return ()
        claim = self._api.read_namespaced_resource_claim(
            status["resourceClaimName"], self.namespace, _preload_content=False
        )
        results = json.loads(claim.data)["status"]["allocation"]["devices"]["results"]
        return tuple((each["driver"], each["pool"], each["device"]) for each in results)
