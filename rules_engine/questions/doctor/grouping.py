"""Groups of equal findings about several objects, with the effects of the findings."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import asdict, replace

from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity
from rules_engine.questions.doctor.values import FindingGroup, OwnerOf, affected_by_owner
from rules_engine.questions.doctor.wording import without_names

_SEVERITIES = {severity: rank for rank, severity in enumerate(FindingSeverity)}
_CERTAINTIES = {certainty: rank for rank, certainty in enumerate(Certainty)}

Caused = tuple[Finding, tuple[Finding, ...]]
"""A finding with its effects."""


class FindingGrouping:
    """Groups of findings that have the same cause.

    `nodes`: the names of all nodes. `caused_by`: by Diagnostic, reasons of other findings on the same object that cause
    its findings. `owner_of`: the workload of a pod.
    """

    def __init__(self, nodes: Container[str], caused_by: Mapping[str, Collection[str]], owner_of: OwnerOf) -> None:
        self._nodes = nodes
        self._caused_by = caused_by
        self._owner_of = owner_of

    def group(self, findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
        """Group findings; a group has a cause with its effects.

        The worst groups are first, then groups of objects without a namespace, such as nodes, since pods depend on
        them, then the largest groups.

        Findings are in one group if their messages, causes and remedies are equal, or differ only in the names of their
        objects and of nodes. Evidence and commands may differ, since they name related objects, such as the plugin's
        pod on a node.
        """
        equal: dict[object, list[Caused]] = {}
        for finding, effects in self._with_effects(findings):
            equal.setdefault(tuple(map(_key, (finding, *effects))), []).append((finding, effects))
        alike: dict[object, list[Caused]] = {}
        for group in equal.values():
            finding, effects = group[0]
            alike.setdefault(tuple(_key(each, self._nodes) for each in (finding, *effects)), []).extend(group)

        def worst_first(group: FindingGroup) -> tuple[object, ...]:
            return *_rank(group), group.object.namespace != "", -len(group.objects), group.reason, group.object

        return tuple(sorted(map(self._merge, alike.values()), key=worst_first))

    def _with_effects(self, findings: Iterable[Finding]) -> Iterator[Caused]:
        """Yield each finding that no other finding about its object causes, with its effects, which are not worse."""
        by_object: dict[ObjectName, list[Finding]] = {}
        for finding in findings:
            by_object.setdefault(finding.object, []).append(finding)
        for about in by_object.values():
            roots = [finding for finding in about if not any(self._causes(other, finding) for other in about)]
            causes = {finding: next((root for root in roots if self._causes(root, finding)), None) for finding in about}
            for finding in about:
                if causes[finding] is None:
                    yield finding, tuple(effect for effect, cause in causes.items() if cause == finding)

    def _causes(self, finding: Finding, effect: Finding) -> bool:
        # An error is never an effect of a warning: the group would have the severity of the warning and hide the error.
        return finding.reason in self._caused_by.get(effect.diagnostic, ()) and _rank(finding) <= _rank(effect)

    def _merge(self, group: Sequence[Caused]) -> FindingGroup:
        first, effects = min(group, key=lambda each: each[0].object)
        since = min((finding.since for finding, _ in group if finding.since), default=None)
        names = (finding.object for finding, _ in group)
        return FindingGroup(
            **asdict(replace(first, since=since)), affected=affected_by_owner(names, self._owner_of), effects=effects
        )


def _key(finding: Finding, nodes: Container[str] | None = None) -> object:
    """Return what findings of one group have in common: with `nodes`, without the names of objects and nodes."""
    about = finding.object

    def normalize(text: str) -> str:
        return text if nodes is None else without_names(text, about, nodes)

    return (
        _rank(finding),
        finding.reason,
        finding.diagnostic,
        about.kind,
        normalize(finding.message),
        normalize(finding.cause),
        tuple((normalize(remedy.text), remedy.risk) for remedy in finding.remedies),
        finding.on_host,
    )


def _rank(finding: Finding) -> tuple[int, int]:
    return _SEVERITIES[finding.severity], _CERTAINTIES[finding.certainty]
