"""The report of `diff`: its result, the changes with their workloads, then the totals."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rules_engine.model.wording import format_count
from rules_engine.questions.diff.answer import ClusterTotals, DifferenceAnswer
from rules_engine.questions.diff.shown_changes import Difference, ShownChange, group_changes
from rules_engine.questions.diff.values import CountsByName, DeviceCount, Kind, RecordedAdmissions
from rules_engine.report.values import Item, ItemField, Items, Lines, Report, Section, Span, Table, Tone, Words

MAX_GPUS = 10
"""GPU resources in a sentence. No cluster has as many, but pods may request any name."""

PODS = "pods"
"""Header of a column with numbers of pods."""


_TONES: Mapping[Kind, Tone] = {Kind.DENIED: Tone.BAD, Kind.ADMITTED: Tone.GOOD, Kind.UNKNOWN: Tone.WARNING}
"""Tones of kinds of change; all others have Tone.INFO."""


def difference_report(answer: DifferenceAnswer) -> Report:
    """Return the report of an answer: its result, the changes with their workloads, then the totals."""
    changes = group_changes(answer.changes)
    sections: list[Section] = []
    if changes:
        items = Items(items=[_change_item(answer, change) for change in changes], noun="change")
        sections.append(Section(title="Changes", summary=format_count(len(changes), "change"), blocks=(items,)))
    recorded = () if answer.recorded is None else _replay_sentences(answer.recorded)
    if recorded:
        sections.append(Section(title="Recorded admissions", blocks=(Lines(lines=recorded, noun="reason"),)))
    sections += _totals_sections(answer)
    return Report(
        title="Difference of rules",
        about=(f"{answer.old} → {answer.new}",),
        answer=[f"{_prefix(answer, each)}{text}" for each in answer.clusters for text in _cluster_summary(each)],
        sections=sections,
        notices=_notice_sentences(answer),
    )


def _change_item(answer: DifferenceAnswer, change: ShownChange) -> Item:
    workloads, several = format_count(len(change.workloads), "workload"), len(answer.clusters) > 1
    extent = workloads if several else f"{format_count(change.pods, 'pod')} of {workloads}"
    tone = _TONES.get(change.kinds[0], Tone.INFO)
    heads = _column_heads(answer, PODS)
    names = [each.name for each in answer.clusters]
    return Item(
        title=(Span(change.title, tone), f"  {extent}"),
        tone=tone,
        fields=[ItemField(each.title, _difference_words(each)) for each in change.differences],
        table=Table(
            heads=("workload", *heads),
            rows=[
                (title, *(f"{pods[name]:,}" if name in pods else "" for name in names))
                for title, pods in change.workloads.items()
            ],
            numbers=heads,
            names=heads if several else (),
            noun="workload",
        ),
    )


def _difference_words(difference: Difference) -> Words:
    if difference.before == difference.after:
        return difference.after
    return (difference.before, " → ", difference.after)


def _totals_sections(answer: DifferenceAnswer) -> Iterator[Section]:
    """Yield a table for each kind of total: a row for each name, with a cell for each cluster."""
    totals = answer.clusters
    gpus = dict.fromkeys(name for each in totals for name in each.gpus)
    amounts = [(name, *(_gpu_cell(each, name) for each in totals)) for name in gpus]
    for title, head, column, rows in (
        ("Changed pods by kind of change", "kind", PODS, [*_kind_rows(answer, totals)]),
        ("Changed pods by namespace", "namespace", PODS, _count_rows([each.namespaces for each in totals])),
        ("Changed pods by rule", "rule", PODS, _count_rows([each.rules for each in totals])),
        ("Pods whose outcome is not known", "reason", PODS, _count_rows([each.unknown for each in totals])),
        ("Live pods decided as they are now", "reason", PODS, _count_rows([each.as_they_are_now for each in totals])),
        ("GPUs of admitted pods", "resource", "requested", amounts),
    ):
        if rows:
            heads = _column_heads(answer, column)
            table = Table(heads=(head, *heads), rows=rows, numbers=heads, names=heads if len(totals) > 1 else ())
            yield Section(title=title, blocks=(table,), folded=True)


def _column_heads(answer: DifferenceAnswer, only: str) -> tuple[str, ...]:
    """Return the headers of the clusters' columns; `only` for a single cluster."""
    return tuple(each.name for each in answer.clusters) if len(answer.clusters) > 1 else (only,)


def _prefix(answer: DifferenceAnswer, cluster: ClusterTotals) -> str:
    return f"{cluster.name}: " if len(answer.clusters) > 1 else ""


def _cluster_summary(totals: ClusterTotals) -> Iterator[str]:
    if not totals.pods:
        yield "no pods"
        return
    if not totals.changed:
        yield f"none of {format_count(totals.pods, 'pod')} changed"
        return
    unknown = totals.kinds.get(Kind.UNKNOWN, 0)
    parts = [f"{totals.changed - unknown:,} of {format_count(totals.pods, 'pod')} changed"]
    if unknown:
        parts.append(f"{unknown:,} not known")
    if totals.beyond_allowed < totals.changed:
        parts.append(f"{totals.changed - totals.beyond_allowed:,} of them allowed")
    yield ", ".join(parts)
    gpus = _gpu_changes(totals)
    if gpus:
        yield f"GPUs of admitted pods: {gpus}"


def _gpu_changes(totals: ClusterTotals) -> str:
    """Return the changes of amounts of GPU resources, such as "+12 nvidia.com/gpu"; "" if there are none."""
    changes = [
        f"{_with_sign(each.after, each.before)} {name}"
        for name, each in totals.gpus.items()
        if each.before != each.after
    ]
    more = [f"{len(changes) - MAX_GPUS:,} more"] if len(changes) > MAX_GPUS else []
    return ", ".join([*changes[:MAX_GPUS], *more])


def _with_sign(after: DeviceCount, before: DeviceCount) -> str:
    """Return a difference of amounts with its sign."""
    return f"{'−' if after < before else '+'}{_format_devices(abs(after - before))}"


def _format_devices(devices: DeviceCount) -> str:
    return f"{round(devices, 9):,}"


def _notice_sentences(answer: DifferenceAnswer) -> Sequence[str]:
    """Return sentences on the rules of both sides, and on the limits of the answer."""
    notices = ["both sides have the same rules"] if answer.same_rules else []
    notices += [f"the {side} side has no rules: it admits every pod as it is" for side in answer.without_rules]
    if answer.assumed_cluster:
        notices.append(f"cluster: the packaged inventory {answer.assumed_cluster} (use --cluster for another one)")
    for cluster in answer.clusters:
        as_it_is = sum(cluster.as_they_are_now.values())
        if as_it_is:
            subject = "it is" if as_it_is == 1 else "they are"
            live = format_count(as_it_is, "live pod")
            notices.append(f"{_prefix(answer, cluster)}{live} decided as {subject} now")
    if answer.omitted_pods:
        notices.append(f"{format_count(answer.omitted_pods, 'changed pod')} counted in the totals only")
    return notices


def _kind_rows(answer: DifferenceAnswer, totals: Sequence[ClusterTotals]) -> Iterator[tuple[str, ...]]:
    for kind in Kind:
        numbers = [each.kinds.get(kind, 0) for each in totals]
        if any(numbers):
            name = f"{kind.value} (allowed)" if kind in answer.allowed else kind.value
            yield name, *map(_count_cell, numbers)


def _count_rows(counters: Sequence[CountsByName]) -> Sequence[tuple[str, ...]]:
    """Return the rows of numbers of pods, the largest first."""
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    names = sorted(total, key=lambda name: (-total[name], name))
    return [(name, *(_count_cell(counter.get(name, 0)) for counter in counters)) for name in names]


def _count_cell(count: int) -> str:
    return f"{count:,}" if count else ""


def _gpu_cell(totals: ClusterTotals, name: str) -> str:
    change = totals.gpus.get(name)
    if change is None:
        return ""
    if change.before == change.after:
        return _format_devices(change.after) if change.after else ""
    sign = _with_sign(change.after, change.before)
    return f"{_format_devices(change.before)} → {_format_devices(change.after)} ({sign})"


def _replay_sentences(totals: RecordedAdmissions) -> Sequence[str]:
    """Return sentences on recorded admissions, with the reasons why some cannot be replayed."""
    admissions, lines = format_count(totals.admissions, "recorded admission"), format_count(totals.lines, "line")
    sentences = [f"{admissions} in {lines}: {totals.replayed:,} decided again"]
    if totals.later_calls:
        sentences.append(f"{format_count(totals.later_calls, 'call')} of /validate decided together with /mutate")
    sentences += [f"{count:,} not replayable: {reason}" for reason, count in totals.not_replayable.items()]
    return [
        *sentences,
        *(f"{format_count(count, 'line')} left out: {reason}" for reason, count in totals.unreadable.items()),
    ]
