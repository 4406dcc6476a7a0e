"""Answers as one HTML page that needs no other file and runs no script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rules_engine.difference.answer import Answer
from rules_engine.difference.output import sentences
from rules_engine.difference.output.shown_changes import Difference, ShownChange, fitting_limit, shown_changes
from rules_engine.difference.values import Kind
from rules_engine.html_page import render

TEMPLATE = Path(__file__).parent / "answer.html"

MAX_ROWS = 200
"""Changes, rows of a table of totals, and sentences: a page with more opens slowly, and JSON has them all."""

MAX_WORKLOADS = 2_000
"""Workloads of all changes together."""

UNFOLDED = 10
"""Rows of a table that are shown without a click."""

MAX_PARTS = 40
"""Differences of one change."""

MAX_TEXT = 1_000
"""Characters of a side of a difference, such as a message."""

_STYLES: Mapping[Kind, str] = {Kind.DENIED: "Error", Kind.UNKNOWN: "Warning"}
"""CSS classes of changes; all others are Info."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageChange:
    """A change with what the page shows of it. `rows`: name of the workload, and pods by cluster."""

    change: ShownChange
    css: str
    rows: Sequence[tuple[str, ...]]
    differences: Sequence[Difference]


def html_page(answer: Answer) -> str:
    """Return the page of `diff --output html`."""
    changes = shown_changes(answer.grouping.lines)
    limit = fitting_limit(changes, MAX_WORKLOADS)
    recorded = () if answer.recorded is None else sentences.recorded(answer.recorded)
    return render(
        TEMPLATE,
        answer=answer,
        changes=[_shown(answer, change, limit) for change in changes[:MAX_ROWS]],
        more_changes=len(changes) - MAX_ROWS,
        summary=sentences.summary(answer)[:MAX_ROWS],
        notes=sentences.notes(answer)[:MAX_ROWS],
        tables=sentences.tables(answer),
        recorded=recorded,
        heads=partial(sentences.column_heads, answer),
        extent=partial(sentences.extent, answer),
        pods=sentences.PODS,
        max_rows=MAX_ROWS,
        unfolded=UNFOLDED,
    )


def _shown(answer: Answer, change: ShownChange, limit: int) -> PageChange:
    return PageChange(
        change=change,
        css=_STYLES.get(change.kinds[0], "Info"),
        rows=[(name, *sentences.counts(answer, counts)) for name, counts in change.rows(limit)],
        differences=[difference.truncated(MAX_TEXT) for difference in change.differences[:MAX_PARTS]],
    )
