"""Parts of sentences in reports for people: counts, times, amounts and names."""

from collections.abc import Mapping
from datetime import datetime

from rules_engine.diagnosis.report import Agreement, FindingGroup, PendingPod, Report
from rules_engine.diagnosis.wording import time
from rules_engine.model.finding import Certainty, Finding, FindingSeverity
from rules_engine.model.wording import counted

AGREEMENTS: Mapping[Agreement, str] = {
    Agreement.AGREES: "agrees with the recorded message",
    Agreement.DIFFERS: "differs from the recorded message",
    Agreement.NOT_RECORDED: "no message is recorded",
    Agreement.NOT_COMPARABLE: "cannot be compared with the recorded message",
}
"""The comparison of the recomputed message with the recorded one."""

HOST = "The Kubernetes API does not show the cause: these commands look on the node itself."
"""The sentence of a finding whose cause only the node shows."""


def since(at: datetime | None) -> str:
    """Return a clause such as ", since 2026-11-23T10:00:00Z"; "" if the time is not known."""
    return "" if at is None else f", since {time(at)}"


def amounts(of: Mapping[str, int]) -> str:
    """Return amounts by resource in a line."""
    return ", ".join(f"{amount:,} × {resource}" for resource, amount in of.items()) or "resource claims"


def evidence(group: FindingGroup) -> str:
    """Return the title of a group's evidence: of several objects, it is that of one."""
    return f"evidence of {group.finding.object}" if len(group.objects) > 1 else "evidence"


def comparison(pending: PendingPod) -> str:
    """Return the comparison of the two messages of the scheduler, with its note."""
    return f"{AGREEMENTS[pending.agreement]}{f': {pending.note}' if pending.note else ''}"


def effects(group: FindingGroup) -> str:
    """Return the effects of a finding in a line."""
    return "; ".join(f"{finding.reason} ({finding.message})" for finding in group.effects)


def severity(finding: Finding) -> str:
    """Return the severity of a finding; one that the objects do not prove is possible."""
    return finding.severity.value + (", possible" if finding.certainty is Certainty.POSSIBLE else "")


def totals(report: Report) -> str:
    """Return the number of findings by severity, and of those that are possible."""
    found = [group.finding for group in report.findings]
    parts = [
        counted(number, noun)
        for level, noun in (
            (FindingSeverity.ERROR, "error"),
            (FindingSeverity.WARNING, "warning"),
            (FindingSeverity.INFO, "note"),
        )
        if (number := sum(finding.severity is level for finding in found))
    ]
    possible = sum(finding.certainty is Certainty.POSSIBLE for finding in found)
    return ", ".join(parts) + (f" ({possible:,} possible)" if possible else "")


def read(report: Report) -> str:
    """Return the number of objects of each kind that were read."""
    return ", ".join(f"{objects} {number:,}" for objects, number in report.objects.items())


def limits(report: Report) -> str:
    """Return what the report is limited to; "" if it is about the whole cluster."""
    scope = report.scope
    parts = [
        *([] if scope.pod is None else [f"pod {scope.pod.namespace}/{scope.pod.name}"]),
        *([f"node {scope.node}"] if scope.node else []),
        *([f"namespace {scope.namespace}"] if scope.namespace else []),
    ]
    return ", ".join(parts)
