"""The chart's ValidatingAdmissionPolicy for bootstrap, on a real API server given by KUBECONFIG.

The release has a unique name, and its webhooks are called for its namespace only. All objects are deleted afterwards.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import render
from rules_engine.model.json.patch import Json
from tests.support.certificates import certified
from tests.support.chart import helm, set_options
from tests.support.real import REAL, Kube, eventually, kubectl, kubernetes, together
from tests.support.server import started

pytestmark = REAL

KINDS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
NOT_NEEDED = {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
"""Kinds of the chart that these tests do not need."""

CA = b64encode(certified("ca").certificate).decode()


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes() as made:
        yield made


@pytest.fixture
def release(kube: Kube) -> Iterator[str]:
    """Install a release with bootstrap, and return its name. Each configuration has a second webhook."""
    code, output, errors = helm(
        "template", kube.name, render.CHART, "--skip-tests", "--namespace", kube.name, *set_options("{}")
    )
    assert code == 0, errors
    objects = [one for one in yaml.safe_load_all(output) if one and one["kind"] not in NOT_NEEDED]
    configurations = [one for one in objects if "webhooks" in one]
    kube.narrow(configurations)
    for configuration in configurations:
        (webhook,) = configuration["webhooks"]
        configuration["webhooks"].append({**webhook, "name": f"second.{webhook['name']}"})
    try:
        ended = kubectl("create", "-f", "-", stdin=together(objects))
        assert ended.returncode == 0, ended.stderr
        denied: Json = {"op": "add", "path": "/metadata/labels/a", "value": "b"}
        for kind in KINDS:
            eventually(lambda kind=kind: "may change caBundle only" in changed(kube.name, kind, [denied]))  # type: ignore[misc]
        yield kube.name
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=together(objects))


def server_of(release: str) -> str:
    """Return the user name of the release's server."""
    return f"system:serviceaccount:{release}:{release}"


def changed(release: str, kind: str, patch: Sequence[Json], *arguments: str, user: str | None = None) -> str:
    """Return the error for a patch by a user, by default the server; "" if it succeeds."""
    line = ("patch", kind, release, "--type=json", "-p", json.dumps([*patch]), "--as", user or server_of(release))
    return kubectl(*line, *(arguments or ("--dry-run=server",))).stderr


FIRST, CLIENT = "/webhooks/0", "/webhooks/0/clientConfig"
WEBHOOK: Json = {
    "name": "a.b.c",
    "clientConfig": {"url": "https://127.0.0.1:1"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
DENIED: Mapping[str, Sequence[Json]] = {
    "failurePolicy": [{"op": "replace", "path": f"{FIRST}/failurePolicy", "value": "Fail"}],
    "rules": [{"op": "replace", "path": f"{FIRST}/rules/0/resources", "value": ["secrets"]}],
    "no rules": [{"op": "remove", "path": f"{FIRST}/rules"}],
    "matchConditions": [{"op": "remove", "path": f"{FIRST}/matchConditions"}],
    "another condition": [
        {"op": "add", "path": f"{FIRST}/matchConditions/-", "value": {"name": "n", "expression": "false"}}
    ],
    "namespaceSelector": [{"op": "remove", "path": f"{FIRST}/namespaceSelector"}],
    "objectSelector": [{"op": "add", "path": f"{FIRST}/objectSelector/matchLabels", "value": {"a": "b"}}],
    "matchPolicy": [{"op": "replace", "path": f"{FIRST}/matchPolicy", "value": "Exact"}],
    "sideEffects": [{"op": "replace", "path": f"{FIRST}/sideEffects", "value": "None"}],
    "timeoutSeconds": [{"op": "replace", "path": f"{FIRST}/timeoutSeconds", "value": 1}],
    "versions": [{"op": "add", "path": f"{FIRST}/admissionReviewVersions/-", "value": "v1beta1"}],
    "name of a webhook": [{"op": "replace", "path": f"{FIRST}/name", "value": "a.b.c"}],
    "service": [{"op": "replace", "path": f"{CLIENT}/service/name", "value": "other"}],
    "namespace of the service": [{"op": "replace", "path": f"{CLIENT}/service/namespace", "value": "other"}],
    "port": [{"op": "replace", "path": f"{CLIENT}/service/port", "value": 444}],
    "path": [{"op": "remove", "path": f"{CLIENT}/service/path"}],
    "url": [{"op": "replace", "path": CLIENT, "value": {"url": "https://127.0.0.1:1", "caBundle": CA}}],
    "with caBundle": [
        {"op": "add", "path": f"{CLIENT}/caBundle", "value": CA},
        {"op": "replace", "path": "/webhooks/1/failurePolicy", "value": "Fail"},
    ],
    "one less": [{"op": "remove", "path": "/webhooks/1"}],
    "none": [{"op": "remove", "path": "/webhooks"}],
    "one more": [{"op": "add", "path": "/webhooks/-", "value": WEBHOOK}],
    "order": [{"op": "move", "from": "/webhooks/1", "path": "/webhooks/0"}],
    "a label": [{"op": "add", "path": "/metadata/labels/a", "value": "b"}],
    "no labels": [{"op": "remove", "path": "/metadata/labels"}],
    "an annotation": [{"op": "add", "path": "/metadata/annotations/a", "value": "b"}],
    "no annotations": [{"op": "remove", "path": "/metadata/annotations"}],
    "finalizers": [{"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]}],
    "owner": [
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [{"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "0"}],
        }
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_may_not_change_other_fields_than_ca_bundles(release: str, kind: str) -> None:
    errors = {what: changed(release, kind, patch) for what, patch in DENIED.items()}
    assert {what: text for what, text in errors.items() if "gpu-rules may change caBundle only" not in text} == {}
    if kind.startswith("mutating"):
        again: Json = {"op": "replace", "path": f"{FIRST}/reinvocationPolicy", "value": "Never"}
        assert "gpu-rules may change caBundle only" in changed(release, kind, [again])


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_may_change_every_ca_bundle(release: str, kind: str) -> None:
    paths = [f"/webhooks/{index}/clientConfig/caBundle" for index in range(2)]
    assert changed(release, kind, [{"op": "add", "path": path, "value": CA} for path in paths], "--output=name") == ""
    kept = json.loads(kubectl("get", kind, release, "-o", "json").stdout)
    assert [webhook["clientConfig"]["caBundle"] for webhook in kept["webhooks"]] == [CA, CA]
    assert changed(release, kind, [{"op": "remove", "path": paths[0]}]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_others_may_change_what_their_rights_cover(release: str, kind: str) -> None:
    errors = {}
    for what, patch in DENIED.items():
        ended = kubectl("patch", kind, release, "--type=json", "-p", json.dumps([*patch]), "--dry-run=server")
        errors[what] = ended.stderr
    assert {what: text for what, text in errors.items() if "caBundle" in text} == {}
    assert errors["failurePolicy"] == ""
    stranger = f"system:serviceaccount:{release}:default"
    assert "is forbidden" in changed(release, kind, DENIED["failurePolicy"], user=stranger)


def test_the_api_server_finds_no_type_error_in_the_policy(release: str) -> None:
    def checked() -> Any:
        policy = json.loads(kubectl("get", "validatingadmissionpolicy", f"{release}-ca-bundle", "-o", "json").stdout)
        return policy.get("status", {}).get("typeChecking") is not None and policy

    assert eventually(checked)["status"]["typeChecking"] == {}


def test_the_charts_rights_suffice_to_store_the_certificate(kube: Kube, release: str, tmp_path: Path) -> None:
    config = kube.service_account(tmp_path, release)
    arguments = ("--tls-bootstrap", f"{release}/{release}-tls", "--tls-service", f"{release}.{release}.svc")
    with started(tmp_path, *arguments, "--webhook-name", release, KUBECONFIG=str(config)):
        data = json.loads(kubectl("get", "secret", f"{release}-tls", "-n", release, "-o", "json").stdout)["data"]
        for kind in KINDS:
            kept = json.loads(kubectl("get", kind, release, "-o", "json").stdout)
            bundles = [b64decode(webhook["clientConfig"]["caBundle"]) for webhook in kept["webhooks"]]
            assert bundles == [b64decode(data["ca.crt"])] * 2
