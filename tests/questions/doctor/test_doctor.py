"""The diagnosis of a cluster as a whole."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, DIAGNOSED_RESOURCES, ClusterObjects
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.questions.doctor.doctor import doctor
from rules_engine.questions.doctor.scope import Scope
from rules_engine.questions.doctor.values import Diagnosis, FindingCounts, UnreadKind
from rules_engine.rules.diagnostic.evaluation import CompiledDiagnostic, compile_diagnostics
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.sources.documents import load_documents
from tests.support.api import GPU, NOW, Object, ago, api_object, cluster, event, node, pod, reference
from tests.support.diagnostics import diagnostic

LOST = """\
when: "object.status.capacity['nvidia.com/gpu'] != object.status.allocatable['nvidia.com/gpu']"
reason: GPUsLost"""
NO_PLUGIN = """\
forEach: Cluster
when: "cluster.daemonSets.size() == 0"
severity: Info
reason: NoDevicePlugin
remedies: []"""


@pytest.fixture
def diagnostics(tmp_path: Path) -> tuple[CompiledDiagnostic, ...]:
    return diagnostic(LOST, tmp_path, "lost"), diagnostic(NO_PLUGIN, tmp_path, "no-plugin")


BROKEN = [node(f"worker-{n}", {GPU: 7}, capacity={GPU: 8}) for n in range(1, 101)] + [node("whole", {GPU: 8})]


def example(nodes: Sequence[Object] = BROKEN, *, error: bool = True) -> ClusterObjects:
    """Return a cluster with broken nodes and, unless told otherwise, an error of a node."""
    return cluster(
        *nodes,
        pod("train", {GPU: 7}, on="worker-1"),
        pod("a", {"nvidia.com/mig-1g.10gb": 1}),
        pod("b", {"nvidia.com/mig-1g.10gb": 1}),
        pod("c", {"nvidia.com/mig-7g.80gb": 1}, namespace="shop"),
        *([event(node("whole"), "XidError", "Xid 79")] if error else []),
    )


def finding_rows(report: Diagnosis) -> list[tuple[str, str, int]]:
    return [(group.reason, str(group.object), len(group.objects)) for group in report.findings]


def test_a_report_has_built_in_findings_and_those_of_diagnostics(diagnostics: tuple[CompiledDiagnostic, ...]) -> None:
    report = doctor(example(), diagnostics, None, Scope(), "rules")

    assert finding_rows(report) == [
        ("GPUResourceOnNoNode", "Pod/ml/a", 2),
        ("GPUResourceOnNoNode", "Pod/shop/c", 1),
        ("GPUsLost", "Node/worker-1", 100),
        ("NoDevicePlugin", "Cluster", 1),
    ]
    assert (report.time, report.rules, report.not_evaluated, report.not_read) == (NOW, "rules", (), ())
    assert (report.objects["nodes"], report.objects["pods"], report.objects["jobs"]) == (101, 4, 0)
    assert len(report.nodes) == 101
    assert [str(pod.name) for pod in report.pods] == ["Pod/ml/train"]
    assert report.pending_pods == 3
    assert report.counts == FindingCounts(error=2, warning=1, info=1, possible=0)
    assert [error.reason for error in report.errors] == ["XidError"]


def test_a_report_has_pods_that_were_never_created_and_those_that_a_node_refused() -> None:
    job = api_object("Job", "train", "ml", spec={"parallelism": 1}, status={})
    exceeded = (
        'pods "train-x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, '
        "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=4"
    )
    refusal = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}
    objects = cluster(
        node("whole", {GPU: 8}),
        job,
        event(job, "FailedCreate", exceeded),
        pod("shared", {GPU: 2}, on="whole", status=refusal),
        pod("other", {GPU: 2}, on="whole", namespace="shop", status=refusal),
    )

    assert {(reason, about) for reason, about, _ in finding_rows(doctor(objects, (), None, Scope(namespace="ml")))} == {
        ("QuotaExceeded", "Job/ml/train"),
        ("RefusedByNode", "Pod/ml/shared"),
    }


def test_a_pod_that_fits_has_no_message() -> None:
    report = doctor(cluster(node("free", {GPU: 8}), pod("new", {GPU: 1})), (), None, Scope())

    assert finding_rows(report) == [("NoSchedulerMessage", "Pod/ml/new", 1)]


@pytest.mark.parametrize(
    ("scope", "reasons", "nodes"),
    [
        (Scope(namespace="shop"), [("GPUResourceOnNoNode", "Pod/shop/c", 1)], 101),
        (Scope(node="worker-1"), [("GPUsLost", "Node/worker-1", 1)], 1),
        (Scope(pod=ObjectName("Pod", "a", "ml")), [("GPUResourceOnNoNode", "Pod/ml/a", 1)], 101),
        (Scope(pod=ObjectName("Pod", "train", "ml"), namespace="ml"), [], 1),
    ],
)
def test_a_scope_limits_the_report(
    diagnostics: tuple[CompiledDiagnostic, ...], scope: Scope, reasons: list[tuple[str, str, int]], nodes: int
) -> None:
    report = doctor(example(), diagnostics, None, scope)

    assert finding_rows(report) == reasons
    assert len(report.nodes) == nodes
    assert report.errors == ()
    assert report.scope == scope


PACKAGED, _ = compile_diagnostics(load_documents([Path(__file__).parents[3] / "rules" / "diagnostics"]).of(Diagnostic))


def test_the_problems_of_one_broken_node_are_one_finding_with_its_effects() -> None:
    crashing = {"name": "ctr", "ready": False, "restartCount": 9, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/mig.config": "all-1g",
        "nvidia.com/mig.config.state": "failed",
    }
    objects = cluster(
        node("worker", {GPU: 0}, capacity={GPU: 8}, labels=labels),
        pod("nvidia-device-plugin-x", on="worker", statuses=[crashing]),
        pod("train", {GPU: 1}),
        event(node("worker"), "XidError", "NVRM: Xid 79"),
    )

    report = doctor(objects, PACKAGED, None, Scope())

    assert finding_rows(report) == [("XidError", "Node/worker", 1), ("GPUResourceOnNoNode", "Pod/ml/train", 1)]
    assert [effect.reason for effect in report.findings[0].effects] == [
        "DevicePluginCrashLooping",
        "MIGLayoutFailed",
        "NoAllocatableDevices",
    ]


@pytest.mark.parametrize("scope", [Scope(pod=ObjectName("Pod", "a", "ml")), Scope(namespace="ml")])
def test_a_report_on_a_pod_has_the_findings_of_nodes_that_could_serve_it(scope: Scope) -> None:
    labels = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "pending"}
    nodes = [node("changing", {GPU: 8}, labels=labels), node("other", {GPU: 7}, capacity={GPU: 8})]

    report = doctor(example(nodes, error=False), PACKAGED, None, scope)

    expected = [("MIGLayoutPending", "Node/changing", 1), ("GPUResourceOnNoNode", "Pod/ml/a", 1 if scope.pod else 2)]
    # The finding about the node is a warning: it is first in the answer about a pod.
    assert finding_rows(report) == (expected if scope.pod else expected[::-1])


def test_unread_kinds_are_listed_with_the_unknown_facts(diagnostics: tuple[CompiledDiagnostic, ...]) -> None:
    objects = cluster(node("whole", {GPU: 8}), pod("train", {GPU: 1}, on="whole"), absent=["DaemonSet", "Event"])

    report = doctor(objects, diagnostics, None, Scope())

    assert report.not_read == (
        UnreadKind(objects="events", unknown="recent errors, the scheduler's message and pods that were never created"),
        UnreadKind(objects="daemonsets", unknown="which device plugins there are"),
    )
    assert set(report.objects) == set(API_RESOURCES.values()) - {"daemonsets", "events"}
    assert [(each.diagnostic, each.why) for each in report.not_evaluated] == [
        ("Diagnostic/no-plugin", "daemonsets were not read")
    ]
    assert report.findings == ()


def test_no_reason_is_given_for_a_pending_pod_without_nodes() -> None:
    report = doctor(cluster(pod("p", {GPU: 1}), absent=["Node"]), (), None, Scope())

    assert report.findings[0].evidence == ("not evaluated: nodes were not read",)
    assert finding_rows(report) == [("NoSchedulerMessage", "Pod/ml/p", 1)]


def test_every_kind_has_its_unknown_facts() -> None:
    report = doctor(cluster(absent=[*DIAGNOSED_RESOURCES]), (), None, Scope())

    assert [absent.objects for absent in report.not_read] == list(DIAGNOSED_RESOURCES.values())
    assert all(absent.unknown for absent in report.not_read)
    assert report.objects == {}


def test_waiting_pods_are_one_finding_with_their_workloads() -> None:
    replicas = api_object("ReplicaSet", "web-1", "ml", metadata={"ownerReferences": [reference("Deployment", "web")]})
    requests = {"nvidia.com/mig-1g.10gb": 1}
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb."
    objects = cluster(
        node("gpu", {GPU: 8}),
        replicas,
        *(pod(f"train-{n}", requests, owner=("PyTorchJob", "train"), message=message * n) for n in range(4)),
        *(pod(f"web-1-{n}", requests, owner=("ReplicaSet", "web-1")) for n in range(2)),
        pod("alone", requests),
        pod("last", requests, owner=("Job", "last"), metadata={"creationTimestamp": ago(hours=9)}),
        pod("static", requests, owner=("Node", "gpu")),
    )

    report = doctor(objects, (), None, Scope())

    (group,) = report.findings
    assert [title for each in group.affected for title in each.titles] == [
        "Pod ml/alone",
        "Pod ml/static",
        "Pod ml/last",
        "4 pods of PyTorchJob ml/train",
        "2 pods of Deployment ml/web",
    ]
    assert (report.pending_pods, group.since) == (9, NOW - timedelta(hours=9))
