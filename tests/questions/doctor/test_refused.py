"""GPU pods that a node refused: a recorded cluster for each reason, and near misses."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Risk
from rules_engine.questions.doctor.reasons import RefusedReason
from rules_engine.questions.doctor.refused import find_refused
from tests.support.api import GPU, NOW, Object, ago, by_kind, cluster, node, pod
from tests.support.remedies import has_its_risk

SINCE = NOW - timedelta(hours=1)
REJECTED = "Pod was rejected: "
SHARED = (
    f"{REJECTED}Allocate failed due to rpc error: code = Unknown desc = request for 'nvidia.com/gpu: 2' too large: "
    "maximum request size for shared resources is 1; found 2, which is unexpected"
)
UNAVAILABLE = (
    f"{REJECTED}Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 2, "
    "Available: 1, which is unexpected"
)
TOPOLOGY = f"{REJECTED}Resources cannot be allocated with Topology locality"
OUT_OF = f"{REJECTED}Node didn't have enough resource: nvidia.com/gpu, requested: 2, used: 7, capacity: 8"
NO_CAPACITY = f"{REJECTED}Node didn't have enough resource: {GPU}, requested: 2, used: 0, capacity: 0"
UNHEALTHY = (
    f"{REJECTED}Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {GPU}, which is "
    "unexpected"
)
UNREGISTERED = f"{REJECTED}Allocate failed due to cannot allocate unregistered device {GPU}, which is unexpected"
BROKEN = f"{REJECTED}Allocate failed due to rpc error: code = Unavailable desc = error reading from server: EOF"
OWNED: Object = {"ownerReferences": [{"kind": "Job", "name": "train", "controller": True}]}


def rejected(reason: str, message: str, requests: Mapping[str, int] | None = None, **metadata: Any) -> Object:
    status = {"phase": "Failed", "reason": reason, "message": message}
    return pod("p", {GPU: 2} if requests is None else requests, on="a", status=status, metadata=metadata)


def unavailable(**of_pod: Any) -> Object:
    """Return a pod that a node refused half an hour ago, as the kubelet writes it: without conditions."""
    return rejected("UnexpectedAdmissionError", UNAVAILABLE) | {
        "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": UNAVAILABLE, **of_pod}
    }


def holder(name: str, gpus: int, bound: str, ended: str = "") -> Object:
    """Return a pod on the node, which succeeded at a time, if any."""
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound},
        {"type": "Ready", "status": "False", "lastTransitionTime": ended},
    ]
    status = {"phase": "Succeeded" if ended else "Running", "conditions": conditions}
    return pod(name, {GPU: gpus}, on="a", statuses=[{"name": "main"}], status=status)


def findings_of(*objects: Object) -> tuple[Finding, ...]:
    return find_refused(cluster(*objects), SINCE)


REASONS = {
    "two shared GPUs": (
        "UnexpectedAdmissionError",
        SHARED,
        RefusedReason.SHARED_GPUS,
        f"the pod requests 2 {GPU}, but a container gets at most 1 where GPUs are shared",
    ),
    "no alignment": (
        "TopologyAffinityError",
        TOPOLOGY,
        RefusedReason.TOPOLOGY,
        f"the node cannot align 2 {GPU} with the other resources of the pod on its NUMA nodes",
    ),
    "no alignment, by a kubelet that reports it as unexpected": (
        "UnexpectedAdmissionError",
        TOPOLOGY,
        RefusedReason.TOPOLOGY,
        f"the node cannot align 2 {GPU} with the other resources of the pod on its NUMA nodes",
    ),
    "devices are unavailable": (
        "UnexpectedAdmissionError",
        UNAVAILABLE,
        RefusedReason.DEVICES_UNAVAILABLE,
        f"the node has too little {GPU} left for the pod",
    ),
    "devices are in use": (
        "OutOfnvidia.com/gpu",
        OUT_OF,
        RefusedReason.DEVICES_UNAVAILABLE,
        f"the node has too little {GPU} left for the pod",
    ),
    "no device is registered": (
        "OutOfnvidia.com/gpu",
        NO_CAPACITY,
        RefusedReason.DEVICES_UNAVAILABLE,
        f"the node had no healthy {GPU} yet when it refused the pod",
    ),
    "no device is healthy": (
        "UnexpectedAdmissionError",
        UNHEALTHY,
        RefusedReason.DEVICES_UNAVAILABLE,
        f"the node had no healthy {GPU} yet when it refused the pod",
    ),
    "the resource is not registered": (
        "UnexpectedAdmissionError",
        UNREGISTERED,
        RefusedReason.DEVICES_UNAVAILABLE,
        f"the node had no healthy {GPU} yet when it refused the pod",
    ),
    "no other resource": (
        "OutOfexample.com/disk",
        "Node didn't have enough resource: example.com/disk, requested: 1, used: 0, capacity: 0",
        RefusedReason.OTHER,
        "the node has too little example.com/disk left for the pod",
    ),
    "too few devices that are no GPUs": (
        "UnexpectedAdmissionError",
        UNAVAILABLE.replace(GPU, "example.com/disk"),
        RefusedReason.OTHER,
        "the node refused the pod",
    ),
    "another resource is in use": (
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 8000, used: 60000, capacity: 64000",
        RefusedReason.OTHER,
        "the node has too little cpu left for the pod",
    ),
    "the device plugin fails": ("UnexpectedAdmissionError", BROKEN, RefusedReason.OTHER, "the node refused the pod"),
    "no message": ("UnexpectedAdmissionError", "", RefusedReason.OTHER, "the node refused the pod"),
}


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_why_a_node_refused_a_pod(name: str) -> None:
    reason, message, expected, said = REASONS[name]
    (finding,) = findings_of(node("a", {GPU: 1}), rejected(reason, message))
    assert (finding.reason, finding.message) == (expected, said)
    assert (finding.severity, finding.certainty) == (FindingSeverity.ERROR, Certainty.CERTAIN)
    assert finding.evidence == tuple(filter(None, (f"{reason} on node a", message)))
    assert finding.remedies[-1].command == "kubectl describe node a"
    assert not finding.on_host
    assert all(map(has_its_risk, finding.remedies))


def test_every_reason_has_a_recorded_cluster() -> None:
    assert {expected for _, _, expected, _ in REASONS.values()} == set(RefusedReason)


def test_the_labels_of_sharing_are_evidence() -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
    (finding,) = findings_of(node("a", {GPU: 8}, labels=labels), rejected("UnexpectedAdmissionError", SHARED))
    assert finding.evidence[2:] == (
        "nvidia.com/gpu.sharing-strategy=time-slicing on node a",
        "nvidia.com/gpu.replicas=4 on node a",
    )


def test_the_node_may_be_gone() -> None:
    (finding,) = findings_of(rejected("UnexpectedAdmissionError", SHARED))
    assert len(finding.evidence) == 2


@pytest.mark.parametrize(
    "other",
    [
        rejected("UnexpectedAdmissionError", SHARED, {"cpu": 1}),
        rejected("Evicted", "The node was low on resource: memory."),
        rejected("", ""),
        pod("p", {GPU: 2}, on="a", status={"phase": "Running", "reason": "UnexpectedAdmissionError"}),
        rejected("UnexpectedAdmissionError", SHARED, **OWNED, creationTimestamp=ago(hours=2)),
    ],
    ids=["without GPUs", "evicted", "failed by itself", "running", "replaced by its controller"],
)
def test_near_misses(other: Object) -> None:
    assert findings_of(node("a", {GPU: 8}), other) == ()


@pytest.mark.parametrize(
    "metadata",
    [
        {"creationTimestamp": ago(hours=9)},
        {**OWNED, "creationTimestamp": ago(minutes=9)},
        {**OWNED, "creationTimestamp": ""},
    ],
    ids=["without a controller", "recent", "of an unknown time"],
)
def test_pods_that_nobody_replaces_count_and_so_do_recent_ones(metadata: Object) -> None:
    assert len(findings_of(node("a"), rejected("UnexpectedAdmissionError", SHARED, **metadata))) == 1


class TestRecordOfAllocatedDevices:
    """Findings about devices that the kubelet calls unavailable, while the pods on the node leave them free."""

    def test_the_record_is_stale_if_no_pod_explains_it(self) -> None:
        (finding,) = findings_of(node("a", {GPU: 4}), unavailable(startTime=ago(minutes=30)))
        assert finding.reason == RefusedReason.DEVICES_UNAVAILABLE
        assert finding.cause.startswith("The kubelet's record of allocated devices is stale, unless ")
        assert (finding.certainty, finding.on_host) == (Certainty.POSSIBLE, True)
        assert finding.evidence == ("UnexpectedAdmissionError on node a", UNAVAILABLE)
        restart = finding.remedies[0]
        assert (restart.text, restart.risk) == ("Restart the kubelet, and create the pod again.", Risk.MEDIUM)
        assert restart.command.startswith("kubectl debug node/a ")
        assert restart.command.endswith(" systemctl restart kubelet")

    @pytest.mark.parametrize(
        "others",
        [
            [holder("b", 2, ago(hours=3))],
            [holder("b", 4, ago(hours=3), ended=ago(hours=1))],
            [unavailable(startTime=ago(minutes=20)) | {"metadata": {"name": "later", "namespace": "ml"}}],
            [pod("b", {GPU: 4, "cpu": 1}, on="elsewhere")],
            [pod("b", {"cpu": 1}, on="a")],
        ],
        ids=["leave enough", "ended before", "refused, too", "are on another node", "have no GPU"],
    )
    def test_the_record_is_stale_beside_pods_that(self, others: list[Object]) -> None:
        finding = findings_of(node("a", {GPU: 4}), unavailable(startTime=ago(minutes=30)), *others)[0]
        assert finding.on_host

    def test_the_pods_that_hold_the_devices_are_named(self) -> None:
        (finding,) = findings_of(
            node("a", {GPU: 4}), unavailable(startTime=ago(minutes=30)), holder("b", 3, ago(hours=3))
        )
        assert (finding.on_host, finding.certainty) == (False, Certainty.CERTAIN)
        assert finding.evidence == (
            "UnexpectedAdmissionError on node a",
            UNAVAILABLE,
            f"ml/b holds 3 {GPU} on a since 2026-11-23T09:00:00Z",
        )

    @pytest.mark.parametrize(
        "objects",
        [
            [unavailable(startTime=ago(minutes=30))],
            [node("a"), unavailable(startTime=ago(minutes=30))],
            [node("a", {GPU: 4}), unavailable()],
            [node("a", {GPU: 4}), unavailable(startTime=ago(minutes=30)), holder("b", 1, ago(minutes=20))],
            [
                node("a", {GPU: 4}),
                unavailable(startTime=ago(minutes=30)),
                holder("b", 1, ago(hours=3), ago(minutes=20)),
            ],
            [node("a", {GPU: 4}), unavailable(startTime=ago(minutes=30), message=UNAVAILABLE.replace(GPU, "rdma/hca"))],
            [node("a", {GPU: 4}), rejected("OutOfnvidia.com/gpu", OUT_OF)],
        ],
        ids=[
            "the node was not read",
            "the node offers none",
            "the time is unknown",
            "a pod got a device since",
            "a pod that had a device ended since",
            "the resource is not one of the pod",
            "the scheduler's count is exceeded, not the record",
        ],
    )
    def test_the_record_is_not_called_stale_if(self, objects: list[Object]) -> None:
        (finding,) = findings_of(*objects)
        assert finding.reason == RefusedReason.DEVICES_UNAVAILABLE
        assert (finding.on_host, finding.certainty) == (False, Certainty.CERTAIN)

    def test_pods_of_other_namespaces_may_hold_the_devices(self) -> None:
        objects = by_kind(node("a", {GPU: 4}), unavailable(startTime=ago(minutes=30)))
        (finding,) = find_refused(ClusterObjects(objects, partial={"Pod": "ml"}, now=NOW), SINCE)
        assert not finding.on_host
