"""Answer of a diff: the effects of a change of rules on workloads and recorded admissions."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, structs

from rules_engine.difference.comparison import differing_rules
from rules_engine.difference.grouping import Grouping, RecordedTotals, Totals
from rules_engine.difference.values import Change, Contribution, Kind, Line, Outcome, Workload
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.quantity import base_units
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId
from rules_engine.report.answer import Answer

Counts = Mapping[str, int]
Devices = int | float
Side = Literal["old", "new"]


class Verdict(StrEnum):
    """Nothing decided: there was no pod, for example since no recorded admission can be replayed."""

    UNCHANGED = "Unchanged"
    ALLOWED = "Allowed"
    CHANGED = "Changed"
    NOTHING_DECIDED = "NothingDecided"


class DevicesChange(Output, frozen=True, kw_only=True):
    """Numbers of devices under both rule sets."""

    before: Devices
    after: Devices


class ClusterTotals(Output, frozen=True, kw_only=True):
    """Numbers of pods of one cluster."""

    name: Annotated[str, Meta(description="The name of a file of --cluster; empty for the only cluster.")]
    pods: Annotated[int, Meta(description="Pods that were decided.")]
    changed: Annotated[int, Meta(description="Pods with a change, or with an outcome that is not known.")]
    beyond_allowed: Annotated[int, Meta(description="Pods with a kind of change that is not allowed.")]
    as_they_are_now: Annotated[Counts, Meta(description="Live pods that are not decided as submitted, by reason.")]
    kinds: Annotated[Mapping[Kind, int], Meta(description="Changed pods by kind of change; a pod may have several.")]
    namespaces: Annotated[Counts, Meta(description="Changed pods by namespace.")]
    rules: Annotated[Counts, Meta(description="Changed pods by rule whose effect on them differs.")]
    unknown: Annotated[Counts, Meta(description="Changed pods whose outcome is not known, by reason.")]
    gpus: Annotated[Mapping[str, DevicesChange], Meta(description="Requested by pods with known outcomes.")]


class RecordedAdmissions(Output, frozen=True, kw_only=True):
    """Numbers of lines of a decision log."""

    lines: Annotated[int, Meta(description="Lines that were read.")]
    admissions: Annotated[int, Meta(description="Lines of decisions.")]
    replayed: Annotated[int, Meta(description="Those that were decided again under both rule sets.")]
    later_calls: Annotated[int, Meta(description="Calls of /validate whose pod is decided with its call of /mutate.")]
    not_replayable: Annotated[Counts, Meta(description="Lines of decisions that cannot be decided again.")]
    unreadable: Annotated[Counts, Meta(description="Lines that are not lines of a decision log, by reason.")]


class ContainerAmount(Output, frozen=True, kw_only=True):
    """The request and limit of a container, as Kubernetes quantities."""

    container: Annotated[str, Meta(description="Its name; spec.resources for the pod level.")]
    resource: str
    request: Annotated[str | None, Meta(description="null: the container has none.")]
    limit: Annotated[str | None, Meta(description="null: the container has none.")]


class Move(Output, frozen=True, kw_only=True):
    """A move from the requested resource to another one."""

    requested: str
    given: str


class WrittenAmount(Output, frozen=True, kw_only=True):
    """A Kubernetes quantity that a rule writes."""

    container: str
    resource: str
    amount: str


class RuleEffect(Output, frozen=True, kw_only=True):
    """The contribution of a rule to an outcome."""

    rule: RuleId
    source: Annotated[Location, Meta(description="The field that decided, or the rule.")]
    action: Action
    message: Annotated[str | None, Meta(description="The message of its denial.")]
    fallbacks: tuple[Move, ...]
    amounts: tuple[WrittenAmount, ...]
    annotations: Mapping[str, str]
    warnings: tuple[str, ...]


class PodOutcome(Output, frozen=True, kw_only=True):
    """The outcome of a pod's admission at both endpoints."""

    unknown: Annotated[str | None, Meta(description="The reason why the outcome is not known.")]
    allowed: Annotated[bool | None, Meta(description="null: not known.")]
    message: Annotated[str | None, Meta(description="The message of a denial.")]
    resources: Annotated[tuple[ContainerAmount, ...], Meta(description="After the mutation; none of a denied pod.")]
    annotations: Annotated[Mapping[str, str | None], Meta(description="Annotations that rules write; null: remove.")]
    warnings: tuple[str, ...]
    gpus: Annotated[Mapping[str, Devices], Meta(description="Devices that the whole pod requests, by resource.")]
    rules: Annotated[tuple[RuleEffect, ...], Meta(description="The contributing rules, in order of evaluation.")]


class DifferingRule(Output, frozen=True, kw_only=True):
    """A rule whose effect differs."""

    rule: RuleId
    before: Annotated[Location | None, Meta(description="What decided under the old rules; null: no effect.")]
    after: Annotated[Location | None, Meta(description="The same under the new rules.")]


class ChangedWorkload(Workload, frozen=True, kw_only=True):
    """The pods of a workload that have a change; a pod without an owner is a workload."""

    pods: int


class PodChange(Output, frozen=True, kw_only=True):
    """Different outcomes under both rule sets, with all workloads whose pods have them."""

    kinds: tuple[Kind, ...]
    rules: tuple[DifferingRule, ...]
    before: PodOutcome
    after: PodOutcome
    workloads: tuple[ChangedWorkload, ...]


class DifferenceAnswer(Answer, frozen=True, kw_only=True):
    """Effects of a change of rules on the admission of pods."""

    old: Annotated[str, Meta(description="The source of the old rules.")]
    new: Annotated[str, Meta(description="The source of the new rules.")]
    same_rules: Annotated[bool, Meta(description="True: both sides have the same rules.")]
    without_rules: Annotated[tuple[Side, ...], Meta(description="These sides admit every pod as it is.")]
    assumed_cluster: Annotated[str | None, Meta(description="Used without --cluster, if rules read nodes.")]
    allowed: Annotated[tuple[Kind, ...], Meta(description="The kinds of change of --allow.")]
    verdict: Annotated[Verdict, Meta(description="Allowed: all changes are of kinds that --allow names.")]
    clusters: tuple[ClusterTotals, ...]
    recorded: Annotated[RecordedAdmissions | None, Meta(description="null without --from-log.")]
    omitted_pods: Annotated[int, Meta(description="Changed pods that are not listed: only totals count them.")]
    changes: Annotated[tuple[PodChange, ...], Meta(description="In the order of their first workloads.")]


def build_answer(
    grouping: Grouping,
    *,
    old: str,
    new: str,
    same_rules: bool,
    without_rules: Iterable[Side] = (),
    assumed_cluster: str | None = None,
    recorded: RecordedTotals | None = None,
    allowed: frozenset[Kind] = frozenset(),
) -> DifferenceAnswer:
    """Return the answer of grouped changes."""
    clusters = tuple(_cluster_totals(name, totals, allowed) for name, totals in grouping.totals.items())
    return DifferenceAnswer(
        old=old,
        new=new,
        same_rules=same_rules,
        without_rules=tuple(without_rules),
        assumed_cluster=assumed_cluster,
        allowed=_in_order(allowed),
        verdict=_verdict(clusters),
        clusters=clusters,
        recorded=None if recorded is None else _recorded_admissions(recorded),
        omitted_pods=grouping.omitted,
        changes=tuple(map(_pod_change, _group_equal_changes(grouping.lines))),
    )


def _verdict(clusters: Iterable[ClusterTotals]) -> Verdict:
    decided = [each for each in clusters if each.pods]
    if not decided:
        return Verdict.NOTHING_DECIDED
    if any(each.beyond_allowed for each in decided):
        return Verdict.CHANGED
    return Verdict.ALLOWED if any(each.changed for each in decided) else Verdict.UNCHANGED


def _cluster_totals(name: str, totals: Totals, allowed: frozenset[Kind]) -> ClusterTotals:
    return ClusterTotals(
        name=name,
        pods=totals.pods,
        changed=totals.by_kinds.total(),
        beyond_allowed=sum(count for kinds, count in totals.by_kinds.items() if not kinds <= allowed),
        as_they_are_now=_largest_first(totals.as_it_is),
        kinds={
            kind: count for kind in Kind if (count := sum(n for kinds, n in totals.by_kinds.items() if kind in kinds))
        },
        namespaces=_largest_first(totals.namespaces),
        rules=_largest_first(totals.rules),
        unknown=_largest_first(totals.unknown),
        gpus={
            resource: DevicesChange(
                before=base_units(totals.gpus_before[resource]), after=base_units(totals.gpus_after[resource])
            )
            for resource in sorted({*totals.gpus_before, *totals.gpus_after})
        },
    )


def _recorded_admissions(totals: RecordedTotals) -> RecordedAdmissions:
    return RecordedAdmissions(
        lines=totals.lines,
        admissions=totals.admissions,
        replayed=totals.replayed,
        later_calls=totals.later_calls,
        not_replayable=_largest_first(totals.not_replayable),
        unreadable=_largest_first(totals.unreadable),
    )


def _largest_first(counts: Counts) -> Counts:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _group_equal_changes(lines: Iterable[Line]) -> Iterable[list[Line]]:
    """Return the lines in groups of equal changes; a Grouping stores equal changes once."""
    groups: dict[int, list[Line]] = {}
    for line in lines:
        groups.setdefault(id(line.change), []).append(line)
    return groups.values()


def _in_order(kinds: frozenset[Kind]) -> tuple[Kind, ...]:
    return tuple(kind for kind in Kind if kind in kinds)


def _pod_change(lines: list[Line]) -> PodChange:
    change = lines[0].change
    return PodChange(
        kinds=_in_order(change.kinds),
        rules=_differing_rules(change),
        before=_pod_outcome(change.before),
        after=_pod_outcome(change.after),
        workloads=tuple(ChangedWorkload(**structs.asdict(line.workload), pods=line.count) for line in lines),
    )


def _differing_rules(change: Change) -> tuple[DifferingRule, ...]:
    before, after = (
        {deciding.rule: deciding.location for deciding in outcome.deciding} for outcome in (change.before, change.after)
    )
    return tuple(
        DifferingRule(rule=rule, before=before.get(rule), after=after.get(rule)) for rule in differing_rules(change)
    )


def _pod_outcome(outcome: Outcome) -> PodOutcome:
    return PodOutcome(
        unknown=outcome.unknown or None,
        allowed=None if outcome.unknown else outcome.allowed,
        message=outcome.message or None,
        resources=tuple(
            ContainerAmount(
                container=amount.container,
                resource=amount.resource,
                request=None if amount.request is None else str(amount.request),
                limit=None if amount.limit is None else str(amount.limit),
            )
            for amount in outcome.resources
        ),
        annotations=dict(outcome.annotations),
        warnings=outcome.warnings,
        gpus={resource: base_units(nanos) for resource, nanos in outcome.gpus},
        rules=tuple(map(_rule_effect, outcome.deciding)),
    )


def _rule_effect(deciding: Contribution) -> RuleEffect:
    return RuleEffect(
        rule=deciding.rule,
        source=deciding.location,
        action=deciding.action,
        message=deciding.message or None,
        fallbacks=tuple(Move(requested=each.requested, given=each.given) for each in deciding.fallbacks),
        amounts=tuple(
            WrittenAmount(container=container, resource=resource, amount=amount)
            for container, resource, amount in deciding.amounts
        ),
        annotations=dict(deciding.annotations),
        warnings=deciding.warnings,
    )
