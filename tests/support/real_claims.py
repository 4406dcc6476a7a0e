"""A real control plane with generated clusters of ResourceClaims, for comparison with the answers of preflight."""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.claim_clusters import ClaimGenerator
from tests.support.real import PATIENCE_SECONDS
from tests.support.real_devices import RealDevices, real_devices
from tests.support.real_preflight import condition_of
from tests.support.real_scheduler import Attempt, Object

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
"""The label of namespaces whose claims may have adminAccess."""


@contextmanager
def real_claims(folder: Path) -> "Iterator[RealClaims]":
    """Yield a real control plane that no other test uses; remove what tests create."""
    from kubernetes import client
    from kubernetes.client.exceptions import ApiException

    with real_devices() as devices:
        try:
            client.ResourceV1beta2Api().list_device_taint_rule()
        except ApiException:
            pytest.skip("needs the feature gate DRADeviceTaintRules")
        devices.scheduler.core.patch_namespace(devices.namespace, {"metadata": {"labels": {ADMIN_ACCESS: "true"}}})
        yield RealClaims(devices, folder)


class RealClaims:
    """Clusters with claims, and the pods that the scheduler binds there."""

    def __init__(self, devices: RealDevices, folder: Path) -> None:
        from kubernetes import client

        self._devices = devices
        self._scheduler = devices.scheduler
        self._core = devices.scheduler.core
        self._api: Any = client.ResourceV1Api()
        self._rules: Any = client.ResourceV1beta2Api()
        self._folder = folder
        self.namespace = devices.namespace

    @contextmanager
    def cluster(self, made: ClaimGenerator, name: str) -> Iterator[None]:
        """Create a cluster that the scheduler has seen whole; delete it afterwards."""
        api, namespace = self._api, self.namespace
        try:
            # First: the scheduler has seen them long before the last object of the others.
            for rule in made.rules:
                body = {**rule, "apiVersion": "resource.k8s.io/v1beta2"}
                self._rules.create_device_taint_rule(body, _preload_content=False)
            with self._devices.cluster(made.nodes, [], made.classes, made.slices, [], name):
                for key, spec in made.templates.items():
                    template = {"metadata": {"name": key}, "spec": {"spec": spec}}
                    api.create_namespaced_resource_claim_template(namespace, template, _preload_content=False)
                for key, spec in made.claims.items():
                    claim = {"metadata": {"name": key}, "spec": spec}
                    api.create_namespaced_resource_claim(namespace, claim, _preload_content=False)
                self._devices.pass_barrier(f"{name}-claims")
                yield
        finally:
            self._rules.delete_collection_device_taint_rule()
            api.delete_collection_namespaced_resource_claim_template(namespace)

    def write(self, pod: Object, name: str) -> Sequence[Path]:
        """Write the manifest of a pod, and the cluster as kubectl lists it."""
        core = self._core
        reads = {
            "Node": core.list_node,
            "Pod": core.list_pod_for_all_namespaces,
            "Namespace": core.list_namespace,
            "ResourceQuota": core.list_resource_quota_for_all_namespaces,
            "DeviceClass": self._api.list_device_class,
            "ResourceSlice": self._api.list_resource_slice,
            "ResourceClaim": self._api.list_resource_claim_for_all_namespaces,
            "ResourceClaimTemplate": self._api.list_resource_claim_template_for_all_namespaces,
            "DeviceTaintRule": self._rules.list_device_taint_rule,
        }
        lists = [json.loads(read(_preload_content=False).data) for read in reads.values()]
        items = [
            {"apiVersion": each["apiVersion"], "kind": kind, **item}
            for kind, each in zip(reads, lists, strict=True)
            for item in each["items"]
        ]
        files = self._folder / f"{name}.json", self._folder / f"{name}-cluster.json"
        for path, content in zip(files, (pod, {"apiVersion": "v1", "kind": "List", "items": items}), strict=True):
            path.write_text(json.dumps(content))
        return files

    def attempt(self, pod: Object, *, exists: bool) -> Attempt:
        """Create a pod, and wait until the scheduler has bound it or found no node for it; then delete it.

        `exists`: its claims and templates. Of others, the scheduler says nothing, but it goes on to the next pod.
        """
        created = self._scheduler.create(pod)
        if exists:
            found = self._scheduler._decided(created)
        else:
            name = pod["metadata"]["name"]
            self._scheduler.wait_for_nodes(name)
            read = self._core.read_namespaced_pod(name, self.namespace, _preload_content=False)
            stored = json.loads(read.data)
            message = condition_of(stored).get("message", "")
            found = Attempt(pod=created, node=stored["spec"].get("nodeName", ""), message=message)
        if not found.node:
            self._scheduler.delete(created)
        return found

    def end(self, pods: Collection[str], value: str) -> None:
        """Delete pods, and wait until the scheduler has seen that their devices are free."""
        from kubernetes.watch import Watch

        for name in pods:
            self._core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)
        listed = self._claims()
        held = {claim["metadata"]["name"] for claim in listed["items"] if users_of(claim) & {*pods}}
        # Its model has another name than a watch expects.
        watch: Any = Watch(return_type="object")  # type: ignore[no-untyped-call]
        events = watch.stream(
            self._api.list_namespaced_resource_claim,
            self.namespace,
            resource_version=listed["metadata"]["resourceVersion"],
            timeout_seconds=int(PATIENCE_SECONDS),
        )
        while held:
            event = next(events)
            claim = event["raw_object"]
            if event["type"] == "DELETED" or not users_of(claim) & {*pods}:
                held.discard(claim["metadata"]["name"])
        self._devices.pass_barrier(value)

    def devices_of(self, pod: str) -> Sequence[str]:
        """Return the names of the devices of a pod's claims."""
        return [
            result["device"]
            for claim in self._claims()["items"]
            if pod in users_of(claim)
            for result in claim["status"]["allocation"]["devices"]["results"]
        ]

    def _claims(self) -> Any:
        read = self._api.list_namespaced_resource_claim(self.namespace, _preload_content=False)
        return json.loads(read.data)


def users_of(claim: Object) -> set[str]:
    """Return the names of the pods that a claim is reserved for."""
    return {each["name"] for each in claim.get("status", {}).get("reservedFor", ())}
