"""Groups of equal findings about several objects, with the effects of the findings."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from rules_engine.diagnosis.values import FindingGroup
from rules_engine.diagnosis.wording import without_names
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity

_SEVERITIES = {severity: rank for rank, severity in enumerate(FindingSeverity)}
_CERTAINTIES = {certainty: rank for rank, certainty in enumerate(Certainty)}


def group_findings(
    findings: Iterable[tuple[Finding, Sequence[ObjectName]]], nodes: Container[str] = ()
) -> tuple[FindingGroup, ...]:
    """Group findings, each given with all its objects; a group has a cause with its effects.

    The worst groups are first, then groups of objects without a namespace, such as nodes, since pods depend on them,
    then the largest groups.

    Findings are equal if they differ only in the names of their objects and of nodes. Equal findings of a Diagnostic
    may also differ in evidence and commands, which name related objects, such as the plugin's pod on a node. `nodes`:
    the names of all nodes.
    """
    groups: dict[tuple[object, ...], list[FindingGroup]] = {}
    for group in _with_effects(findings):
        groups.setdefault(tuple(_group_key(each, nodes) for each in (group.finding, *group.effects)), []).append(group)
    return tuple(sorted(map(_merge_groups, groups.values()), key=_worst_first))


def _with_effects(findings: Iterable[tuple[Finding, Sequence[ObjectName]]]) -> Iterator[FindingGroup]:
    """Yield each finding that no other finding about its object causes, with its effects, which are not worse."""
    by_object: dict[ObjectName, list[tuple[Finding, Sequence[ObjectName]]]] = {}
    for finding, objects in findings:
        by_object.setdefault(finding.object, []).append((finding, objects))
    for object_findings in by_object.values():
        about = [finding for finding, _ in object_findings]
        roots = [finding for finding in about if not any(_causes(other, finding) for other in about)]
        causes = {finding: next((root for root in roots if _causes(root, finding)), None) for finding in about}
        for finding, objects in object_findings:
            if causes[finding] is None:
                effects = tuple(effect for effect, cause in causes.items() if cause == finding)
                yield FindingGroup(finding=finding, objects=tuple(objects), effects=effects)


def _causes(finding: Finding, effect: Finding) -> bool:
    # An error is never an effect of a warning: the group would have the severity of the warning and hide the error.
    return finding.reason in effect.caused_by and _severity_rank(finding) <= _severity_rank(effect)


def _group_key(finding: Finding, nodes: Container[str]) -> tuple[object, ...]:
    about = finding.object

    def normalize(text: str) -> str:
        return without_names(text, about, nodes)

    built_in = not finding.source
    return (
        finding.severity,
        finding.certainty,
        finding.reason,
        finding.source,
        about.kind,
        normalize(finding.message),
        normalize(finding.cause),
        tuple(map(normalize, finding.evidence)) if built_in else (),
        tuple(
            (normalize(remedy.text), normalize(remedy.command) if built_in else "", remedy.risk)
            for remedy in finding.remedies
        ),
        finding.on_host,
    )


def _merge_groups(groups: Sequence[FindingGroup]) -> FindingGroup:
    first = min(groups, key=lambda group: group.finding.object)
    return replace(first, objects=tuple(sorted({name for group in groups for name in group.objects})))


def _severity_rank(finding: Finding) -> tuple[int, int]:
    return _SEVERITIES[finding.severity], _CERTAINTIES[finding.certainty]


def _worst_first(group: FindingGroup) -> tuple[int, int, bool, int, str, ObjectName]:
    finding = group.finding
    return *_severity_rank(finding), finding.object.namespace != "", -len(group.objects), finding.reason, finding.object
