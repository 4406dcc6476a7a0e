"""GPU pods that a node refused: a recorded cluster for each reason, and near misses."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity
from rules_engine.questions.doctor.reasons import RefusedReason
from rules_engine.questions.doctor.refused import find_refused
from tests.support.api import GPU, NOW, Object, ago, cluster, node, pod
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
BROKEN = f"{REJECTED}Allocate failed due to rpc error: code = Unavailable desc = error reading from server: EOF"
OWNED: Object = {"ownerReferences": [{"kind": "Job", "name": "train", "controller": True}]}


def rejected(reason: str, message: str, requests: Mapping[str, int] | None = None, **metadata: Any) -> Object:
    status = {"phase": "Failed", "reason": reason, "message": message}
    return pod("p", {GPU: 2} if requests is None else requests, on="a", status=status, metadata=metadata)


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
    (finding,) = findings_of(node("a", {GPU: 8}), rejected(reason, message))
    assert (finding.reason, finding.message) == (expected, said)
    assert (finding.severity, finding.certainty) == (FindingSeverity.ERROR, Certainty.CERTAIN)
    assert finding.evidence == tuple(filter(None, (f"{reason} on node a", message)))
    assert finding.remedies[-1].command == "kubectl describe node a"
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
