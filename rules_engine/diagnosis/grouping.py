"""Findings that say the same of several objects, with their effects on these, as one."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from rules_engine.diagnosis.values import FindingGroup
from rules_engine.diagnosis.wording import without_names
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity

_SEVERITIES = {severity: rank for rank, severity in enumerate(FindingSeverity)}
_CERTAINTIES = {certainty: rank for rank, certainty in enumerate(Certainty)}


def grouped(
    findings: Iterable[tuple[Finding, Sequence[ObjectName]]], nodes: Container[str] = ()
) -> tuple[FindingGroup, ...]:
    """Return findings, each with all objects that it is about, as groups, causes with their effects.

    The worst are first, then those of objects without a namespace, such as nodes, which pods depend on, then the
    largest.

    Two findings say the same if they differ in the names of their objects and of nodes only. Those of a Diagnostic may
    have other evidence and commands, too: these name objects around each object, such as the plugin's pod on a node.
    `nodes`: the names of all nodes.
    """
    groups: dict[tuple[object, ...], list[FindingGroup]] = {}
    for group in _with_effects(findings):
        groups.setdefault(tuple(_key(each, nodes) for each in (group.finding, *group.effects)), []).append(group)
    return tuple(sorted(map(_together, groups.values()), key=_worst_first))


def _with_effects(findings: Iterable[tuple[Finding, Sequence[ObjectName]]]) -> Iterator[FindingGroup]:
    """Yield each finding that none about the same object causes, with its effects: findings that are not worse."""
    by_object: dict[ObjectName, list[tuple[Finding, Sequence[ObjectName]]]] = {}
    for finding, objects in findings:
        by_object.setdefault(finding.object, []).append((finding, objects))
    for found in by_object.values():
        about = [finding for finding, _ in found]
        roots = [finding for finding in about if not any(_causes(other, finding) for other in about)]
        causes = {finding: next((root for root in roots if _causes(root, finding)), None) for finding in about}
        for finding, objects in found:
            if causes[finding] is None:
                effects = tuple(effect for effect, cause in causes.items() if cause == finding)
                yield FindingGroup(finding=finding, objects=tuple(objects), effects=effects)


def _causes(finding: Finding, effect: Finding) -> bool:
    # An error is no effect of a warning, which would hide it.
    return finding.reason in effect.caused_by and _rank(finding) <= _rank(effect)


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


def _together(groups: Sequence[FindingGroup]) -> FindingGroup:
    first = min(groups, key=lambda group: group.finding.object)
    return replace(first, objects=tuple(sorted({name for group in groups for name in group.objects})))


def _rank(finding: Finding) -> tuple[int, int]:
    return _SEVERITIES[finding.severity], _CERTAINTIES[finding.certainty]


def _worst_first(group: FindingGroup) -> tuple[int, int, bool, int, str, ObjectName]:
    found = group.finding
    return *_rank(found), found.object.namespace != "", -len(group.objects), found.reason, found.object
