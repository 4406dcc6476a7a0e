"""The report of `doctor`: first findings, then the overview of the cluster, and last the kinds that were not read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from rules_engine.diagnosis.values import Agreement, Amounts, Diagnosis, FindingGroup, GpuNode, PendingPod, RecentError
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, NotEvaluated, Remedy, Risk
from rules_engine.model.wording import format_count, format_names, format_time
from rules_engine.report.values import Bar, Cell, Field, Item, Items, Lines, Report, Section, Span, Table, Tone

MAX_NODES = 40
"""Largest number of nodes with a line each: in a larger cluster, nodes that are alike share a line."""

HOST_NOTE = "The Kubernetes API does not show the cause: these commands look on the node itself."
"""The sentence of a finding whose cause only the node shows."""

_AGREEMENTS: Mapping[Agreement, str] = {
    Agreement.AGREES: "agrees with the recorded message",
    Agreement.DIFFERS: "differs from the recorded message",
    Agreement.NOT_RECORDED: "no message is recorded",
    Agreement.NOT_COMPARABLE: "cannot be compared with the recorded message",
}
_TONES: Mapping[FindingSeverity, Tone] = {
    FindingSeverity.ERROR: Tone.BAD,
    FindingSeverity.WARNING: Tone.WARNING,
    FindingSeverity.INFO: Tone.INFO,
}
_NOUNS: Mapping[FindingSeverity, str] = {
    FindingSeverity.ERROR: "error",
    FindingSeverity.WARNING: "warning",
    FindingSeverity.INFO: "note",
}
_RISKS: Mapping[Risk, Tone] = {Risk.NONE: Tone.GOOD, Risk.MEDIUM: Tone.WARNING, Risk.HIGH: Tone.BAD}


def diagnosis_report(diagnosis: Diagnosis) -> Report:
    """Return the report of a diagnosis."""
    overview, unread = diagnosis.overview, {absent.objects for absent in diagnosis.absent}

    def section(title: str, needs: str, number: str, *blocks: Table | Items | Lines) -> Section:
        """Return a section, whose number is unknown if the objects that it needs were not read."""
        summary = number or (f"unknown: {needs} were not read" if needs in unread else "none")
        return Section(title=title, summary=summary, blocks=blocks)

    def number(count: int, noun: str) -> str:
        return format_count(count, noun) if count else ""

    pods, plugins = overview.pods, overview.device_plugins
    placed = (
        f"{format_count(len(pods), 'pod')} on {format_count(len({pod.node for pod in pods}), 'node')}" if pods else ""
    )
    waiting = number(sum(len(pending.pods) for pending in overview.pending), "pod")
    errors = number(len(overview.errors) + overview.more_errors, "error")
    sections = [
        section(
            "Findings",
            "",
            _findings_summary(diagnosis),
            Items(items=[*map(_finding_item, diagnosis.findings)], noun="finding"),
        ),
        section(
            "Pending GPU pods",
            "pods",
            waiting,
            Items(items=[*map(_pending_item, overview.pending)], noun="group of pods"),
        ),
        section("GPU nodes", "nodes", number(len(overview.nodes), "node"), *_node_blocks(overview.nodes)),
        section(
            "Device plugins",
            "daemonsets",
            number(len(plugins), "DaemonSet"),
            Table(
                heads=("DaemonSet", "desired", "ready"),
                rows=[(_qualified_name(each.name), f"{each.desired:,}", f"{each.ready:,}") for each in plugins],
                numbers=("desired", "ready"),
            ),
            Lines(
                lines=[
                    f"not ready: {pod.name.title} on {pod.node or 'no node'}: {pod.status}"
                    for plugin in plugins
                    for pod in plugin.unready
                ],
                noun="pod",
            ),
        ),
        section(
            "GPU pods by node",
            "pods",
            placed,
            Table(
                heads=("node", "Pod", "status", "holds", "since"),
                rows=[
                    (
                        pod.node,
                        _qualified_name(pod.name),
                        pod.status,
                        _amounts_text(pod.amounts),
                        "" if pod.since is None else format_time(pod.since),
                    )
                    for pod in pods
                ],
                noun="pod",
            ),
        ),
        section("Recent errors", "events", errors, *_error_blocks(overview.errors, overview.more_errors)),
    ]
    if diagnosis.not_evaluated:
        results = format_count(len(diagnosis.not_evaluated), "result")
        lines = Lines(lines=[*map(_not_evaluated_line, diagnosis.not_evaluated)], noun="result")
        sections.append(Section(title="Not evaluated", summary=results, blocks=(lines,)))
    return Report(
        title=f"Diagnosis of {format_time(diagnosis.now)}",
        about=[*_about_lines(diagnosis)],
        sections=sections,
        notices=[f"not read: {absent.objects}; unknown without them: {absent.unknown}" for absent in diagnosis.absent],
    )


def _about_lines(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"read: {', '.join(f'{objects} {number:,}' for objects, number in diagnosis.objects.items())}"
    scope = diagnosis.scope
    limits = [
        *([] if scope.pod is None else [scope.pod.title]),
        *([f"Node {scope.node}"] if scope.node else []),
        *([f"namespace {scope.namespace}"] if scope.namespace else []),
    ]
    if limits:
        yield f"only: {', '.join(limits)}"
    if diagnosis.rules:
        yield f"rules: {diagnosis.rules}"


def _findings_summary(diagnosis: Diagnosis) -> str:
    """Return the number of findings by severity, and the number of possible findings."""
    findings = [group.finding for group in diagnosis.findings]
    numbers = {level: sum(finding.severity is level for finding in findings) for level in FindingSeverity}
    possible = sum(finding.certainty is Certainty.POSSIBLE for finding in findings)
    parts = [format_count(number, _NOUNS[level]) for level, number in numbers.items() if number]
    return ", ".join(parts) + (f" ({possible:,} possible)" if possible else "")


def _finding_item(group: FindingGroup) -> Item:
    finding = group.finding
    severity = finding.severity.value + (", possible" if finding.certainty is Certainty.POSSIBLE else "")
    evidence = f"evidence of {finding.object.title}" if len(group.objects) > 1 else "evidence"
    fields = [
        *([Field("cause", finding.cause)] if finding.cause else []),
        *([Field("effects", "; ".join(map(_effect_text, group.effects)))] if group.effects else []),
        *(Field(evidence, line) for line in finding.evidence),
        *([Field("note", HOST_NOTE)] if finding.on_host else []),
        *map(_remedy_field, finding.remedies),
    ]
    if finding.location is not None:
        fields.append(Field("source", Span(f"{finding.source}  {finding.location}", Tone.QUIET)))
    return Item(
        title=(Span(severity, _TONES[finding.severity]), "  ", Span(finding.reason, Tone.STRONG)),
        tone=_TONES[finding.severity],
        lines=(finding.message,),
        fields=fields,
        objects=[name.title for name in group.objects],
    )


def _effect_text(finding: Finding) -> str:
    return f"{finding.reason} ({finding.message})"


def _remedy_field(remedy: Remedy) -> Field:
    risk = Span(f" (risk: {remedy.risk.value})", _RISKS[remedy.risk])
    return Field("remedy", (remedy.text, risk), command=remedy.command)


def _pending_item(pending: PendingPod) -> Item:
    finding, wants = pending.finding, _amounts_text(pending.amounts)
    since = "" if pending.since is None else f", since {format_time(pending.since)}"
    possible = " (possible)" if finding.certainty is Certainty.POSSIBLE else ""
    note = f": {pending.note}" if pending.note else ""
    return Item(
        tone=_TONES[finding.severity],
        lines=(f"{wants}{since}",),
        fields=[
            *([Field("recorded", pending.recorded)] if pending.recorded else []),
            *([Field("recomputed", pending.recomputed)] if pending.recomputed else []),
            Field("comparison", f"{_AGREEMENTS[pending.agreement]}{note}"),
            Field("finding", (Span(f"{finding.reason}{possible}", _TONES[finding.severity]), f": {finding.message}")),
        ],
        objects=[name.title for name in pending.pods],
    )


def _node_blocks(nodes: Sequence[GpuNode]) -> Iterator[Table | Lines]:
    heads = ("card", "state", "resource", "capacity", "allocatable", "allocated", "free", "use")
    numbers = ("nodes", "capacity", "allocatable", "allocated", "free")
    if len(nodes) <= MAX_NODES:
        rows = [row for node in nodes for row in _node_rows((node.name,), (node,))]
        yield Table(heads=("node", *heads), rows=rows, numbers=numbers)
        return
    groups: dict[tuple[object, ...], list[GpuNode]] = {}
    for node in nodes:
        shape = tuple((resource, each.capacity, each.allocatable) for resource, each in node.resources.items())
        groups.setdefault((node.product, _node_state(node), shape), []).append(node)
    rows = [row for alike in groups.values() for row in _node_rows((f"{len(alike):,}", alike[0].name), alike)]
    yield Lines(lines=[Span("nodes that are alike are one line, with their sums (--node NAME shows one)", Tone.QUIET)])
    yield Table(heads=("nodes", "first", *heads), rows=rows, numbers=numbers, noun="line")


def _node_rows(titles: Sequence[str], nodes: Sequence[GpuNode]) -> Iterator[Sequence[Cell]]:
    """Yield a row for each resource of nodes that are alike, with the sums; only the first row has `titles`."""
    first = nodes[0]
    node_cells: Sequence[Cell] = (*titles, first.product, _node_state(first))
    if not first.resources:
        yield (*node_cells, "none", "", "", "", "", "")
    for index, resource in enumerate(first.resources):
        each = _sum_amounts([node.resources[resource] for node in nodes])
        numbers = (each.capacity, each.allocatable, each.allocated, each.free)
        cells = ["?" if number is None else f"{number:,}" for number in numbers]
        has_share = each.allocated is not None and each.allocatable
        yield (
            *(("",) * len(node_cells) if index else node_cells),
            resource,
            *cells,
            Bar(Fraction(each.allocated or 0, each.allocatable) if has_share else None),
        )


def _node_state(node: GpuNode) -> str:
    """Return the state of a node, or "" if it accepts pods."""
    return ", ".join([*([] if node.ready else ["NotReady"]), *(["cordoned"] if node.cordoned else [])])


def _sum_amounts(amounts: Sequence[Amounts]) -> Amounts:
    def total(numbers: Sequence[int | None]) -> int | None:
        known = [number for number in numbers if number is not None]
        return sum(known) if len(known) == len(numbers) else None

    return Amounts(
        capacity=total([each.capacity for each in amounts]),
        allocatable=sum(each.allocatable for each in amounts),
        allocated=total([each.allocated for each in amounts]),
    )


def _error_blocks(errors: Iterable[RecentError], more: int) -> Iterator[Table | Lines]:
    yield Table(
        heads=("last", "count", "reason", "objects", "message"),
        rows=[
            (
                "" if error.at is None else format_time(error.at),
                f"{error.count:,}",
                error.reason,
                format_names(error.objects, lambda name: name.title),
                Span(error.message, Tone.QUIET),
            )
            for error in errors
        ],
        numbers=("count",),
        noun="error",
    )
    if more:
        yield Lines(lines=[Span(f"and {format_count(more, 'older error')}, left out of the report", Tone.QUIET)])


def _not_evaluated_line(each: NotEvaluated) -> str:
    first = f", the first {each.first.title}" if each.first is not None else ""
    return f"{each.source}: {each.why}" + (f" ({format_count(each.objects, 'object')}{first})" if each.objects else "")


def _qualified_name(name: ObjectName) -> str:
    """Return a name without its kind, which the heading of the column has."""
    return f"{name.namespace}/{name.name}"


def _amounts_text(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{amount:,} × {resource}" for resource, amount in amounts.items()) or "resource claims"
