"""Reports as text, on a terminal or in a pipe."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TextIO

from rich.style import Style
from rich.text import Text

from rules_engine.diagnosis.output import sentences
from rules_engine.diagnosis.output.node_groups import node_groups, state
from rules_engine.diagnosis.report import Amounts, FindingGroup, GpuNode, GpuPod, PendingPod, Report
from rules_engine.diagnosis.wording import time
from rules_engine.model.excerpt import visible
from rules_engine.model.finding import Certainty, Finding, FindingSeverity, Risk
from rules_engine.model.wording import counted, names
from rules_engine.terminal import BOLD, DIM, MAX_ROWS, TextReport

MAX_FINDINGS = 100
"""Findings that are shown: of more, the others are counted; JSON has them all."""

_SEVERITIES: Mapping[FindingSeverity, Style] = {
    FindingSeverity.ERROR: Style(color="red", bold=True),
    FindingSeverity.WARNING: Style(color="yellow", bold=True),
    FindingSeverity.INFO: Style(color="cyan", bold=True),
}
_RISKS: Mapping[Risk, Style] = {
    Risk.NONE: Style(color="green"),
    Risk.MEDIUM: Style(color="yellow"),
    Risk.HIGH: Style(color="red"),
}

_Row = Sequence[str]


def print_report(report: Report, stream: TextIO) -> None:
    """Print a report: what was read, the five sections, the findings, and what was not evaluated."""
    _TextReport(report, stream).print()


class _TextReport(TextReport):
    numbers = frozenset({"NODES", "CAPACITY", "ALLOCATABLE", "ALLOCATED", "FREE", "DESIRED", "READY"})

    def __init__(self, report: Report, stream: TextIO) -> None:
        super().__init__(stream)
        self._report = report

    def print(self) -> None:
        report, overview = self._report, self._report.overview
        self._head()
        self._nodes(overview.nodes)
        self._device_plugins()
        self._pods(overview.pods)
        self._pending(overview.pending)
        self._errors()
        self._counted("Findings", sentences.totals(report), report.findings)
        for group in report.findings[:MAX_FINDINGS]:
            self._finding(group)
        self._more(len(report.findings) - MAX_FINDINGS, "finding")
        if report.not_evaluated:
            self._section("Not evaluated", counted(len(report.not_evaluated), "result"))
            for each in report.not_evaluated:
                first = f", the first {each.first}" if each.first is not None else ""
                objects = f" ({counted(each.objects, 'object')}{first})" if each.objects else ""
                self._line(f"  {each.source}: {each.why}{objects}")

    def _head(self) -> None:
        report = self._report
        self._line(Text(f"Diagnosis of {time(report.now)}", BOLD))
        self._line(f"  read: {sentences.read(report)}")
        for absent in report.absent:
            self._line(Text(f"  not read: {absent.objects}; unknown without them: {absent.unknown}", "yellow"))
        if sentences.limits(report):
            self._line(f"  only: {sentences.limits(report)}")
        if report.rules:
            self._line(f"  rules: {report.rules}")

    def _nodes(self, nodes: Sequence[GpuNode]) -> None:
        head = ("NODE", "CARD", "STATE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "ALLOCATED", "FREE")
        self._counted("GPU nodes", counted(len(nodes), "node"), nodes, "nodes")
        if len(nodes) <= MAX_ROWS:
            rows = [
                row for node in nodes for row in _amount_rows((node.name, node.product, state(node)), node.resources)
            ]
            self._table(head, rows)
            return
        self._line(Text("  nodes that are alike are one line, with their sums (--node NAME shows one)", DIM))
        groups = node_groups(nodes)
        self._table(
            ("NODES", "FIRST", *head[1:]),
            [
                row
                for group in groups[:MAX_ROWS]
                for row in _amount_rows(
                    (f"{len(group.nodes):,}", group.nodes[0].name, group.product, group.state), group.resources
                )
            ],
        )
        self._more(len(groups) - MAX_ROWS, "line")

    def _device_plugins(self) -> None:
        plugins = self._report.overview.device_plugins
        self._counted("Device plugins", counted(len(plugins), "DaemonSet"), plugins, "daemonsets")
        self._table(
            ("DAEMONSET", "DESIRED", "READY"),
            [(f"{each.name.namespace}/{each.name.name}", f"{each.desired:,}", f"{each.ready:,}") for each in plugins],
        )
        unready = [pod for plugin in plugins for pod in plugin.unready]
        for pod in unready[:MAX_ROWS]:
            self._line(f"  not ready: {pod.name.namespace}/{pod.name.name} on {pod.node or 'no node'}: {pod.status}")
        self._more(len(unready) - MAX_ROWS, "pod")

    def _pods(self, pods: Sequence[GpuPod]) -> None:
        on = counted(len({pod.node for pod in pods}), "node")
        self._counted("GPU pods by node", f"{counted(len(pods), 'pod')} on {on}", pods, "pods")
        rows: list[_Row] = []
        for node, placed in groupby(pods[:MAX_ROWS], key=lambda pod: pod.node):
            for index, pod in enumerate(placed):
                name = f"{pod.name.namespace}/{pod.name.name}"
                since = "" if pod.since is None else time(pod.since)
                rows.append(("" if index else node, name, pod.status, sentences.amounts(pod.amounts), since))
        self._table(("NODE", "POD", "STATUS", "HOLDS", "SINCE"), rows)
        self._more(len(pods) - MAX_ROWS, "pod")

    def _pending(self, pending: Sequence[PendingPod]) -> None:
        number = sum(len(each.pods) for each in pending)
        self._counted("Pending GPU pods", counted(number, "pod"), pending, "pods")
        for each in pending[:MAX_ROWS]:
            pods = visible(names(each.pods))
            wants = f": {sentences.amounts(each.amounts)}{sentences.since(each.since)}"
            self._line(Text.assemble("  ", (pods, BOLD), visible(wants)))
            if each.recorded:
                self._line(f"      recorded:   {each.recorded}")
            if each.recomputed:
                self._line(f"      recomputed: {each.recomputed}")
            self._line(f"      {sentences.comparison(each)}")
            self._line(Text.assemble("      finding: ", *_reason(each.finding), f": {visible(each.finding.message)}"))
        self._more(sum(len(each.pods) for each in pending[MAX_ROWS:]), "pod")

    def _errors(self) -> None:
        overview = self._report.overview
        number = counted(len(overview.errors) + overview.more_errors, "error")
        self._counted("Recent errors", number, overview.errors, "events")
        for error in overview.errors[:MAX_ROWS]:
            at = "" if error.at is None else f"{time(error.at)}  "
            head = f"  {at}{error.count:,} × {error.reason}  {names(error.objects)}"
            self._line(Text.assemble(visible(head), (visible(f": {error.message}"), DIM)))
        self._more(len(overview.errors) - MAX_ROWS, "error")
        if overview.more_errors:
            left_out = counted(overview.more_errors, "older error")
            self._line(Text(f"  and {left_out}, left out of the report", DIM))

    def _finding(self, group: FindingGroup) -> None:
        finding = group.finding
        self._line("")
        self._line(
            Text.assemble(
                (sentences.severity(finding), _SEVERITIES[finding.severity]),
                "  ",
                (visible(finding.reason), BOLD),
                visible(f"  {names(group.objects)}"),
            )
        )
        self._line(f"  {finding.message}")
        if finding.cause:
            self._line(f"  cause: {finding.cause}")
        if group.effects:
            self._line(f"  effects: {sentences.effects(group)}")
        for line in finding.evidence:
            self._line(f"  {sentences.evidence(group)}: {line}")
        if finding.on_host:
            self._line(f"  {sentences.HOST}")
        for remedy in finding.remedies:
            risk = f" (risk: {remedy.risk.value})"
            self._line(Text.assemble(visible(f"  remedy: {remedy.text}"), (risk, _RISKS[remedy.risk])))
            for line in remedy.command.splitlines():
                self._line(f"      {line}")
        if finding.location is not None:
            self._line(Text(visible(f"  {finding.source}  {finding.location}"), DIM))

    def _counted(self, title: str, number: str, items: Sequence[object], needs: str = "") -> None:
        """Print the title of a section with the number of its items: none, or not known if objects were not read."""
        unread = needs in {absent.objects for absent in self._report.absent}
        self._section(title, number if items else f"unknown: {needs} were not read" if unread else "none")


def _amount_rows(names: Sequence[str], resources: Mapping[str, Amounts]) -> Iterable[_Row]:
    """Yield a row for each resource of a node; the names are in the first one."""
    if not resources:
        yield (*names, "none", "", "", "", "")
    for index, (resource, each) in enumerate(resources.items()):
        numbers = (each.capacity, each.allocatable, each.allocated, each.free)
        shown = ["?" if number is None else f"{number:,}" for number in numbers]
        yield (*(("",) * len(names) if index else names), resource, *shown)


def _reason(finding: Finding) -> Iterable[tuple[str, Style]]:
    yield visible(finding.reason), _SEVERITIES[finding.severity]
    if finding.certainty is Certainty.POSSIBLE:
        yield " (possible)", _SEVERITIES[finding.severity]
