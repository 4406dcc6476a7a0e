"""Answers as text, on a terminal or in a pipe."""

from collections.abc import Mapping
from typing import TextIO

from rich.style import Style
from rich.text import Text

from rules_engine.difference.answer import Answer
from rules_engine.difference.output import sentences
from rules_engine.difference.output.shown_changes import ShownChange, fitting_limit, shown_changes
from rules_engine.difference.values import Kind
from rules_engine.model.excerpt import visible
from rules_engine.terminal import BOLD, MAX_ROWS, TextReport, table

MAX_TEXT = 500
"""Characters of a side of a difference, such as a message."""

MAX_PARTS = 20
"""Differences of one change: a pod may have hundreds of containers."""

_STYLES: Mapping[Kind, Style] = {
    Kind.DENIED: Style(color="red", bold=True),
    Kind.ADMITTED: Style(color="green", bold=True),
    Kind.UNKNOWN: Style(color="yellow", bold=True),
}


def print_answer(answer: Answer, stream: TextIO) -> None:
    """Print an answer: the changes with their workloads, then the totals."""
    _TextReport(answer, stream).print()


class _TextReport(TextReport):
    def __init__(self, answer: Answer, stream: TextIO) -> None:
        super().__init__(stream)
        self._answer = answer

    def print(self) -> None:
        answer = self._answer
        self._line(Text("Difference of rules", BOLD))
        self._line(f"  old: {answer.old}")
        self._line(f"  new: {answer.new}")
        self._changes()
        self._totals()
        self._recorded()
        self._section("Result", "")
        for sentence in sentences.summary(answer):
            self._line(f"  {sentence}")
        for note in sentences.notes(answer):
            self._line(Text(visible(f"  {note}"), "yellow"))

    def _changes(self) -> None:
        changes = shown_changes(self._answer.grouping.lines)
        limit, rows = fitting_limit(changes, MAX_ROWS), 0
        for index, change in enumerate(changes):
            if rows >= MAX_ROWS:
                self._line("")
                self._more(len(changes) - index, "change")
                return
            rows += self._change(change, limit)

    def _change(self, change: ShownChange, limit: int) -> int:
        """Print a change with its first workloads; return the number of rows."""
        self._line("")
        extent = sentences.extent(self._answer, change)
        self._line(Text.assemble((change.title, _STYLES.get(change.kinds[0], BOLD)), f"  {extent}"))
        heads = sentences.column_heads(self._answer, sentences.PODS.upper())
        rows = [(name, *sentences.counts(self._answer, of)) for name, of in change.rows(limit)]
        for line in table(("WORKLOAD", *heads), rows, heads):
            self._line(line)
        for difference in change.differences[:MAX_PARTS]:
            self._line(f"    {difference.truncated(MAX_TEXT)}")
        self._more(len(change.differences) - MAX_PARTS, "difference")
        return len(rows)

    def _totals(self) -> None:
        for each in sentences.tables(self._answer):
            self._section(each.title, "")
            heads = sentences.column_heads(self._answer, each.column.upper())
            for line in table((each.head.upper(), *heads), each.rows[:MAX_ROWS], heads):
                self._line(line)
            self._more(len(each.rows) - MAX_ROWS, "row")

    def _recorded(self) -> None:
        if self._answer.recorded is None:
            return
        self._section("Recorded admissions", "")
        found = sentences.recorded(self._answer.recorded)
        for sentence in found[:MAX_ROWS]:
            self._line(f"  {sentence}")
        self._more(len(found) - MAX_ROWS, "reason")
