"""The report of `doctor`: first findings, then the overview of the cluster, and last what was not read."""

from collections.abc import Iterator, Mapping, Sequence

from rules_engine.accelerators.resources import short_name
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity, Remedy, Risk
from rules_engine.model.wording import format_count, format_names, format_time
from rules_engine.questions.doctor.values import Affected, Diagnosis, FindingGroup, GpuNode, RecentError
from rules_engine.report.values import Cell, Item, ItemField, Items, Lines, Report, Section, Span, Table, Tone, Words

MAX_NODES = 40
"""Largest number of nodes with a line each: in a larger cluster, nodes that are alike share a line."""

HOST_NOTE = "The Kubernetes API does not show the cause: these commands look on the node itself."
"""The sentence of a finding whose cause only the node shows."""

_TONES: Mapping[FindingSeverity, Tone] = {
    FindingSeverity.ERROR: Tone.BAD,
    FindingSeverity.WARNING: Tone.WARNING,
    FindingSeverity.INFO: Tone.INFO,
}


def diagnosis_report(diagnosis: Diagnosis) -> Report:
    """Return the report of a diagnosis. Sections without content are left out, unless that is an answer."""
    findings = [_finding_item(group, with_source=bool(diagnosis.rules)) for group in diagnosis.findings]
    return Report(
        title="Diagnosis" + ("" if diagnosis.time is None else f" of {format_time(diagnosis.time)}"),
        about=[*_about_lines(diagnosis)],
        sections=[
            Section(
                title="Findings", summary=_findings_summary(diagnosis), blocks=[Items(items=findings, noun="finding")]
            ),
            *_overview_sections(diagnosis),
        ],
        notices=[*_notices(diagnosis)],
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
    counts = diagnosis.counts
    numbers = {"error": counts.error, "warning": counts.warning, "note": counts.info}
    parts = [format_count(number, noun) for noun, number in numbers.items() if number] or ["none"]
    waiting = diagnosis.pending_pods
    return (
        ", ".join(parts)
        + (f" ({counts.possible:,} possible)" if counts.possible else "")
        + (f"; {format_count(waiting, 'GPU pod')} {'waits' if waiting == 1 else 'wait'} for a node" if waiting else "")
    )


def _finding_item(finding: FindingGroup, *, with_source: bool) -> Item:
    """Return a finding; `with_source`: not all Diagnostics are packaged, so that it matters where one is."""
    tone = _TONES[finding.severity]
    severity = finding.severity.value + (", possible" if finding.certainty is Certainty.POSSIBLE else "")
    several = len(finding.objects) > 1
    evidence = [f"evidence of {finding.object.title}" if several else "evidence", *["evidence"] * len(finding.evidence)]
    effects = [f"{effect.reason} ({effect.message})" for effect in finding.effects]
    fields = [
        *([ItemField("cause", finding.cause)] if finding.cause else []),
        *(
            [ItemField("oldest pending since" if several else "pending since", format_time(finding.since))]
            if finding.since
            else []
        ),
        *remaining_fields(finding),
        *([ItemField("effects", "; ".join(effects))] if effects else []),
        *map(ItemField, evidence, finding.evidence),
        *([ItemField("note", HOST_NOTE)] if finding.on_host else []),
        *map(_remedy_field, finding.remedies),
    ]
    if with_source and finding.source is not None:
        fields.append(ItemField("source", Span(f"{finding.diagnostic}  {finding.source}", Tone.QUIET)))
    return Item(
        title=(Span(severity, tone), "  ", Span(finding.reason, Tone.STRONG)),
        tone=tone,
        lines=(finding.message,),
        fields=fields,
        objects=_titles(finding.affected),
    )


def remaining_fields(finding: Finding) -> Sequence[ItemField]:
    """Return a line about what keeps a pod waiting when the cause of a finding is gone."""
    causes = [f"{each.reason}: {each.message}" for each in finding.remaining]
    return [ItemField("then", "; ".join(causes))] if causes else []


def _remedy_field(remedy: Remedy) -> ItemField:
    if remedy.risk is Risk.NONE:
        return ItemField("remedy", remedy.text, command=remedy.command)
    risk = Span(f" (risk: {remedy.risk.value})", Tone.BAD if remedy.risk is Risk.HIGH else Tone.WARNING)
    return ItemField("remedy", (remedy.text, risk), command=remedy.command)


def _overview_sections(diagnosis: Diagnosis) -> Iterator[Section]:
    nodes, plugins, pods = diagnosis.nodes, diagnosis.device_plugins, diagnosis.pods
    if nodes or "nodes" in diagnosis.objects:
        summary = format_count(len(nodes), "node") if nodes else "none"
        yield Section(title="GPU nodes", summary=summary, blocks=[*_node_blocks(nodes)])
    if plugins:
        unready = [plugin for plugin in plugins if plugin.ready < plugin.desired or plugin.unready]
        state = f"{len(unready):,} with pods that are not ready" if unready else "all pods are ready"
        lines = [f"{_qualified_name(each.name)}: {each.ready:,} of {each.desired:,} ready" for each in unready]
        lines += [
            f"not ready: {pod.name.title} on {pod.node or 'no node'}: {pod.status}"
            for plugin in unready
            for pod in plugin.unready
        ]
        yield Section(
            title="Device plugins",
            summary=f"{format_count(len(plugins), 'DaemonSet')}, {state}",
            blocks=[Lines(lines=lines)],
        )
    if pods:
        table = Table(
            heads=("node", "Pod", "holds", "status"),
            rows=[
                (
                    pod.node,
                    _qualified_name(pod.name),
                    ", ".join(f"{amount:,} {short_name(resource)}" for resource, amount in pod.amounts.items()),
                    pod.status,
                )
                for pod in pods
            ],
            noun="pod",
        )
        summary = f"{format_count(len(pods), 'pod')} on {format_count(len({pod.node for pod in pods}), 'node')}"
        yield Section(title="GPU pods by node", summary=summary, blocks=[table])
    if diagnosis.errors:
        yield Section(
            title="Recent errors",
            summary=format_count(len(diagnosis.errors), "error"),
            blocks=[Lines(lines=[*map(_error_line, diagnosis.errors)], noun="error")],
        )


def _node_blocks(nodes: Sequence[GpuNode]) -> Iterator[Table | Lines]:
    heads = ("card", "device", "free", "state")
    if len(nodes) <= MAX_NODES:
        rows = [row for node in nodes for row in _node_rows((node.name,), (node,))]
        yield _without_empty_columns(("node", *heads), rows)
        return
    groups: dict[tuple[object, ...], list[GpuNode]] = {}
    for node in nodes:
        shape = tuple((resource, each.allocatable) for resource, each in node.resources.items())
        groups.setdefault((node.product, _node_state(node), shape), []).append(node)
    rows = [row for alike in groups.values() for row in _node_rows((f"{len(alike):,}", alike[0].name), alike)]
    yield Lines(lines=[Span("nodes that are alike are one line, with their sums (--node NAME shows one)", Tone.QUIET)])
    yield _without_empty_columns(("nodes", "first", *heads), rows)


def _without_empty_columns(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """Return a table of nodes, without the card or the state if no node has one."""
    shown = [index for index in range(len(heads)) if not rows or any(row[index] for row in rows)]
    return Table(
        heads=[heads[index] for index in shown],
        rows=[[row[index] for index in shown] for row in rows],
        numbers=("nodes", "free"),
        noun="line",
    )


def _node_rows(titles: Sequence[str], nodes: Sequence[GpuNode]) -> Iterator[Sequence[Cell]]:
    """Yield a row for each resource of nodes that are alike, with the sums; only the first row has `titles`."""
    first = nodes[0]
    for index, resource in enumerate(first.resources or ("none",)):
        shares = [node.resources[resource] for node in nodes] if first.resources else []
        free = [share.free for share in shares if share.free is not None]
        total = sum(share.allocatable for share in shares)
        free_text = f"{sum(free):,}" if len(free) == len(shares) else "?"
        yield (
            *(("",) * len(titles) if index else titles),
            "" if index else first.product.removeprefix("NVIDIA-"),
            short_name(resource),
            f"{free_text} of {total:,}" if shares else "",
            "" if index else _node_state(first),
        )


def _node_state(node: GpuNode) -> str:
    """Return the state of a node, or "" if it accepts pods."""
    return ", ".join([*([] if node.ready else ["NotReady"]), *(["cordoned"] if node.cordoned else [])])


def _error_line(error: RecentError) -> Words:
    last = "" if error.at is None else f"{format_time(error.at)}  "
    times = f" × {error.count:,}" if error.count > 1 else ""
    about = f"{times}  {format_names(_titles(error.affected))}"
    return last, Span(error.reason, Tone.WARNING), about, Span(f": {error.message}", Tone.QUIET)


def _notices(diagnosis: Diagnosis) -> Iterator[str]:
    for each in diagnosis.not_evaluated:
        if not each.unread:
            first = f", the first {each.first.title}" if each.first is not None and each.objects > 1 else ""
            yield f"not evaluated: {each.diagnostic} for {format_count(each.objects, 'object')}{first}: {each.why}"
    if diagnosis.not_read:
        names = format_names([absent.objects for absent in diagnosis.not_read])
        waiting = len({each.diagnostic for each in diagnosis.not_evaluated if each.unread})
        needed = (
            f", which {format_count(waiting, 'Diagnostic')} {'needs' if waiting == 1 else 'need'}" if waiting else ""
        )
        yield f"not read: {names}{needed} (gpu-rules capture saves them; --output json says what is unknown)"


def _titles(affected: Sequence[Affected]) -> Sequence[str]:
    return [title for each in affected for title in each.titles]


def _qualified_name(name: ObjectName) -> str:
    """Return a name without its kind, which the heading has."""
    return f"{name.namespace}/{name.name}"
