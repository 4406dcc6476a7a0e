"""The doctor on a real API server with its scheduler, with the rights that the chart grants."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, FINDINGS
from tests.support.chart import helm, one, rendered
from tests.support.doctor import watching
from tests.support.operating import until
from tests.support.real import GPU, MIG, REAL, Kube, eventually, kubernetes
from tests.support.server import command, environment

pytestmark = REAL


@pytest.fixture
def kube() -> Iterator[Kube]:
    with kubernetes(alone=True) as found:
        yield found


@pytest.fixture
def config(kube: Kube, tmp_path: Path) -> Iterator[Path]:
    """Write a kubeconfig with the rights of the doctor, that to create Events included."""
    helm("version")
    objects = rendered({"doctor": {"enabled": True, "events": True}})
    roles = [one(objects, "ClusterRole", f"gpu-rules-doctor{suffix}") for suffix in ("", "-events")]
    rules = [rule for role in roles for rule in role["rules"]]
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": kube.name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": kube.name}
    binding = {"metadata": {"name": kube.name}, "subjects": [subject], "roleRef": reference}
    kube.rbac.create_cluster_role({"metadata": {"name": kube.name}, "rules": rules})
    kube.rbac.create_cluster_role_binding(binding)
    yield kube.service_account(tmp_path)
    kube.rbac.delete_cluster_role_binding(kube.name)
    kube.rbac.delete_cluster_role(kube.name)


def diagnosis(config: Path, *arguments: str) -> tuple[int, Any]:
    """Return exit code and JSON of a diagnosis, which must have been complete."""
    ended = subprocess.run(
        command("doctor", "--output", "json", *arguments),
        env=environment(KUBECONFIG=str(config)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "warning" not in ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def message_of_the_scheduler(kube: Kube, pod: str) -> str:
    """Return the message of the condition PodScheduled, once there is one."""
    conditions = kube.core.read_namespaced_pod(pod, kube.name).status.conditions or []
    return next((found.message for found in conditions if found.type == "PodScheduled" and found.message), "")


def test_a_pending_pod_is_explained_as_the_scheduler_does(kube: Kube, config: Path) -> None:
    kube.node("a", gpu="4")
    kube.pod("train", MIG)
    recorded = eventually(lambda: message_of_the_scheduler(kube, "train"))

    code, report = diagnosis(config, "--pod", f"{kube.name}/train")

    assert code == 1
    assert [found["reason"] for found in report["findings"]] == ["GPUResourceOnNoNode"]
    assert report["pendingPods"] == 1
    assert f"the scheduler's message: {recorded}" in report["findings"][0]["evidence"]
    assert report["objects"].keys() == set(API_RESOURCES.values())
    assert report["notRead"] == []


def test_findings_become_metrics_and_events_once(kube: Kube, config: Path, tmp_path: Path) -> None:
    node = kube.node("a", gpu="4")
    kube.core.patch_node_status(node, {"status": {"capacity": {GPU: "8"}}})
    kube.pod("train", MIG)
    eventually(lambda: message_of_the_scheduler(kube, "train"))

    def sent() -> list[Any]:
        found = kube.core.list_event_for_all_namespaces(field_selector=f"source={FINDINGS}").items
        return [event for event in found if event.involved_object.name in ("train", node)]

    with watching(tmp_path, config, "-n", kube.name, "--events", "--interval", "10") as process:
        until(lambda: process.get("/readyz")[0] == 200, "the first diagnosis")
        (event,) = eventually(sent)
        assert process.samples()["gpu_rules_doctor_pending_pods"] == 1
    assert (event.metadata.namespace, event.reason, event.type) == (kube.name, "GPUResourceOnNoNode", "Warning")
    assert event.involved_object.uid == kube.core.read_namespaced_pod("train", kube.name).metadata.uid
    _, report = diagnosis(config, "-n", kube.name)
    assert FINDINGS not in json.dumps(report)
    with watching(tmp_path, config, "--events") as process:
        about_node = eventually(lambda: [event for event in sent() if event.involved_object.kind == "Node"])
    assert {event.metadata.namespace for event in about_node} == {"default"}
