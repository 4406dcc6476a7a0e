"""Comparison of two outcomes of a pod, and the changes of all pods by workload, with their totals."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from msgspec import Struct, field

from rules_engine.model.problems.source import truncate
from rules_engine.model.rules.decision import resource_of
from rules_engine.model.rules.rule import Operation, RuleId
from rules_engine.questions.diff.values import (
    MAX_NAME_LENGTH,
    ContainerAmount,
    DeviceCount,
    DifferingRule,
    Kind,
    Outcome,
    OutcomeChange,
    SubmittedPods,
    UnknownOutcome,
    WorkloadName,
)


def compare_outcomes(before: Outcome, after: Outcome) -> OutcomeChange | None:
    """Return the change of a pod's outcome; None if both are equal. Locations of rules are not compared."""
    if before.unknown or after.unknown:
        keys = [each.known_key for each in (before, after) if isinstance(each, UnknownOutcome)]
        if len(keys) == 2 and keys[0] == keys[1]:
            return None
        before, after = _without_key(before), _without_key(after)
        return OutcomeChange(kinds=(Kind.UNKNOWN,), rules=(), before=before, after=after)
    kinds = tuple(_change_kinds(before, after))
    return (
        OutcomeChange(kinds=kinds, rules=_differing_rules(before, after), before=before, after=after) if kinds else None
    )


def _without_key(outcome: Outcome) -> Outcome:
    return Outcome(unknown=outcome.unknown, allowed=None) if outcome.unknown else outcome


def _differing_rules(before: Outcome, after: Outcome) -> tuple[DifferingRule, ...]:
    """Return the rules with different effects before and after, by name."""
    old, new = _effects_by_rule(before), _effects_by_rule(after)
    rules = {rule for rule in {*old, *new} if old.get(rule) != new.get(rule)}
    rules |= {*_amount_changing_rules(before, after, rules)}
    old_places, new_places = ({each.rule: each.source for each in side.rules} for side in (before, after))
    return tuple(
        DifferingRule(rule=rule, before=old_places.get(rule), after=new_places.get(rule)) for rule in sorted(rules)
    )


def _amount_changing_rules(before: Outcome, after: Outcome, others: Set[RuleId]) -> Iterator[RuleId]:
    """Yield the rules that request another number of devices, unless `others` explain it: an effect has no numbers."""
    if not (before.allowed and after.allowed):
        return
    amounts = {amount.resource for amount in {*before.resources} ^ {*after.resources}}
    for each in (*before.rules, *after.rules):
        if each.rule in others:
            amounts -= {resource_of(move.given) for move in each.fallbacks}
            amounts -= {written.resource for written in each.amounts}
    yield from (each.rule for each in before.rules for move in each.fallbacks if resource_of(move.given) in amounts)


def _change_kinds(before: Outcome, after: Outcome) -> Iterator[Kind]:
    if before.allowed != after.allowed:
        yield Kind.ADMITTED if after.allowed else Kind.DENIED
        return
    kinds = [*_outcome_kinds(before, after)]
    yield from kinds
    if not kinds and _effects_by_rule(before).keys() != _effects_by_rule(after).keys():
        yield Kind.RULE


def _outcome_kinds(before: Outcome, after: Outcome) -> Iterator[Kind]:
    moved, explained = _differing_moves(before, after)
    if moved:
        yield Kind.RUNG
    if _unmoved_amounts(before.resources, moved) != _unmoved_amounts(after.resources, moved):
        yield Kind.RESOURCES
    if any(key not in explained for key, _ in {*before.annotations.items()} ^ {*after.annotations.items()}):
        yield Kind.ANNOTATIONS
    if before.member_texts != after.member_texts:
        yield Kind.MEMBERS
    if {*before.warnings} != {*after.warnings}:  # their order depends only on the order of rules
        yield Kind.WARNINGS
    if before.message != after.message:
        yield Kind.MESSAGE


def _differing_moves(before: Outcome, after: Outcome) -> tuple[Set[str], Set[str]]:
    """Return the resources of moves on one side only, and the keys of annotations that the moving rules write."""
    different = {*before.fallbacks} ^ {*after.fallbacks}
    keys = {
        key
        for each in (*before.rules, *after.rules)
        if not different.isdisjoint(each.fallbacks)
        for key in each.annotations
    }
    return {resource for move in different for resource in (move.requested, move.given)}, keys


def _unmoved_amounts(amounts: Sequence[ContainerAmount], moved: Set[str]) -> Sequence[ContainerAmount]:
    return [amount for amount in amounts if amount.resource not in moved]


def _effects_by_rule(outcome: Outcome) -> dict[RuleId, tuple[object, ...]]:
    return {each.rule: each.effect for each in outcome.rules if each.effect}


MAX_LINES = 10_000
"""Workloads of all changes that are kept, of the first changed pods: nobody reads more. Totals count all pods."""


class ClusterCounts(Struct, kw_only=True):
    """Numbers of pods of one cluster.

    `decided`: equal pods that count once, and templates without pods. `as_it_is`: pods that are decided as they are
    now, by reason. `by_kinds`: changed pods by the set of their kinds of change, which shows whether `--allow` covers
    them. `namespaces` and `rules` count changed pods; a pod counts for each rule whose effect differs. `unknown`:
    changed pods by reason. `gpus`: devices of the admitted pods before and after; without pods whose outcome is
    unknown, and without updates and dry runs, which create no pod.
    """

    decided: int = 0
    pods: int = 0
    as_it_is: Counter[str] = field(default_factory=Counter)
    by_kinds: Counter[tuple[Kind, ...]] = field(default_factory=Counter)
    namespaces: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    gpus_before: dict[str, DeviceCount] = field(default_factory=dict)
    gpus_after: dict[str, DeviceCount] = field(default_factory=dict)

    def add(self, submitted: SubmittedPods, before: Outcome, after: Outcome, change: OutcomeChange | None) -> None:
        """Count equal pods of a workload."""
        count = submitted.count
        self.decided += 1
        self.pods += count
        if submitted.as_it_is:
            self.as_it_is[truncate(submitted.as_it_is, MAX_NAME_LENGTH)] += count
        request = submitted.request
        reason = before.unknown or after.unknown
        if reason:
            if change is not None:
                self.unknown[reason] += count
        elif request.operation == Operation.CREATE.value and not request.dry_run:
            for total, outcome in ((self.gpus_before, before), (self.gpus_after, after)):
                for resource, devices in outcome.gpus.items():
                    name = truncate(resource, MAX_NAME_LENGTH)
                    total[name] = total.get(name, 0) + devices * count
        if change is not None:
            self.by_kinds[change.kinds] += count
        if change is not None and count:
            self.namespaces[submitted.workload.namespace] += count
            for each in change.rules:
                self.rules[each.rule] += count


class WorkloadChanges:
    """Changes of pods by workload.

    `totals`: by cluster. `changes`: with the numbers of pods by workload, by the text of the change, since equal
    amounts of two formats are shown differently. `omitted`: number of changed pods that are only counted, beyond
    MAX_LINES.
    """

    def __init__(self, clusters: Iterable[str] = ("",)) -> None:
        self.totals: Mapping[str, ClusterCounts] = {cluster: ClusterCounts() for cluster in clusters}
        self.omitted = 0
        self.changes: dict[str, tuple[OutcomeChange, dict[WorkloadName, int]]] = {}
        self._lines = 0

    def add(self, submitted: SubmittedPods, before: Outcome, after: Outcome) -> None:
        """Count equal pods of a workload with their outcomes. Raises KeyError for an unknown cluster."""
        change = compare_outcomes(before, after)
        self.totals[submitted.workload.cluster].add(submitted, before, after, change)
        if change is None:
            return
        workload, key = submitted.workload, repr(change)
        _, counts = stored = self.changes.get(key) or (change, {})
        if workload not in counts:
            if self._lines >= MAX_LINES:
                self.omitted += submitted.count
                return
            self._lines += 1
            self.changes[key] = stored
        counts[workload] = counts.get(workload, 0) + submitted.count
