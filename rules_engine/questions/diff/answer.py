"""Answer of a diff: the effects of a change of rules on workloads and recorded admissions."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import asdict

from rules_engine.model.json.output import Output
from rules_engine.questions.diff.comparison import ClusterCounts, WorkloadChanges
from rules_engine.questions.diff.values import (
    CountsByName,
    DeviceCount,
    Kind,
    OutcomeChange,
    RecordedAdmissions,
    WorkloadName,
    largest_first,
)
from rules_engine.report.answer import Answer

SideName = Literal["old", "new"]


class Verdict(StrEnum):
    """Nothing decided: there was no pod, for example since no recorded admission can be replayed.

    Unknown: nothing changed beyond what is allowed, but the input may have other pods.
    """

    UNCHANGED = "Unchanged"
    ALLOWED = "Allowed"
    CHANGED = "Changed"
    UNKNOWN = "Unknown"
    NOTHING_DECIDED = "NothingDecided"


class DevicesChange(Output, frozen=True, kw_only=True):
    """Numbers of devices under both rule sets."""

    before: DeviceCount
    after: DeviceCount


class ClusterTotals(Output, frozen=True, kw_only=True):
    """Numbers of pods of one cluster."""

    name: Annotated[str, Meta(description="The name of a file of --cluster; empty for the only cluster.")]
    pods: Annotated[int, Meta(description="Pods that were decided.")]
    changed: Annotated[int, Meta(description="Pods with a change, or with an outcome that is not known.")]
    beyond_allowed: Annotated[int, Meta(description="Pods with a kind of change that is not allowed.")]
    as_they_are_now: Annotated[
        CountsByName, Meta(description="Live pods that are not decided as submitted, by reason.")
    ]
    kinds: Annotated[Mapping[Kind, int], Meta(description="Changed pods by kind of change; a pod may have several.")]
    namespaces: Annotated[CountsByName, Meta(description="Changed pods by namespace.")]
    rules: Annotated[CountsByName, Meta(description="Changed pods by rule whose effect on them differs.")]
    unknown: Annotated[CountsByName, Meta(description="Changed pods whose outcome is not known, by reason.")]
    gpus: Annotated[Mapping[str, DevicesChange], Meta(description="Requested by pods with known outcomes.")]


class ChangedWorkload(WorkloadName, frozen=True, kw_only=True):
    """The pods of a workload that have a change; a pod without an owner is a workload."""

    pods: int


class PodChange(OutcomeChange, frozen=True, kw_only=True):
    """Different outcomes under both rule sets, with all workloads whose pods have them."""

    workloads: tuple[ChangedWorkload, ...]


class DifferenceAnswer(Answer, frozen=True, kw_only=True):
    """Effects of a change of rules on the admission of pods."""

    old: Annotated[str, Meta(description="The source of the old rules.")]
    new: Annotated[str, Meta(description="The source of the new rules.")]
    same_rules: Annotated[bool, Meta(description="True: both sides have the same rules.")]
    without_rules: Annotated[tuple[SideName, ...], Meta(description="These sides admit every pod as it is.")]
    assumed_cluster: Annotated[str | None, Meta(description="Used without --cluster, if rules read nodes.")]
    allowed: Annotated[tuple[Kind, ...], Meta(description="The kinds of change of --allow.")]
    verdict: Annotated[
        Verdict,
        Meta(description="Allowed: all changes are of kinds that --allow names. Unknown: no other, of the known pods."),
    ]
    clusters: tuple[ClusterTotals, ...]
    recorded: Annotated[RecordedAdmissions | None, Meta(description="null without --from-log.")]
    omitted_pods: Annotated[int, Meta(description="Changed pods that are not listed: only totals count them.")]
    changes: Annotated[tuple[PodChange, ...], Meta(description="In the order of their first workloads.")]


def build_answer(
    grouping: WorkloadChanges,
    *,
    old: str,
    new: str,
    same_rules: bool,
    without_rules: Iterable[SideName] = (),
    assumed_cluster: str | None = None,
    recorded: RecordedAdmissions | None = None,
    allowed: frozenset[Kind] = frozenset(),
    unknown: bool = False,
) -> DifferenceAnswer:
    """Return the answer of grouped changes. `unknown`: the input may have other pods."""
    clusters = tuple(_cluster_totals(name, totals, allowed) for name, totals in grouping.totals.items())
    return DifferenceAnswer(
        old=old,
        new=new,
        same_rules=same_rules,
        without_rules=tuple(without_rules),
        assumed_cluster=assumed_cluster,
        allowed=tuple(kind for kind in Kind if kind in allowed),
        verdict=_verdict(grouping.totals.values(), allowed, unknown=unknown),
        clusters=clusters,
        recorded=recorded,
        omitted_pods=grouping.omitted,
        changes=tuple(_pod_changes(grouping)),
    )


def _verdict(clusters: Collection[ClusterCounts], allowed: frozenset[Kind], *, unknown: bool) -> Verdict:
    changes = [kinds for each in clusters for kinds in each.by_kinds]
    if not all(map(allowed.issuperset, changes)):
        return Verdict.CHANGED
    if unknown or not any(each.decided for each in clusters):
        return Verdict.UNKNOWN if unknown else Verdict.NOTHING_DECIDED
    return Verdict.ALLOWED if changes else Verdict.UNCHANGED


def _cluster_totals(name: str, totals: ClusterCounts, allowed: frozenset[Kind]) -> ClusterTotals:
    return ClusterTotals(
        name=name,
        pods=totals.pods,
        changed=totals.by_kinds.total(),
        beyond_allowed=sum(count for kinds, count in totals.by_kinds.items() if not allowed.issuperset(kinds)),
        as_they_are_now=largest_first(totals.as_it_is),
        kinds={
            kind: count for kind in Kind if (count := sum(n for kinds, n in totals.by_kinds.items() if kind in kinds))
        },
        namespaces=largest_first(totals.namespaces),
        rules=largest_first(totals.rules),
        unknown=largest_first(totals.unknown),
        gpus={
            resource: DevicesChange(
                # Sums of fractions are not exact.
                before=round(totals.gpus_before.get(resource, 0), 9),
                after=round(totals.gpus_after.get(resource, 0), 9),
            )
            for resource in sorted({*totals.gpus_before, *totals.gpus_after})
        },
    )


def _pod_changes(grouping: WorkloadChanges) -> Iterator[PodChange]:
    for change, counts in sorted(grouping.changes.values(), key=lambda each: min(each[1])):
        workloads = (ChangedWorkload(**asdict(each), pods=pods) for each, pods in sorted(counts.items()))
        yield PodChange(**asdict(change), workloads=tuple(workloads))
