"""Objects of examples/gitops as Argo CD, Flux and kustomize render them, applied to a real API server (KUBECONFIG)."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.chart import Object
from tests.support.gitops import NAMESPACE, RELEASE, argocd_objects, flux_objects, kustomize_objects
from tests.support.real import REAL, eventually, kubectl, kubernetes, together

pytestmark = REAL

SERVER_SIDE = ("--server-side", "--field-manager=gitops")
TOOLS: Mapping[str, tuple[Callable[[Path], list[Object]], Sequence[str]]] = {
    "argocd": (lambda _: argocd_objects(), SERVER_SIDE),
    "flux": (flux_objects, SERVER_SIDE),
    "kustomize": (kustomize_objects, ()),
}
"""Renderer of each tool, and its options of kubectl apply."""

CA = b64encode(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n").decode()


@pytest.fixture(autouse=True)
def namespace() -> Iterator[None]:
    """Create the namespace of the examples, and delete it with all objects. Skips the test if it is in use."""
    with kubernetes(alone=True):
        if kubectl("create", "namespace", NAMESPACE).returncode:
            pytest.skip(f"the cluster has a namespace {NAMESPACE}")
        yield
        kubectl("delete", "namespace", NAMESPACE)


def applied(objects: list[Object], *options: str) -> str:
    """Apply objects; return the error."""
    return kubectl("apply", *options, "-f", "-", stdin=together(objects)).stderr


def called() -> Any:
    configuration = json.loads(kubectl("get", "mutatingwebhookconfiguration", RELEASE, "-o", "json").stdout)
    return configuration["webhooks"][0]


@pytest.mark.parametrize("tool", TOOLS)
def test_objects_are_applied_and_keep_what_the_server_writes(tool: str, tmp_path: Path) -> None:
    render, options = TOOLS[tool]
    objects = [item for item in render(tmp_path) if item["kind"] != "Namespace"]
    try:
        assert applied(objects, *options) == ""
        (expected,) = (item for item in objects if item["kind"] == "MutatingWebhookConfiguration")
        assert called()["matchConditions"] == expected["webhooks"][0]["matchConditions"]
        account = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
        change = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": CA}]
        line = (
            "patch",
            "mutatingwebhookconfiguration",
            RELEASE,
            "--type=json",
            "-p",
            json.dumps(change),
            "--as",
            account,
        )
        assert eventually(lambda: kubectl(*line).returncode == 0)

        expected["webhooks"][0]["matchConditions"][0]["expression"] = "false"
        assert applied(objects, *options) == ""
        assert called()["matchConditions"][0]["expression"] == "false"
        assert called()["clientConfig"]["caBundle"] == CA
    finally:
        kubectl("delete", "--ignore-not-found", "-f", "-", stdin=together(objects))
