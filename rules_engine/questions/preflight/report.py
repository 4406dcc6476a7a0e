"""The report of `preflight`."""

from collections.abc import Iterator, Mapping, Sequence

from rules_engine.accelerators.resources import short_name
from rules_engine.cluster.creation.defaults import TEMPLATE
from rules_engine.model.kubernetes.names import object_title
from rules_engine.model.wording import format_count, format_names
from rules_engine.questions.doctor.report import remaining_fields
from rules_engine.questions.preflight.answer import COUNTED, NodeReasons, PreflightAnswer, StoppedPods, WorkloadAnswer
from rules_engine.questions.preflight.state import Verdict
from rules_engine.report.values import Item, ItemField, Items, Report, Section, Span, Table, Tone

_WORDS: Mapping[Verdict, tuple[str, str, Tone]] = {
    Verdict.STARTS: ("starts", "start", Tone.GOOD),
    Verdict.UNKNOWN: ("unknown", "unknown", Tone.WARNING),
    Verdict.WAITS: ("waits", "wait", Tone.WARNING),
    Verdict.NEVER: ("never starts", "never start", Tone.BAD),
    Verdict.DENIED: ("is denied", "are denied", Tone.BAD),
    Verdict.REFUSED: ("is refused", "are refused", Tone.BAD),
}
"""The words of verdicts, for one pod and for several, and their tones."""

MAX_EVIDENCE = 3
"""Lines of evidence that are shown."""

_UNKNOWN = {
    "Pod": "the cluster's view has no pods: all nodes count as empty",
    "Namespace": "the cluster's view has no namespaces: their labels are unknown",
}


def preflight_report(answer: PreflightAnswer, node_reasons: Sequence[NodeReasons] = ()) -> Report:
    """Return the report of an answer. `node_reasons`: as `preflight` fills it."""
    counts = [f"{name} {answer.objects[kind]:,}" for kind, name in COUNTED.items() if answer.objects[kind]]
    reasons = node_reasons or [[] for _ in answer.workloads]
    cluster = filter(None, (answer.cluster, ", ".join(counts)))
    before = [f"{name} on {node}" for name, node in answer.started_before.items()]
    return Report(
        title="Preflight",
        about=[f"cluster: {': '.join(cluster)}", f"rules: {answer.rules or 'none'}"],
        sections=[
            Section(
                title="Workloads",
                summary="" if answer.workloads else "no pods to start",
                blocks=[Items(items=[*map(_item, answer.workloads, reasons)], noun="workload")],
            )
        ],
        notices=[
            *([f"pods that wait and can run go first: {format_names(before)}"] if before else []),
            *(text for kind, text in _UNKNOWN.items() if not answer.objects[kind]),
        ],
    )


def _item(each: WorkloadAnswer, reasons: NodeReasons) -> Item:
    title, tone = object_title(each.kind, each.name, each.namespace), _WORDS[each.verdict][2]
    return Item(
        title=(Span(title, Tone.STRONG), "  ", Span(_verdict_text(each), tone)),
        tone=tone,
        fields=[*_fields(each)],
        table=Table(heads=("node", "cannot run it, since"), rows=reasons, noun="node") if reasons else None,
    )


def _verdict_text(each: WorkloadAnswer) -> str:
    """Return the verdict in words: `waits: 6 of 8 pods start now, 2 wait`."""
    if not each.pods and not each.unknown:
        return "has no pods"
    start = f"{'starts' if each.pods == 1 else 'start'} {'then' if each.once else 'now'}"
    parts = [f"{each.started:,} of {format_count(each.pods, 'pod')} {start}"]
    for verdict, (one, several, _) in _WORDS.items():
        count = sum(part.pods for part in each.stopped if part.verdict is verdict)
        if count:
            parts.append(f"{count:,} {one if count == 1 else several}")
    once = f", once {' and '.join(each.once)}" if each.once else ""
    return f"{_WORDS[each.verdict][0].removeprefix('is ')}{once}: {', '.join(parts)}"


def _fields(each: WorkloadAnswer) -> Iterator[ItemField]:
    for reason in each.unknown:
        yield ItemField("unknown", reason)
    for move in each.moves:
        of = "" if move.pods == each.pods else f", {format_count(move.pods, 'pod')}"
        resources = f"{short_name(move.requested)} → {short_name(move.given)}"
        yield ItemField("admission", f"{resources} by {move.rule} ({move.source}){of}")
    if each.starts:
        nodes = format_names([f"{node} ×{count}" if count > 1 else node for node, count in each.starts.items()])
        equal = f" (or equal nodes: {format_names(each.equal_nodes)})" if each.equal_nodes else ""
        yield ItemField("starts", f"{nodes}{equal}")
    if each.evicted:
        yield ItemField("evicts", f"{format_count(len(each.evicted), 'pod')}: {format_names(each.evicted)}")
    for stopped in each.stopped:
        if stopped.message:  # else the lines above have the reason
            yield from _stopped_fields(stopped, each)
    if not each.would_start and (each.tried or each.verdict in (Verdict.WAITS, Verdict.NEVER)):
        tried = f"with none of the changes that were tried: {'; '.join(each.tried)}"
        yield ItemField("would start", tried if each.tried else "no change applies that preflight could try")
    for change in each.would_start:
        evicts = f", evicts {format_names(change.evicted)}" if change.evicted else ""
        yield ItemField("would start", f"{change.pods:,} of {change.pods:,} {change.text}{evicts}")
    for notice in each.notices:
        yield ItemField("note", notice)


def _stopped_fields(stopped: StoppedPods, each: WorkloadAnswer) -> Iterator[ItemField]:
    count, verdict = format_count(stopped.pods, "pod"), stopped.verdict
    if verdict is Verdict.REFUSED and stopped.message.startswith(TEMPLATE):
        count = f"the API server refuses the {each.kind}"
    elif verdict is Verdict.REFUSED and each.kind != "Pod":
        count = f"the API server creates the {each.kind} and refuses {count} of its controller"
    elif verdict is Verdict.NEVER and not stopped.together:
        count = f"{count}: no node that exists could hold it"
    label = "else" if verdict is Verdict.UNKNOWN else verdict.value.lower()
    yield ItemField(label, f"{count}: {stopped.message}")
    if (finding := stopped.finding) is not None:
        yield ItemField("because", f"{finding.reason}: {finding.message}")
        yield from remaining_fields(finding)
        evidence = [line for line in finding.evidence if line not in each.unknown]
        yield from (ItemField("evidence", line) for line in evidence[:MAX_EVIDENCE])
        if (more := len(evidence) - MAX_EVIDENCE) > 0:
            yield ItemField("evidence", f"{more:,} more (--output json has all)")
