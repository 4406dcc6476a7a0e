"""Workloads whose pods a real API server refuses, with the Events of the real controllers.

KUBECONFIG=… pytest -m cluster tests/questions/doctor
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.rules.finding import Finding
from rules_engine.questions.doctor.never_created import find_never_created
from rules_engine.questions.doctor.reasons import NeverCreatedReason
from tests.support.real import GPU, LABEL, REAL, Kube, admitting, eventually, kubectl, kubernetes, together

pytestmark = REAL

KINDS = {"Job": "jobs", "ReplicaSet": "replicasets"}

DENY = """
apiVersion: gpurules.io/v1
kind: Validation
metadata: {name: owners}
spec:
  validations: [{expression: "has(object.metadata.labels) && 'owner' in object.metadata.labels", message: no owner}]
"""


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes() as made:
        yield made


def test_a_quota_is_named(kube: Kube) -> None:
    hard = {"requests.nvidia.com/gpu": "1"}
    kube.core.create_namespaced_resource_quota(kube.name, {"metadata": {"name": "gpus"}, "spec": {"hard": hard}})
    # A control plane for tests has no controller of quotas.
    status = {"status": {"hard": hard, "used": {"requests.nvidia.com/gpu": "0"}}}
    kube.core.patch_namespaced_resource_quota_status("gpus", kube.name, status)
    for finding in _refused(kube, [*map(_workload, KINDS)]):
        assert finding.reason == NeverCreatedReason.QUOTA
        assert finding.message == "pods were not created: quota gpus is exceeded"
        assert finding.evidence == (
            "requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=1",
            "quota gpus now: requests.nvidia.com/gpu 0 of 1",
        )


def test_our_rule_is_named(kube: Kube, tmp_path: Path) -> None:
    with admitting(kube, tmp_path, DENY):
        for finding in _refused(kube, [*map(_workload, KINDS)]):
            assert finding.reason == NeverCreatedReason.DENIED_BY_RULE
            assert finding.message == "pods were not created: denied by Validation/owners of gpu-rules"
            assert finding.evidence == ("Validation/owners: no owner",)


def test_a_webhook_that_cannot_be_called_is_named(kube: Kube) -> None:
    webhook = {
        "name": "closed.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {LABEL: kube.name}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kube.admission.create_validating_webhook_configuration({"metadata": {"name": kube.name}, "webhooks": [webhook]})
    try:
        for finding in _refused(kube, [*map(_workload, KINDS)]):
            assert finding.reason == NeverCreatedReason.WEBHOOK_FAILED
            assert finding.message == "pods were not created: the webhook closed.example.com could not be called"
            assert "connection refused" in finding.evidence[0]
    finally:
        kube.admission.delete_validating_webhook_configuration(kube.name)


def test_workloads_with_their_pods_have_no_finding(kube: Kube) -> None:
    workloads = [*map(_workload, KINDS)]
    _create(kube, workloads)
    eventually(lambda: len(kube.core.list_namespaced_pod(kube.name).items) == len(KINDS))
    objects = eventually(lambda: _settled(kube))
    assert _find_never_created(objects) == ()


def _workload(kind: str) -> dict[str, Json]:
    labels: Json = {"app": kind.lower()}
    container: Json = {"name": "main", "image": "app:1", "resources": {"limits": {GPU: "2"}}}
    spec: dict[str, Json] = {"template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}
    if kind == "Job":
        spec["template"] = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    else:
        spec["selector"] = {"matchLabels": labels}
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}


def _create(kube: Kube, workloads: Sequence[Json]) -> None:
    made = kubectl("create", "-n", kube.name, "-f", "-", stdin=together(workloads))
    assert made.returncode == 0, made.stderr


def _refused(kube: Kube, workloads: Sequence[Json]) -> tuple[Finding, ...]:
    """Create workloads, and return a finding for each of them."""
    _create(kube, workloads)

    def all_found() -> tuple[Finding, ...]:
        findings = _find_never_created(_read(kube))
        return findings if len(findings) == len(workloads) else ()

    findings: tuple[Finding, ...] = eventually(all_found)
    assert {finding.object.kind for finding in findings} == set(KINDS)
    return findings


def _find_never_created(objects: ClusterObjects) -> tuple[Finding, ...]:
    return find_never_created(objects, objects.now - timedelta(hours=1))


def _read(kube: Kube) -> ClusterObjects:
    """Return the objects of the namespace, as kubectl writes them."""
    resources = ",".join([*KINDS.values(), "events", "resourcequotas"])
    listing = kubectl("get", resources, "-n", kube.name, "-o", "json")
    assert listing.returncode == 0, listing.stderr
    by_kind: dict[str, list[Any]] = {kind: [] for kind in (*KINDS, "Event", "ResourceQuota")}
    for item in json.loads(listing.stdout)["items"]:
        by_kind[item["kind"]].append(item)
    return ClusterObjects(by_kind, now=datetime.now(UTC))


def _settled(kube: Kube) -> ClusterObjects | None:
    """Return the objects once the controllers have counted the pods."""
    objects = _read(kube)
    active = [workload.status.get("active") for workload in objects.of("Job")]
    replicas = [workload.status.get("replicas") for workload in objects.of("ReplicaSet")]
    return objects if active == replicas == [1] else None
