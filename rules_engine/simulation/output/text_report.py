"""Answers as text, on a terminal or in a pipe."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TextIO

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from rules_engine.model.excerpt import visible
from rules_engine.model.gpu_resources import is_gpu, short_name
from rules_engine.model.wording import counted
from rules_engine.simulation.answer import Answer, Result
from rules_engine.simulation.comparison import Verdict
from rules_engine.simulation.output import sentences
from rules_engine.simulation.output.equal_pods import equal_pods
from rules_engine.simulation.record import State
from rules_engine.simulation.totals import NodeUse, ResourceUse
from rules_engine.terminal import BOLD, DIM, MAX_ROWS, TextReport, table

BAR = 20
"""Columns of a bar."""

CURVE = 40
"""Columns of a curve."""

MAX_HEAD = 20
"""Columns of the name of a rule set above its values."""

LEVELS = " ▁▂▃▄▅▆▇█"

_VERDICTS: Mapping[Verdict, Style] = {
    Verdict.BETTER: Style(color="green"),
    Verdict.WORSE: Style(color="red"),
    Verdict.EQUAL: DIM,
    Verdict.DIFFERENT: Style(color="yellow"),
    Verdict.UNKNOWN: DIM,
}


def print_answer(answer: Answer, stream: TextIO) -> None:
    """Print an answer: for each rule set what happened, then the comparison."""
    _TextReport(answer, stream).print()


def bar(use: ResourceUse) -> str:
    """Return a bar of the mean use of a resource."""
    share = use.share
    filled = 0 if share is None else min(round(share * BAR), BAR)
    return f"{'█' * filled}{'░' * (BAR - filled)} {sentences.percent(share):>4}"


def curve(parts: Sequence[Fraction], capacity: int) -> str:
    """Return the use of a resource over time, in columns of equal time; none of them is empty."""
    columns = min(CURVE, len(parts))
    edges = [column * len(parts) // columns for column in range(columns + 1)]
    means = [sum(parts[start:end], Fraction()) / (end - start) for start, end in pairwise(edges)]
    top = len(LEVELS) - 1
    return "".join(LEVELS[min(-(-mean * top // capacity), top)] for mean in means)


class _TextReport(TextReport):
    numbers = frozenset({"CAPACITY", "PEAK", "END", "FRAGMENTED", "PODS", "DEVICES", "ARRIVED", "WAITED"})

    def __init__(self, answer: Answer, stream: TextIO) -> None:
        super().__init__(stream)
        self._answer = answer

    def print(self) -> None:
        for index, result in enumerate(self._answer.results):
            if index:
                self._line("")
            self._result(result)
        self._comparison()

    def _result(self, result: Result) -> None:
        record, totals = result.record, result.totals
        self._line(Text(visible(f"Simulation {record.simulation.name}: {sentences.duration(totals.time)}"), BOLD))
        self._line(f"  {sentences.head(record.simulation, len(record.nodes))}")
        self._line(f"  rules: {record.rules}")
        if record.interrupted:
            at = sentences.duration(totals.time)
            self._line(Text(f"  interrupted at {at}: nothing after that is simulated", "yellow"))
        for notice in record.notices:
            self._line(Text(visible(f"  {notice}"), "yellow"))
        for group in totals.not_modelled:
            self._line(Text(visible(f"  not modelled: {group.text}, used by {sentences.names(group.pods)}"), "yellow"))
        self._section("Pods", f"{totals.pods:,}: {sentences.states(totals)}" if totals.pods else "none")
        if totals.pods:
            self._line(f"  waiting time: {sentences.waiting(totals)}")
        self._resources(result)
        if totals.gpu_hours.capacity or totals.gpu_hours.requested:
            self._section("GPU-hours", sentences.gpu_hours(totals))
        self._falls(result)
        self._denials(result)
        self._nodes(result)
        self._pods(result)
        self._pending(result)

    def _resources(self, result: Result) -> None:
        resources = result.totals.resources
        self._section("Use of resources", "" if resources else "none")
        self._table(
            ("RESOURCE", "CAPACITY", "MEAN", "PEAK", "END", "FRAGMENTED"),
            [
                (
                    short_name(name),
                    sentences.amount(name, use.capacity),
                    bar(use),
                    sentences.amount(name, use.peak),
                    sentences.amount(name, use.end),
                    "" if use.fragmentation is None else sentences.percent(use.fragmentation),
                )
                for name, use in resources.items()
            ],
        )
        curves = {short_name(name): use for name, use in resources.items() if is_gpu(name) and use.capacity}
        width = max(map(len, curves), default=0)
        for name, use in curves.items():
            end = sentences.duration(result.totals.time)
            self._line(f"  {name:{width}}  0s ▕{curve(use.curve, use.capacity)}▏ {end}")

    def _falls(self, result: Result) -> None:
        falls = result.totals.falls
        if not falls:
            return
        self._section("Falls", counted(result.totals.fell, "pod"))
        rows = [
            (
                f"{short_name(fall.requested)} → {short_name(fall.given)}",
                f"{fall.pods:,}",
                f"{fall.devices:,}",
                fall.rule,
            )
            for fall in falls[:MAX_ROWS]
        ]
        self._table(("REQUESTED → GIVEN", "PODS", "DEVICES", "RULE"), rows)
        self._more(len(falls) - MAX_ROWS, "fall")

    def _denials(self, result: Result) -> None:
        denials = result.totals.denials
        if not denials:
            return
        self._section("Denied", counted(result.totals.states[State.DENIED], "pod"))
        for group in denials[:MAX_ROWS]:
            self._line(f"  {sentences.names(group.pods)}: {group.text}")
        self._more(sum(len(group.pods) for group in denials[MAX_ROWS:]), "pod")

    def _nodes(self, result: Result) -> None:
        nodes = result.totals.nodes
        self._section("Nodes", counted(len(nodes), "node"))
        gpu_nodes = [node for node in nodes if any(map(is_gpu, node.resources))]
        shown = gpu_nodes or nodes
        rows = [row for node in shown[:MAX_ROWS] for row in _use_rows(node)]
        self._table(("NODE", "PODS", "RESOURCE", "CAPACITY", "MEAN", "PEAK", "END"), rows)
        self._more(len(shown) - MAX_ROWS, "node")
        if len(shown) < len(nodes):
            self._line(Text(f"  and {counted(len(nodes) - len(shown), 'node')} without GPUs", DIM))
        for change in result.record.changes[:MAX_ROWS]:
            self._line(f"  {sentences.duration(change.at)}: {change.node} becomes {change.becomes.value}")
        self._more(len(result.record.changes) - MAX_ROWS, "change")

    def _pods(self, result: Result) -> None:
        record = result.record
        if not record.pods:
            return
        self._line("")
        if len(record.pods) <= MAX_ROWS:
            self._table(
                ("POD", "REQUESTS", "STATE", "NODE", "ARRIVED", "WAITED"),
                [
                    (
                        sentences.full_name(pod),
                        sentences.request(pod),
                        sentences.pod_state(pod),
                        pod.node,
                        sentences.duration(max(pod.arrived, 0)),
                        sentences.waiting_time(pod, record),
                    )
                    for pod in record.pods
                ],
            )
            return
        groups = equal_pods(record)
        self._table(
            ("ARRIVAL", "PODS", "REQUESTS", "STATES"),
            [
                (
                    group.title,
                    f"{len(group.pods):,}",
                    group.request,
                    sentences.group_states(group.states),
                )
                for group in groups[:MAX_ROWS]
            ],
        )
        self._more(len(groups) - MAX_ROWS, "line")

    def _pending(self, result: Result) -> None:
        pending = result.totals.pending
        if not pending:
            return
        self._section("Waiting at the end", counted(result.totals.waiting.waiting, "pod"))
        for group in pending[:MAX_ROWS]:
            wants = f": {sentences.devices(group.given)}"
            self._line(Text.assemble("  ", (visible(sentences.names(group.pods)), BOLD), visible(wants)))
            self._line(f"      {group.text}")
        self._more(sum(len(group.pods) for group in pending[MAX_ROWS:]), "pod")

    def _comparison(self) -> None:
        results = self._answer.results
        if len(results) == 1:
            return
        if not self._answer.comparison:
            self._section("Comparison", "none: parts of a simulation are not comparable")
            return
        first, *others = [result.record.rules for result in results]
        self._section("Comparison", f"with {first}")
        for index, other in enumerate(others):
            self._line(f"  {other}")
            rows, verdicts = [], []
            for each in self._answer.comparison:
                unit = each.metric.unit
                old, new = (sentences.value(found, unit) for found in (each.values[0], each.values[index + 1]))
                rows.append(
                    (each.metric.title, old, new, each.verdicts[index].value, sentences.DIRECTIONS[each.metric.better])
                )
                verdicts.append(each.verdicts[index])
            heads = _heads(first, other)
            head, *lines = table(("METRIC", *heads, "VERDICT", ""), rows, heads)
            self._line(head)
            for line, verdict in zip(lines, verdicts, strict=True):
                line.highlight_words([f"  {verdict.value}"], _VERDICTS[verdict])
                self._line(line)


def _heads(*rules: str) -> Sequence[str]:
    """Return the heads of the values under two rule sets: their names, if those are short."""
    names = [visible(name) for name in rules]
    return names if max(map(cell_len, names)) <= MAX_HEAD else ("FIRST", "OTHER")


def _use_rows(node: NodeUse) -> Iterable[Sequence[str]]:
    """Yield a row for each GPU resource of a node, or for each resource if it has no GPUs; its name is in the first."""
    names = [name for name in node.resources if is_gpu(name)] or list(node.resources)
    for index, name in enumerate(names):
        use = node.resources[name]
        first = ("", "") if index else (node.node, f"{node.pods:,}")
        yield (
            *first,
            short_name(name),
            sentences.amount(name, use.capacity),
            bar(use),
            sentences.amount(name, use.peak),
            sentences.amount(name, use.end),
        )
