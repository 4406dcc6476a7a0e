"""Findings that say the same of several objects are one."""

from dataclasses import replace

import pytest

from rules_engine.diagnosis.grouping import group_findings
from rules_engine.diagnosis.values import FindingGroup
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Remedy, Risk


def finding(name: str = "worker-1", **fields: object) -> Finding:
    default = Finding(
        reason="MIGLayoutNotApplied",
        severity=FindingSeverity.ERROR,
        object=ObjectName("Node", name),
        message=f"node {name} has no MIG devices",
        evidence=(f"{name}: nvidia.com/mig.config.state=failed",),
        remedies=(Remedy(text=f"Drain {name}.", command=f"kubectl drain {name}", risk=Risk.HIGH),),
    )
    return replace(default, **fields)  # type: ignore[arg-type]


def groups(*findings: Finding) -> tuple[FindingGroup, ...]:
    return group_findings((each, (each.object,)) for each in findings)


def test_findings_that_differ_in_names_only_are_one_group() -> None:
    (group,) = groups(finding("worker-10"), finding("worker-2"), finding("worker-1"))

    assert group.finding == finding("worker-1")
    assert [name.name for name in group.objects] == ["worker-1", "worker-10", "worker-2"]


@pytest.mark.parametrize(
    "other",
    [
        finding("worker-2", severity=FindingSeverity.WARNING),
        finding("worker-2", certainty=Certainty.POSSIBLE),
        finding("worker-2", reason="Other"),
        finding("worker-2", source="Diagnostic/mine"),
        finding("worker-2", object=ObjectName("Pod", "worker-2", "ml")),
        finding("worker-2", message="node worker-2 has 3 MIG devices"),
        finding("worker-2", message="node worker-1 has no MIG devices"),
        finding("worker-2", cause="another"),
        finding("worker-2", evidence=()),
        finding("worker-2", remedies=()),
        finding("worker-2", on_host=True),
    ],
)
def test_different_findings_are_not_grouped(other: Finding) -> None:
    assert len(groups(finding("worker-1"), other)) == 2


def crash_looping(number: int, **fields: object) -> Finding:
    """Return a finding of a Diagnostic, with the plugin's pod of the node."""
    log = Remedy(text="Read the log.", command=f"kubectl logs plugin-{number}")
    fields = {"message": "the device plugin crash-loops", "remedies": (log,), **fields}
    return finding(f"worker-{number}", source="Diagnostic/mine", evidence=(f"Pod/gpu/plugin-{number}",), **fields)


def test_findings_of_a_diagnostic_are_one_group_if_their_messages_are_equal() -> None:
    (group,) = groups(crash_looping(2), crash_looping(1))

    assert group.finding == crash_looping(1)
    assert len(group.objects) == 2


@pytest.mark.parametrize(
    "other",
    [
        crash_looping(2, message="the device plugin waits"),
        crash_looping(2, cause="another"),
        crash_looping(2, remedies=(Remedy(text="Read another log."),)),
        crash_looping(2, remedies=(Remedy(text="Read the log.", risk=Risk.HIGH),)),
        crash_looping(2, on_host=True),
    ],
)
def test_different_findings_of_a_diagnostic_are_not_grouped(other: Finding) -> None:
    assert len(groups(crash_looping(1), other)) == 2


def test_findings_that_differ_in_the_names_of_nodes_are_one_group() -> None:
    refused = [
        finding(f"pod-{n}", message=f"node-{n} refused the pod", evidence=(f"on node-{n}",), remedies=())
        for n in (1, 2)
    ]
    findings = [(each, (each.object,)) for each in refused]

    assert len(group_findings(findings)) == 2
    assert len(group_findings(findings, {"node-1", "node-2"})) == 1


def test_a_name_inside_a_longer_word_is_not_replaced() -> None:
    first = finding("gpu", message="gpu offers nvidia.com/gpu-a", evidence=(), remedies=())
    second = finding("cpu", message="cpu offers nvidia.com/cpu-a", evidence=(), remedies=())

    assert len(groups(first, second)) == 2


def test_a_finding_about_several_objects_keeps_them_all() -> None:
    names = tuple(ObjectName("Pod", f"p-{n}", "ml") for n in range(3))

    (group,) = group_findings([(finding("p-0", object=names[0]), names)])

    assert group.objects == names


def reasons(*findings: Finding) -> list[tuple[str, list[str]]]:
    """Return the reason of each group, with those of its effects."""
    return [(group.finding.reason, [effect.reason for effect in group.effects]) for group in groups(*findings)]


XID = finding(reason="XidError", message="Xid 79", evidence=(), remedies=())
CRASHING = finding(reason="CrashLooping", caused_by=("XidError",))
LOST = replace(XID, reason="NoDevices", caused_by=("XidError", "CrashLooping"))


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
        replace(XID, caused_by=("NoDevices",)),
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

    assert [(group.finding.severity, group.finding.certainty, len(group.objects)) for group in order] == [
        (FindingSeverity.ERROR, Certainty.CERTAIN, 2),
        (FindingSeverity.ERROR, Certainty.CERTAIN, 1),
        (FindingSeverity.ERROR, Certainty.POSSIBLE, 1),
        (FindingSeverity.WARNING, Certainty.CERTAIN, 1),
        (FindingSeverity.INFO, Certainty.CERTAIN, 1),
    ]
