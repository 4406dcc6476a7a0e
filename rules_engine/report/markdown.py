"""Reports as Markdown for a comment on a pull request.

Texts of pods and rules are code spans, where GitHub renders no markup, links or mentions.
"""

import re
from collections.abc import Sequence

from rules_engine.model.problems.source import escape_controls, truncate
from rules_engine.model.wording import format_count, format_names
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


def render_markdown(report: Report) -> str:
    """Return a report in at most MAX_BYTES bytes."""
    first, *further = report.answer or report.about
    head = [f"### gpu-rules: {_plain_text(first)}", "", *map(_code_span, report.about), ""]
    sentences = [*(f"- {_plain_text(line)}" for line in (*further, *report.notices)), ""]
    lines = [*head, *_fit([[line] for line in sentences], MAX_FOLDED, "line")]
    folded = [[line] for section in report.sections if section.folded for line in _section_lines(section, MAX_FOLDED)]
    end = ["<details>", "<summary>Totals</summary>", "", *_fit(folded, MAX_FOLDED, "line"), "</details>"]
    end = end if folded else []
    for section in report.sections:
        if not section.folded:
            lines += _section_lines(section, MAX_BYTES - _byte_size(lines) - _byte_size(end))
    return "\n".join([*lines, *end]).rstrip("\n") + "\n"


def _section_lines(section: Section, size: int) -> Sequence[str]:
    title = f"**{_plain_text(section.title)}**" + (f" {_plain_text(section.summary)}" if section.summary else "")
    lines = [title, ""]
    for block in section.blocks:
        lines += _block_lines(block, size - _byte_size(lines))
    return lines


def _block_lines(block: Block, size: int) -> Sequence[str]:
    match block:
        case Table():
            return [*_table_lines(block), ""]
        case Lines(lines=lines, noun=noun):
            return [*_fit([[f"- {_plain_text(_join_words(line))}"] for line in lines], size, noun), ""]
        case Items(items=items, noun=noun):
            return _fit([*map(_item_lines, items)], size - END, noun)
    return []


def _item_lines(item: Item) -> Sequence[str]:
    objects = f" {_plain_text(format_names(item.objects))}" if item.objects else ""
    further = [
        *map(_words_markup, item.lines),
        *(f"{_plain_text(field.name)}: {_words_markup(field.value)}" for field in item.fields),
    ]
    lines = [f"**{_plain_text(_join_words(item.title))}**{objects}", "", *(f"- {line}" for line in further[:MAX_ROWS])]
    if len(further) > MAX_ROWS:
        lines.append(f"- {_more_line(len(further) - MAX_ROWS, 'line')}")
    return [*lines, "", *(_table_lines(item.table) if item.table is not None else []), ""]


def _table_lines(table: Table) -> Sequence[str]:
    marks = ["--:" if head in table.numbers else "---" for head in table.heads]
    shown = [_table_row([_words_markup(cell) for cell in row]) for row in table.rows[:MAX_ROWS]]  # type: ignore[arg-type]
    more = ["", _more_line(len(table.rows) - MAX_ROWS, table.noun)] if len(table.rows) > MAX_ROWS else []
    return [_table_row([*map(_plain_text, table.heads)]), _table_row(marks), *shown, *more] if shown else []


def _table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _fit(parts: Sequence[Sequence[str]], size: int, noun: str) -> Sequence[str]:
    """Return the lines of as many parts as fit, and the number of the others."""
    lines: list[str] = []
    for index, part in enumerate(parts):
        size -= _byte_size(part)
        if size < 0:
            return [*lines, *([] if lines[-1:] == [""] else [""]), _more_line(len(parts) - index, noun), ""]
        lines += part
    return lines


def _more_line(number: int, noun: str) -> str:
    return f"and {format_count(number, f'more {noun}')} (`--output json` has all)"


def _byte_size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _join_words(words: Words) -> str:
    parts = (words,) if isinstance(words, str | Span) else words
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def _words_markup(words: Words) -> str:
    """Return words as a code span, also for a table cell; numbers and empty text stay plain."""
    text = _join_words(words)
    return text if not text.strip(" 0123456789,") else _code_span(text)


def _code_span(text: str) -> str:
    shown = truncate(escape_controls(text), MAX_TEXT)
    if shown.strip() == shown and shown and not _NOT_IN_A_SPAN.search(shown):
        return f"`{shown}`"
    return f"<code>{_escape_markup(shown)}</code>"


def _plain_text(text: str) -> str:
    """Escape a text; an invisible space after "@" and "#" prevents mentions and references."""
    return _REFERENCE.sub(r"\g<0>&#8203;", _escape_markup(truncate(escape_controls(text), MAX_TEXT)))


def _escape_markup(text: str) -> str:
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)
