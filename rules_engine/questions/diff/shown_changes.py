"""Changes as displayed: the parts of outcomes that differ, with the workloads that share them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rules_engine.model.kubernetes.names import object_title
from rules_engine.model.problems.source import Location
from rules_engine.model.wording import format_names
from rules_engine.questions.diff.answer import PodChange
from rules_engine.questions.diff.values import ContainerAmount, Kind, Outcome

T = TypeVar("T")

NONE = "none"
NOT_WRITTEN = "not written"

NO_EFFECT = "no effect"
"""The place of a rule that does not contribute to an outcome."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of two outcomes that differs, as texts."""

    title: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ShownChange:
    """Workloads with equal differences.

    `differences` ends with the rules that decided. It omits the amounts that a denied pod would have had. `workloads`:
    numbers of pods by cluster, by the title of the workload.
    """

    kinds: tuple[Kind, ...]
    differences: tuple[Difference, ...]
    workloads: Mapping[str, Counter[str]]

    @property
    def title(self) -> str:
        """The names of its kinds."""
        return ", ".join(kind.value for kind in self.kinds)

    @property
    def pods(self) -> int:
        """The number of pods, of all clusters."""
        return sum(counts.total() for counts in self.workloads.values())


def group_changes(changes: Iterable[PodChange]) -> Sequence[ShownChange]:
    """Return changes as displayed, denials first; changes of equal kinds by descending number of pods."""
    groups: dict[tuple[tuple[Kind, ...], tuple[Difference, ...]], dict[str, Counter[str]]] = {}
    for change in changes:
        rules = [
            Difference(each.rule, _location_text(each.before), _location_text(each.after)) for each in change.rules
        ]
        key = change.kinds, (*_outcome_differences(change), *rules)
        for workload in change.workloads:
            name = object_title(workload.kind, workload.name, workload.namespace)
            groups.setdefault(key, {}).setdefault(name, Counter())[workload.cluster] += workload.pods
    order = {kind: index for index, kind in enumerate(Kind)}
    return sorted(
        (ShownChange(kinds, differences, workloads) for (kinds, differences), workloads in groups.items()),
        key=lambda each: ([order[kind] for kind in each.kinds], -each.pods),
    )


def _outcome_differences(change: PodChange) -> Sequence[Difference]:
    """Return the parts of the outcomes that differ; only the admission if that changes."""
    before, after = change.before, change.after
    if before.allowed != after.allowed or before.unknown or after.unknown:
        return [Difference("admission", _admission_text(before), _admission_text(after))]
    return [*_part_differences(before, after)]


def _admission_text(outcome: Outcome) -> str:
    if outcome.unknown:
        return f"not known ({outcome.unknown})"
    return "allowed" if outcome.allowed else f"denied ({outcome.message})"


def _part_differences(before: Outcome, after: Outcome) -> Iterator[Difference]:
    if before.message != after.message:
        yield Difference("message", before.message or NONE, after.message or NONE)
    rungs = _rungs_by_request(before), _rungs_by_request(after)
    for requested in dict.fromkeys(name for side in rungs for name in side):
        # Without a fallback, the pod keeps the resource that it requests.
        old, new = (side.get(requested, requested) for side in rungs)
        if old != new:
            yield Difference(f"given for {requested}", old, new)
    amounts = [{(each.container, each.resource): each for each in side.resources} for side in (before, after)]
    yield from _container_differences(amounts[0], amounts[1], _amount_text)
    yield from _container_differences(before.member_texts, after.member_texts, lambda text: text or NOT_WRITTEN)
    annotations = _annotation_texts(before), _annotation_texts(after)
    for key in dict.fromkeys(key for side in annotations for key in side):
        old, new = (side.get(key, NOT_WRITTEN) for side in annotations)
        if old != new:
            yield Difference(f"annotation {key}", old, new)
    both = {*before.warnings} & {*after.warnings}
    old, new = ("; ".join(text for text in side.warnings if text not in both) for side in (before, after))
    if {*before.warnings} != {*after.warnings}:
        yield Difference("warnings", old or NONE, new or NONE)


def _rungs_by_request(outcome: Outcome) -> Mapping[str, str]:
    """Return the resources that replace each requested one: rules may replace it differently in several containers."""
    resources_given: dict[str, dict[str, None]] = {}
    for fallback in outcome.fallbacks:
        resources_given.setdefault(fallback.requested, {})[fallback.given] = None
    return {requested: ", ".join(resources) for requested, resources in resources_given.items()}


def _container_differences(
    before: Mapping[tuple[str, str], T], after: Mapping[tuple[str, str], T], text_of: Callable[[T | None], str]
) -> Iterator[Difference]:
    """Yield the values of containers that differ; containers with equal differences are one line."""
    containers: dict[tuple[str, str, str], list[str]] = {}
    for container, name in dict.fromkeys((*before, *after)):
        old, new = before.get((container, name)), after.get((container, name))
        if old != new:
            containers.setdefault((name, text_of(old), text_of(new)), []).append(container)
    for (name, old_text, new_text), container_names in containers.items():
        yield Difference(f"{format_names(container_names)} {name}".strip(), old_text, new_text)


def _amount_text(amount: ContainerAmount | None) -> str:
    if amount is None:
        return NONE
    request, limit = amount.quantities
    if request == limit:
        return str(amount.limit)
    parts = {"request": amount.request, "limit": amount.limit}
    return ", ".join(f"{name} {quantity}" for name, quantity in parts.items() if quantity is not None)


def _annotation_texts(outcome: Outcome) -> Mapping[str, str]:
    return {key: "removed" if text is None else f'"{text}"' for key, text in outcome.annotations.items()}


def _location_text(location: Location | None) -> str:
    return NO_EFFECT if location is None else f"{location.file}:{location.line}"
