"""Findings that say the same of several objects are one."""

from collections.abc import Container
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Remedy, Risk
from rules_engine.questions.doctor.grouping import FindingGrouping
from rules_engine.questions.doctor.values import FindingGroup


def finding(name: str = "worker-1", **fields: Any) -> Finding:
    default = Finding(
        reason="MIGLayoutNotApplied",
        severity=FindingSeverity.ERROR,
        object=ObjectName("Node", name),
        message=f"node {name} has no MIG devices",
        evidence=(f"{name}: nvidia.com/mig.config.state=failed",),
        remedies=(Remedy(text=f"Drain {name}.", command=f"kubectl drain {name}", risk=Risk.HIGH),),
    )
    return replace(default, **fields)


CAUSED_BY = {
    "Diagnostic/crashing": ("XidError",),
    "Diagnostic/lost": ("XidError", "CrashLooping"),
    "Diagnostic/circle": ("NoDevices",),
}


def groups(*findings: Finding, nodes: Container[str] = ()) -> tuple[FindingGroup, ...]:
    return FindingGrouping(nodes, CAUSED_BY, job_of).group(findings)


def job_of(name: ObjectName) -> ObjectName | None:
    """Return Job x for Pod x-0."""
    return ObjectName("Job", name.name[:-2], name.namespace) if name.kind == "Pod" else None


def is_about(group: FindingGroup, finding: Finding) -> bool:
    return asdict(finding).items() <= asdict(group).items()


def test_findings_that_differ_in_names_only_are_one_group() -> None:
    (group,) = groups(finding("worker-10"), finding("worker-2"), finding("worker-1"))

    assert is_about(group, finding("worker-1"))
    assert [name.name for name in group.objects] == ["worker-1", "worker-10", "worker-2"]


@pytest.mark.parametrize(
    "other",
    [
        finding("worker-2", severity=FindingSeverity.WARNING),
        finding("worker-2", certainty=Certainty.POSSIBLE),
        finding("worker-2", reason="Other"),
        finding("worker-2", diagnostic="Diagnostic/mine"),
        finding("worker-2", object=ObjectName("Pod", "worker-2", "ml")),
        finding("worker-2", message="node worker-2 has 3 MIG devices"),
        finding("worker-2", message="node worker-1 has no MIG devices"),
        finding("worker-2", cause="another"),
        finding("worker-2", remedies=()),
        finding("worker-2", on_host=True),
    ],
)
def test_different_findings_are_not_grouped(other: Finding) -> None:
    assert len(groups(finding("worker-1"), other)) == 2


def test_evidence_and_commands_may_differ() -> None:
    logs = [
        finding(
            f"worker-{number}",
            message="the device plugin crash-loops",
            evidence=(f"Pod/gpu/plugin-{number}",),
            remedies=(Remedy(text="Read the log.", command=f"kubectl logs plugin-{number}"),),
        )
        for number in (2, 1)
    ]
    (group,) = groups(*logs)

    assert is_about(group, logs[1])
    assert len(group.objects) == 2


def test_findings_that_differ_in_the_names_of_nodes_are_one_group() -> None:
    refused = [
        finding(f"pod-{n}", message=f"node-{n} refused the pod", evidence=(f"on node-{n}",), remedies=())
        for n in (1, 2)
    ]
    assert len(groups(*refused)) == 2
    assert len(groups(*refused, nodes={"node-1", "node-2"})) == 1


def waiting(name: str, message: str = "no room", **fields: Any) -> Finding:
    return finding(name, object=ObjectName("Pod", name, "ml"), message=message, evidence=(), remedies=(), **fields)


@pytest.mark.parametrize("claim", ["data-{}", "{}-scratch", "{}-gpu-x7k2p"])
def test_pods_that_wait_for_claims_of_their_own_are_one_group(claim: str) -> None:
    assert len(groups(*(waiting(name, f"{claim.format(name)} is not bound") for name in ("train-0", "train-1")))) == 1
    assert len(groups(waiting("train-0", "data is not bound"), waiting("train-1", "models is not bound"))) == 2


def test_findings_with_equal_texts_are_one_group_whatever_their_names() -> None:
    assert len(groups(*(waiting(name, "there is a node without room") for name in ("a", "b")))) == 1


def test_pods_of_a_group_are_listed_by_owner() -> None:
    names = ("train-0", "eval-0", "train-1", "train-2")
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (3, 2, 4, 5)]
    (group,) = groups(*(waiting(name, since=at) for name, at in zip(names, times, strict=True)))

    assert [title for each in group.affected for title in each.titles] == ["Pod ml/eval-0", "3 pods of Job ml/train"]
    assert (group.object.name, group.since) == ("eval-0", times[1])


def test_a_name_inside_a_longer_word_is_not_replaced() -> None:
    first = finding("gpu", message="gpu offers nvidia.com/gpu-a", evidence=(), remedies=())
    second = finding("cpu", message="cpu offers nvidia.com/cpu-a", evidence=(), remedies=())

    assert len(groups(first, second)) == 2


def reasons(*findings: Finding) -> list[tuple[str, list[str]]]:
    """Return the reason of each group, with those of its effects."""
    return [(group.reason, [effect.reason for effect in group.effects]) for group in groups(*findings)]


XID = finding(reason="XidError", message="Xid 79", evidence=(), remedies=())
CRASHING = finding(reason="CrashLooping", diagnostic="Diagnostic/crashing")
LOST = replace(XID, reason="NoDevices", diagnostic="Diagnostic/lost")


def test_effects_are_with_their_cause_on_the_same_object() -> None:
    assert reasons(LOST, CRASHING, XID) == [("XidError", ["NoDevices", "CrashLooping"])]
    assert reasons(LOST, CRASHING) == [("CrashLooping", ["NoDevices"])]
    assert reasons(LOST, finding("worker-2", reason="XidError")) == [("NoDevices", []), ("XidError", [])]


def test_nodes_with_the_same_cause_and_effects_are_one_group() -> None:
    others = [replace(each, object=ObjectName("Node", f"worker-{n}")) for n in (2, 3) for each in (XID, LOST)]
    group, alone = groups(XID, LOST, *others, replace(XID, object=ObjectName("Node", "worker-4")))

    assert (len(group.objects), [effect.reason for effect in group.effects]) == (3, ["NoDevices"])
    assert alone.effects == ()


@pytest.mark.parametrize(
    "cause",
    [
        replace(XID, severity=FindingSeverity.WARNING),
        replace(XID, certainty=Certainty.POSSIBLE),
        replace(XID, diagnostic="Diagnostic/circle"),
    ],
    ids=["less severe", "less certain", "in a circle"],
)
def test_a_finding_is_no_effect_of_a_lesser_one_or_of_its_own(cause: Finding) -> None:
    assert sorted(reasons(cause, LOST)) == [("NoDevices", []), ("XidError", [])]


def test_nodes_come_before_the_pods_that_depend_on_them() -> None:
    pods = [finding(name, reason="Waiting", object=ObjectName("Pod", name, "ml")) for name in ("a", "b")]

    assert [reason for reason, _ in reasons(*pods, XID)] == ["XidError", "Waiting"]


def test_the_worst_findings_are_first_and_then_the_largest_groups() -> None:
    info = finding(severity=FindingSeverity.INFO)
    possible = finding(certainty=Certainty.POSSIBLE)
    many = [finding(name, reason="Many") for name in ("a", "b")]

    order = groups(info, finding(severity=FindingSeverity.WARNING), possible, finding(), *many)

    assert [(group.severity, group.certainty, len(group.objects)) for group in order] == [
        (FindingSeverity.ERROR, Certainty.CERTAIN, 2),
        (FindingSeverity.ERROR, Certainty.CERTAIN, 1),
        (FindingSeverity.ERROR, Certainty.POSSIBLE, 1),
        (FindingSeverity.WARNING, Certainty.CERTAIN, 1),
        (FindingSeverity.INFO, Certainty.CERTAIN, 1),
    ]
