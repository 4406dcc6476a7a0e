"""Reports as Markdown for a comment on a pull request.

Texts of pods and rules are code spans, where GitHub renders no markup, links or mentions.
"""

import re
from collections.abc import Sequence

from rules_engine.model.problems.excerpt import truncate, visible
from rules_engine.model.wording import counted, names
from rules_engine.report.values import Block, Item, Items, Lines, Report, Section, Span, Table, Words

MAX_BYTES = 60_000
"""Bytes of the report. GitHub limits a comment to 65,536 characters, and a workflow adds a few."""

MAX_FOLDED = 20_000
"""Bytes of the folded sections; also of the sentences before the sections."""

END = 500
"""Bytes reserved for the line that counts omitted items."""

MAX_ROWS = 20
"""Rows of a table, and further lines of an item."""

MAX_TEXT = 300
"""Characters of a text of a pod or a rule."""

_MARKUP = re.compile(r"[!-$&*<-@\[-`{-~]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""ASCII punctuation with a meaning within a line of GitHub's Markdown, where URLs are links without markup."""

_NOT_IN_A_SPAN = re.compile(r"[`|\\]")
"""Characters that end a code span or a table cell, or escape such a character."""

_REFERENCE = re.compile("&#(?:35|64);")
"""Escaped "@" and "#". GitHub decodes them before it looks for mentions and references of issues."""


def markdown(report: Report) -> str:
    """Return a report in at most MAX_BYTES bytes."""
    first, *further = report.answer or report.about
    head = [f"### gpu-rules: {_plain(first)}", "", *map(_code, report.about), ""]
    sentences = [*(f"- {_plain(line)}" for line in (*further, *report.notices)), ""]
    lines = [*head, *_fitting(sentences, MAX_FOLDED, "line")]
    folded = [line for section in report.sections if section.folded for line in _section(section, MAX_FOLDED)]
    folded = [*_fold("Totals"), *_fitting(folded, MAX_FOLDED, "line"), "</details>"] if folded else []
    for section in report.sections:
        if not section.folded:
            lines += _section(section, MAX_BYTES - _size(lines) - _size(folded))
    return "\n".join([*lines, *folded]).rstrip("\n") + "\n"


def _section(section: Section, size: int) -> Sequence[str]:
    title = f"**{_plain(section.title)}**" + (f" {_plain(section.summary)}" if section.summary else "")
    lines = [title, ""]
    for block in section.blocks:
        lines += _block(block, size - _size(lines))
    return lines


def _block(block: Block, size: int) -> Sequence[str]:
    match block:
        case Table():
            return [*_table(block), ""]
        case Lines(lines=lines, noun=noun):
            return [*_fitting([f"- {_plain(_joined(line))}" for line in lines], size, noun), ""]
        case Items(items=items, noun=noun):
            return _items(items, noun, size)
    return []


def _items(items: Sequence[Item], noun: str, size: int) -> Sequence[str]:
    """Return as many items as fit, and the number of the others."""
    lines: list[str] = []
    for index, item in enumerate(items):
        item_lines = _item(item)
        if _size(lines) + _size(item_lines) > size - END:
            return [*lines, _more(len(items) - index, noun), ""]
        lines += item_lines
    return lines


def _item(item: Item) -> Sequence[str]:
    objects = f" {_plain(names(item.objects))}" if item.objects else ""
    further = [*map(_words, item.lines), *(f"{_plain(field.name)}: {_words(field.value)}" for field in item.fields)]
    lines = [f"**{_plain(_joined(item.title))}**{objects}", "", *(f"- {line}" for line in further[:MAX_ROWS])]
    if len(further) > MAX_ROWS:
        lines.append(f"- {_more(len(further) - MAX_ROWS, 'line')}")
    return [*lines, "", *(_table(item.table) if item.table is not None else []), ""]


def _table(table: Table) -> Sequence[str]:
    marks = ["--:" if head in table.numbers else "---" for head in table.heads]
    shown = [_row([_words(cell) for cell in row]) for row in table.rows[:MAX_ROWS]]  # type: ignore[arg-type]
    more = ["", _more(len(table.rows) - MAX_ROWS, table.noun)] if len(table.rows) > MAX_ROWS else []
    return [_row([*map(_plain, table.heads)]), _row(marks), *shown, *more] if shown else []


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _fold(summary: str) -> Sequence[str]:
    return "<details>", f"<summary>{summary}</summary>", ""


def _fitting(lines: Sequence[str], size: int, noun: str) -> Sequence[str]:
    """Return as many lines as fit, and the number of the others."""
    for index, line in enumerate(lines):
        size -= _size([line])
        if size < 0:
            return [*lines[:index], "", _more(len(lines) - index, noun), ""]
    return lines


def _more(number: int, noun: str) -> str:
    return f"and {counted(number, f'more {noun}')} (`--output json` has all)"


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _joined(words: Words) -> str:
    parts = (words,) if isinstance(words, str | Span) else words
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def _words(words: Words) -> str:
    """Return words as a code span, also for a table cell; numbers and empty text stay plain."""
    text = _joined(words)
    return text if not text.strip(" 0123456789,") else _code(text)


def _code(text: str) -> str:
    shown = truncate(visible(text), MAX_TEXT)
    if shown.strip() == shown and shown and not _NOT_IN_A_SPAN.search(shown):
        return f"`{shown}`"
    return f"<code>{_escaped(shown)}</code>"


def _plain(text: str) -> str:
    """Escape a text; an invisible space after "@" and "#" prevents mentions and references."""
    return _REFERENCE.sub(r"\g<0>&#8203;", _escaped(truncate(visible(text), MAX_TEXT)))


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)
