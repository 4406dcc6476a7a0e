"""Reports of a diagnosis, made by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import asdict, replace

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, NotEvaluated, Remedy, Risk
from rules_engine.questions.doctor.scope import Scope
from rules_engine.questions.doctor.values import (
    Affected,
    Amounts,
    DevicePlugin,
    Diagnosis,
    FindingCounts,
    FindingGroup,
    GpuNode,
    GpuPod,
    RecentError,
    UnreadKind,
    UnreadyPod,
)

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
TEN = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
CARD = "NVIDIA-H100-80GB-HBM3"


def pod_name(name: str, namespace: str = "ml") -> ObjectName:
    return ObjectName("Pod", name, namespace)


def reported_node(name: str, allocated: int | None = 6, **fields: Any) -> GpuNode:
    """A ready node with eight cards."""
    amounts = reported_amounts(8, 8, allocated)
    node = GpuNode(name=name, product=CARD, ready=True, cordoned=False, resources={"nvidia.com/gpu": amounts})
    return replace(node, **fields)


def reported_finding(**fields: Any) -> Finding:
    """An error that a Diagnostic found, with everything that a finding can have."""
    found = Finding(
        reason="MIGLayoutNotApplied",
        severity=FindingSeverity.ERROR,
        object=ObjectName("Node", "worker-2"),
        message="node worker-2 has no MIG devices",
        cause="The MIG manager failed.",
        evidence=("nvidia.com/mig.config.state=failed",),
        remedies=(
            Remedy(
                text="Read the log of the MIG manager.", command="kubectl logs -n gpu-operator ds/nvidia-mig-manager"
            ),
            Remedy(
                text="Apply the layout again.",
                command="kubectl drain worker-2\nkubectl label node worker-2 a=b",
                risk=Risk.HIGH,
            ),
        ),
        on_host=True,
        diagnostic="Diagnostic/mig-layout",
        source=Location("rules/mig.yaml", 3, 1),
    )
    return replace(found, **fields)


def reported_amounts(capacity: int | None, allocatable: int, allocated: int | None) -> Amounts:
    free = None if allocated is None else allocatable - allocated
    return Amounts(capacity=capacity, allocatable=allocatable, allocated=allocated, free=free)


def group(finding: Finding, objects: Sequence[ObjectName] = (), owner: ObjectName | None = None) -> FindingGroup:
    affected = Affected(owner=owner, objects=tuple(objects) or (finding.object,))
    return FindingGroup(**asdict(finding), affected=(affected,))


ALLOCATED = Finding(
    reason="GPUsAllocated",
    severity=FindingSeverity.ERROR,
    object=pod_name("train-0"),
    message="all 16 nvidia.com/gpu are allocated",
    certainty=Certainty.POSSIBLE,
    since=TEN,
)


def empty_report(**fields: Any) -> Diagnosis:
    """A report about a cluster without GPUs."""
    report = Diagnosis(
        time=NOW,
        scope=Scope(),
        objects={"nodes": 1, "pods": 0},
        not_read=(),
        counts=FindingCounts(error=0, warning=0, info=0, possible=0),
        pending_pods=0,
        findings=(),
        nodes=(),
        device_plugins=(),
        pods=(),
        errors=(),
        not_evaluated=(),
    )
    return replace(report, **fields)


def whole_report(**fields: Any) -> Diagnosis:
    """A report that has something in every section."""
    waiting = tuple(pod_name(f"train-{n}") for n in range(7))
    report = empty_report(
        objects={"nodes": 3, "pods": 1200},
        counts=FindingCounts(error=2, warning=0, info=1, possible=1),
        pending_pods=7,
        nodes=(
            reported_node("worker-1"),
            reported_node(
                "worker-2",
                ready=False,
                cordoned=True,
                resources={
                    "nvidia.com/gpu": reported_amounts(8, 7, 8),
                    "nvidia.com/mig-1g.10gb": reported_amounts(14, 14, 0),
                },
            ),
            reported_node("worker-3", product="", resources={}),
        ),
        device_plugins=(
            DevicePlugin(
                name=ObjectName("DaemonSet", "nvidia-device-plugin-daemonset", "gpu-operator"),
                desired=3,
                ready=2,
                unready=(
                    UnreadyPod(name=pod_name("plugin-x", "gpu-operator"), node="worker-3", status="CrashLoopBackOff"),
                ),
            ),
        ),
        pods=(
            GpuPod(name=pod_name("a"), node="worker-1", status="Running", amounts={"nvidia.com/gpu": 4}, since=TEN),
            GpuPod(name=pod_name("b"), node="worker-1", status="Running", amounts={"nvidia.com/gpu": 2}, since=None),
            GpuPod(name=pod_name("c"), node="worker-2", status="Terminating", amounts={"nvidia.com/gpu": 8}, since=TEN),
        ),
        errors=(
            RecentError(
                affected=(Affected(owner=None, objects=(ObjectName("Node", "worker-3"),)),),
                reason="XidError",
                message="Xid 79",
                count=3,
                at=TEN,
            ),
            RecentError(
                affected=(Affected(owner=None, objects=waiting),),
                reason="FailedScheduling",
                message="0/3 nodes",
                count=7,
                at=None,
            ),
        ),
        findings=(
            group(reported_finding()),
            group(ALLOCATED, waiting, ObjectName("Job", "train", "ml")),
            group(
                Finding(
                    reason="TimeSlicing",
                    severity=FindingSeverity.INFO,
                    object=ObjectName("Cluster", ""),
                    message="two pods share a card",
                )
            ),
        ),
        not_evaluated=(
            NotEvaluated(diagnostic="Diagnostic/costly", why="over the budget", objects=12, first=pod_name("a")),
            NotEvaluated(diagnostic="Diagnostic/jobs", why="jobs were not read", unread=True, objects=0),
        ),
        not_read=(UnreadKind(objects="jobs", unknown="which Jobs lack pods"),),
        rules="rules",
    )
    return replace(report, **fields)
