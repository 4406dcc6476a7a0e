"""Answers as Markdown for a comment on a pull request.

Texts of pods and rules are in code, where GitHub renders no markup, links and mentions.
"""

import re
from collections.abc import Sequence

from rules_engine.difference.answer import Answer
from rules_engine.difference.output import sentences
from rules_engine.difference.output.shown_changes import Difference, ShownChange, limits, shown_changes
from rules_engine.model.excerpt import truncate, visible
from rules_engine.model.wording import counted

MAX_BYTES = 60_000
"""Bytes of the text: GitHub limits a comment to 65,536 characters, and a workflow adds a few of its own."""

MAX_SENTENCES = 10_000
"""Bytes of the sentences on all pods: with those of the totals, half of the text, so that there is room for changes."""

MAX_TOTALS = 20_000
"""Bytes of the tables of totals."""

END = 300
"""Bytes of the lines that fold rows and count those that do not fit."""

UNFOLDED = 50
"""Rows of workloads that are shown without a click."""

MAX_ROWS = 20
"""Rows of a table of totals."""

MAX_PARTS = 10
"""Differences of one change."""

MAX_TEXT = 300
"""Characters of a text of a pod or a rule."""

_MARKUP = re.compile(r"[!-$&*<-@\[-`{-~]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""ASCII punctuation with a meaning within a line of GitHub's Markdown, where URLs are links without markup."""

_NOT_IN_A_SPAN = re.compile(r"[`|\\]")
"""Characters that end a code span or a cell of a table, or escape that."""

_REFERENCE = re.compile("&#(?:35|64);")
"""Escaped "@" and "#", with which mentions and references of issues begin: GitHub finds them after the escapes."""


def markdown(answer: Answer) -> str:
    """Return the text of `diff --output markdown`, of at most MAX_BYTES bytes."""
    first, *further = [*_title(answer), *sentences.summary(answer), *sentences.notes(answer)]
    if answer.recorded is not None:
        further += sentences.recorded(answer.recorded)
    listed = [f"- {_plain(sentence)}" for sentence in further]
    lines = [f"### gpu-rules diff: {_plain(first)}", "", f"{_code(answer.old)} → {_code(answer.new)}", ""]
    lines += [*_first(listed, MAX_SENTENCES, "line"), ""]
    totals = _totals(answer)
    lines += [*_changes(answer, MAX_BYTES - _size(lines) - _size(totals)), *totals]
    return "\n".join(lines).rstrip("\n") + "\n"


def _title(answer: Answer) -> Sequence[str]:
    """Return the names of the clusters with changes; nothing if there is only one cluster, whose sentence is first."""
    clusters = [*zip(sentences.column_heads(answer, ""), answer.grouping.totals.values(), strict=True)]
    changed = ", ".join(name for name, totals in clusters if totals.changed)
    return [f"changes ({changed})" if changed else "no changes"] if len(clusters) > 1 else []


def _changes(answer: Answer, size: int) -> Sequence[str]:
    """Return the table of the workloads that change: as many of each change as fit for all of them."""
    changes = shown_changes(answer.grouping.lines)
    head = _head("workload", sentences.column_heads(answer, sentences.PODS), "change")
    for limit in limits(changes):
        rows, left_out = _rows(answer, changes, limit, size - 2 * _size(head) - END)
        if not left_out:
            break
    more = [_more(left_out, "change"), ""] if left_out else []
    if not rows:
        return more
    lines = [*head, *rows[:UNFOLDED], ""]
    folded = rows[UNFOLDED:]
    if not folded:
        return [*lines, *more]
    return [*lines, *_fold(f"{len(folded):,} more"), *head, *folded, "", *more, "</details>", ""]


def _rows(answer: Answer, changes: Sequence[ShownChange], limit: int, size: int) -> tuple[Sequence[str], int]:
    """Return rows of so many workloads of each change, and the number of changes that do not fit."""
    rows: list[str] = []
    for index, change in enumerate(changes):
        described = cell = _described(change)
        for name, counts in change.rows(limit):
            if len(rows) == UNFOLDED:
                cell = described
            row = _row(_code(name), *sentences.counts(answer, counts), cell)
            size -= _size([row])
            if size < 0:
                return rows, len(changes) - index
            rows.append(row)
            cell = "as above"
    return rows, 0


def _described(change: ShownChange) -> str:
    """Return the cell with the kinds and differences of a change."""
    parts = [f"**{change.title}**", *map(_difference, change.differences[:MAX_PARTS])]
    if len(change.differences) > MAX_PARTS:
        parts.append(_more(len(change.differences) - MAX_PARTS, "difference"))
    return "<br>".join(parts)


def _difference(difference: Difference) -> str:
    before, after = _code(difference.before), _code(difference.after)
    return f"{_code(difference.title)}: {before if before == after else f'{before} → {after}'}"


def _totals(answer: Answer) -> list[str]:
    """Return the tables of totals, folded."""
    lines: list[str] = []
    for table in sentences.tables(answer):
        heads = sentences.column_heads(answer, table.column)
        rows = [_row(_code(name), *cells) for name, *cells in table.rows[:MAX_ROWS]]
        lines += [f"**{table.title}**", "", *_head(table.head, heads), *rows, ""]
        if len(table.rows) > MAX_ROWS:
            lines += [_more(len(table.rows) - MAX_ROWS, "row"), ""]
    return [*_fold("Totals"), *_first(lines, MAX_TOTALS, "line"), "</details>"] if lines else []


def _fold(summary: str) -> Sequence[str]:
    return "<details>", f"<summary>{summary}</summary>", ""


def _head(first: str, numbers: Sequence[str], *others: str) -> Sequence[str]:
    return _row(first, *map(_plain, numbers), *others), _row("---", *("--:" for _ in numbers), *("---" for _ in others))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _first(lines: Sequence[str], size: int, noun: str) -> Sequence[str]:
    """Return the first lines that fit, and count the others."""
    for index, line in enumerate(lines):
        size -= _size([line])
        if size < 0:
            return [*lines[:index], "", _more(len(lines) - index, noun), ""]
    return lines


def _more(number: int, noun: str) -> str:
    return f"and {counted(number, f'more {noun}')} (`--output json` has all)"


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _code(text: str) -> str:
    """Return a text as code, which may be in a cell of a table."""
    shown = truncate(visible(text), MAX_TEXT)
    if shown.strip() == shown and shown and not _NOT_IN_A_SPAN.search(shown):
        return f"`{shown}`"
    return f"<code>{_escaped(shown)}</code>"


def _plain(text: str) -> str:
    """Return a text without markup; an invisible space keeps "@" and "#" from being mentions and references."""
    return _REFERENCE.sub(r"\g<0>&#8203;", _escaped(truncate(visible(text), MAX_TEXT)))


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", text)
