"""The report of `preflight`."""

from collections.abc import Iterator, Mapping, Sequence

from rules_engine.model.gpu.resources import short_name
from rules_engine.model.kubernetes.names import object_title
from rules_engine.model.wording import format_count, format_names
from rules_engine.preflight.answer import Answer, StoppedPods, WorkloadAnswer
from rules_engine.preflight.changes import RungResult
from rules_engine.preflight.state import Verdict
from rules_engine.report.values import Field, Item, Items, Report, Section, Span, Table, Tone

_TONES: Mapping[Verdict, Tone] = {
    Verdict.STARTS: Tone.GOOD,
    Verdict.WAITS: Tone.WARNING,
    Verdict.NEVER: Tone.BAD,
    Verdict.DENIED: Tone.BAD,
    Verdict.REFUSED: Tone.BAD,
}

_VERBS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.WAITS: ("waits", "wait"),
    Verdict.NEVER: ("never starts", "never start"),
    Verdict.DENIED: ("is denied", "are denied"),
    Verdict.REFUSED: ("is refused", "are refused"),
}

_NOUNS = {"Node": "node", "Pod": "pod", "Namespace": "namespace"}

MAX_EVIDENCE = 3
"""Lines of evidence that are shown; JSON has all."""


def preflight_report(answer: Answer, rules: str) -> Report:
    """Return the report of an answer. `rules`: the name of the rule set."""
    counts = [format_count(answer.objects[kind], noun) for kind, noun in _NOUNS.items()]
    before = [f"{name} on {node}" for name, node in answer.started_before.items()]
    return Report(
        title="Preflight",
        about=[f"cluster: {answer.cluster}: {', '.join(counts)}", f"rules: {rules}"],
        sections=[
            Section(title="Workloads", blocks=[Items(items=[*map(_item, answer.workloads)], noun="workload")]),
        ],
        notices=[
            *([f"pods that wait and can run go first: {format_names(before)}"] if before else []),
            *_unread(answer),
            *dict.fromkeys(notice for each in answer.workloads for notice in each.notices),
        ],
    )


def _unread(answer: Answer) -> Iterator[str]:
    unknown = {
        "Node": "the cluster has no nodes",
        "Pod": "the cluster's view has no pods: all nodes count as empty",
        "Namespace": "the cluster's view has no namespaces: their labels are unknown",
    }
    return (text for kind, text in unknown.items() if not answer.objects[kind])


def _item(each: WorkloadAnswer) -> Item:
    title = object_title(each.kind, each.name, each.namespace)
    return Item(
        title=(Span(title, Tone.STRONG), "  ", Span(_verdict_text(each), _TONES[each.verdict])),
        tone=_TONES[each.verdict],
        fields=[*_fields(each)],
        table=_rung_table(each.rungs) if each.rungs else None,
    )


def _verdict_text(each: WorkloadAnswer) -> str:
    """Return the verdict in words: `waits: 6 of 8 pods start now, 2 wait`."""
    start = f"{'starts' if each.pods == 1 else 'start'} {'then' if each.first else 'now'}"
    parts = [f"{each.started} of {format_count(each.pods, 'pod')} {start}"]
    for verdict, (one, several) in _VERBS.items():
        count = sum(part.pods for part in each.stopped if part.verdict is verdict)
        if count:
            parts.append(f"{count} {one if count == 1 else several}")
    return f"{_VERBS[each.verdict][0].removeprefix('is ')}: {', '.join(parts)}" if each.stopped else f"starts: {parts[0]}"


def _fields(each: WorkloadAnswer) -> Iterator[Field]:
    if each.first:
        yield Field("first", f"{' and '.join(each.first)} decides, then the scheduler")
    for fallen in each.falls:
        moved = f"{short_name(fallen.fall.requested)} → {short_name(fallen.fall.given)}"
        of = "" if fallen.pods == each.pods else f", {format_count(fallen.pods, 'pod')}"
        yield Field("admission", (f"{moved} by {fallen.fall.rule} ({fallen.location}){of}",))
    if each.starts:
        nodes = format_names([f"{node} ×{count}" if count > 1 else node for node, count in each.starts.items()])
        equal = f" (or equal nodes: {format_names(each.equal_nodes)})" if each.equal_nodes else ""
        yield Field("starts", f"{nodes}{equal}")
    if each.evicted:
        yield Field("evicts", f"{format_count(len(each.evicted), 'pod')}: {format_names(each.evicted)}")
    for stopped in each.stopped:
        yield from _stopped_fields(stopped, each)
    if each.changes:
        changes = [f"{change.pods} of {change.pods} {change.text}" for change in each.changes]
        yield Field("would start", " · ".join(changes))


def _stopped_fields(stopped: StoppedPods, each: WorkloadAnswer) -> Iterator[Field]:
    count = format_count(stopped.pods, "pod")
    match stopped.verdict:
        case Verdict.REFUSED if each.kind != "Pod":
            after = f"the API server creates the {each.kind} and refuses {count} of its controller"
            yield Field("refused", f"{after}: {stopped.message}")
        case Verdict.NEVER:
            yield Field("never", f"{count}: no node that exists could hold it: {stopped.message}")
        case verdict:
            yield Field(verdict.value.lower(), f"{count}: {stopped.message}")
    if stopped.finding is not None:
        finding = stopped.finding
        yield Field("because", f"{finding.reason}: {finding.message}")
        for line in finding.evidence[:MAX_EVIDENCE]:
            yield Field("evidence", line)


def _rung_table(rungs: Sequence[RungResult]) -> Table:
    verdicts = [*Verdict]
    return Table(
        heads=("request", *(verdict.value for verdict in verdicts)),
        rows=[(rung.request, *(str(rung.pods.get(verdict, 0)) for verdict in verdicts)) for rung in rungs],
        numbers=[verdict.value for verdict in verdicts],
        noun="rung",
    )
