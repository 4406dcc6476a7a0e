"""Findings that say the same of several objects, as one."""

from collections.abc import Container, Iterable, Sequence

from rules_engine.diagnosis.names_in_text import without_names
from rules_engine.diagnosis.report import FindingGroup
from rules_engine.model.finding import Certainty, Finding, FindingSeverity, ObjectName

_SEVERITIES = {severity: rank for rank, severity in enumerate(FindingSeverity)}
_CERTAINTIES = {certainty: rank for rank, certainty in enumerate(Certainty)}


def grouped(
    findings: Iterable[tuple[Finding, Sequence[ObjectName]]], nodes: Container[str] = ()
) -> tuple[FindingGroup, ...]:
    """Return findings, each with all objects that it is about, as groups: the worst first, then the largest.

    Two findings say the same if they differ in the names of their objects and of nodes only. Those of a Diagnostic may
    have other evidence and commands, too: these name objects around each object, such as the plugin's pod on a node.
    `nodes`: the names of all nodes.
    """
    groups: dict[tuple[object, ...], list[tuple[Finding, Sequence[ObjectName]]]] = {}
    for finding, objects in findings:
        groups.setdefault(_key(finding, nodes), []).append((finding, objects))
    return tuple(sorted(map(_group, groups.values()), key=_worst_first))


def _key(finding: Finding, nodes: Container[str]) -> tuple[object, ...]:
    about = finding.object

    def said(text: str) -> str:
        return without_names(text, about, nodes)

    built_in = not finding.source
    return (
        finding.severity,
        finding.certainty,
        finding.reason,
        finding.source,
        about.kind,
        said(finding.message),
        said(finding.cause),
        tuple(map(said, finding.evidence)) if built_in else (),
        tuple(
            (said(remedy.text), said(remedy.command) if built_in else "", remedy.risk) for remedy in finding.remedies
        ),
        finding.on_host,
    )


def _group(found: Sequence[tuple[Finding, Sequence[ObjectName]]]) -> FindingGroup:
    first, _ = min(found, key=lambda each: each[0].object)
    return FindingGroup(finding=first, objects=tuple(sorted({name for _, objects in found for name in objects})))


def _worst_first(group: FindingGroup) -> tuple[int, int, int, str, ObjectName]:
    found = group.finding
    return _SEVERITIES[found.severity], _CERTAINTIES[found.certainty], -len(group.objects), found.reason, found.object
