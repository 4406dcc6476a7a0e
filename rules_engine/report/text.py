"""Reports as text, on a terminal or in a pipe."""

import os
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from io import TextIOWrapper
from itertools import pairwise
from math import ceil
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from rules_engine.model.problems.problem import MAX_COLUMNS, MarkedProblem, ProblemLayout, Severity, render_problem
from rules_engine.model.problems.source import escape_controls, truncate
from rules_engine.model.wording import format_count, format_names, format_percent
from rules_engine.report import values
from rules_engine.report.values import Block, Cell, Item, Lines, Report, Section, Span, Table, Tone, Tree, Words

WIDTH = 100_000
"""Width of lines in a pipe, which are not wrapped. Rich needs some width."""

MIN_WIDTH = 40
"""Minimum width of wrapped text: deep in a tree, its branches leave few columns."""

MAX_ROWS = 40
"""Lines of a section that are shown, about a screen; the others are counted, and JSON has all."""

MIN_ROWS = 5
"""Minimum rows of an item's table, however many items there are."""

MAX_FIELDS = 20
"""Fields of an item: a pod may have hundreds of containers."""

MAX_TEXT = 500
"""Characters of a text of a pod or a file in a report."""

BAR_COLUMNS = 10
"""Width of a bar."""

CURVE_COLUMNS = 40
"""Width of a curve."""

LEVELS = " ▁▂▃▄▅▆▇█"

WITHOUT_RULES = "Without --rules SOURCE, no rules are applied to pods."
"""First line of the text of commands that take rules and got none."""

STYLES: Mapping[Tone, Style] = {
    Tone.STRONG: Style(bold=True),
    Tone.QUIET: Style(dim=True),
    Tone.GOOD: Style(color="green"),
    Tone.INFO: Style(color="cyan"),
    Tone.WARNING: Style(color="yellow"),
    Tone.BAD: Style(color="red"),
    Tone.CHANGED: Style(color="yellow"),
}


class Screen:
    """A stream for people: only ASCII in the C locale, and wrapped on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        if isinstance(stream, TextIOWrapper) and _is_ascii_locale():
            stream.reconfigure(encoding="ascii", errors=stream.errors)
        coloured = _is_coloured(stream)
        self._limit = WIDTH
        self._page = ProblemLayout(columns=_terminal_columns(stream), encoding=stream.encoding or "utf-8")
        self._width = self._page.columns if stream.isatty() else WIDTH
        self._console = Console(
            file=stream,
            color_system="standard" if coloured else None,
            force_terminal=coloured,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
            width=WIDTH,
        )

    def report(self, report: Report) -> None:
        """Print a report, section by section; texts of pods and files are cut."""
        self._limit = MAX_TEXT
        self.line(Span(report.title, Tone.STRONG))
        for line in (*report.about, *report.answer):
            self.line(line, 2)
        for section in report.sections:
            self._section(section)
        if report.notices:
            self.line("")
        for notice in report.notices[:MAX_ROWS]:
            self.line(Span(notice, Tone.WARNING), 2)
        self._more(len(report.notices) - MAX_ROWS, "notice")

    def problems(self, problems: Iterable[MarkedProblem], sources: Mapping[str, Sequence[str]]) -> None:
        """Print each problem with its source line, cut to the width, and a caret."""
        for problem in problems:
            first_line, *snippet = render_problem(problem, sources, self._page).split("\n")
            color = STYLES[Tone.BAD if problem.severity is Severity.ERROR else Tone.WARNING]
            place, level = escape_controls(f"{problem.location}: "), f"{problem.severity.value}: "
            self._print(
                Text.assemble((place, "bold"), (level, color + STYLES[Tone.STRONG]), first_line[len(place + level) :])
            )
            for index, text in enumerate(snippet):
                self._console.print(Text(text, style=color if index else ""))

    def line(self, words: Words, indent: int = 0) -> None:
        """Print a line."""
        self._print(self._text(words), indent)

    def tree(self, tree: Tree, indent: int = 0) -> None:
        """Print a tree; lines that are too long for the terminal continue within its frame."""
        self._print(self._text(tree.line), indent)
        self._children(tree.children, Text(" " * indent))

    def blocks(self, blocks: Iterable[Block]) -> None:
        """Print blocks without a report."""
        for block in blocks:
            self.block(block, 0)

    def block(self, block: Block, indent: int = 2) -> None:
        """Print a part of a section."""
        match block:
            case Table():
                self.table(block, indent)
            case Lines(lines=lines, noun=noun, whole=whole):
                limit = len(lines) if whole else MAX_ROWS
                for words in lines[:limit]:
                    self.line(words, indent)
                self._more(len(lines) - limit, noun)
            case values.Items(items=items, noun=noun):
                for index, item in enumerate(items[:MAX_ROWS]):
                    if index:
                        self.line("")
                    self._item(item, indent, max(MAX_ROWS // len(items), MIN_ROWS))
                self._more(len(items) - MAX_ROWS, noun)
            case Tree():
                self.tree(block, indent)
            case values.Curves(curves=curves):
                names = [escape_controls(curve.name) for curve in curves]
                width = max(map(cell_len, names), default=0)
                for name, curve in zip(names, curves, strict=True):
                    self._print(Text(f"{name:{width}}  0s ▕{_curve_levels(curve)}▏ {curve.end}"), indent)
            case values.Drawings():
                pass  # only HTML pages have drawings

    def table(self, table: Table, indent: int = 2, limit: int = MAX_ROWS) -> None:
        """Print a table, unless it has no rows. On a terminal, texts are wrapped in their columns."""
        rows = table.rows[:limit]
        if not rows:
            return
        grid = RichTable(box=None, pad_edge=False, padding=(0, 2), collapse_padding=True, header_style="not bold dim")
        for index, head in enumerate(table.heads):
            number = head in table.numbers
            grid.add_column(
                Text(escape_controls(head if head in table.names else head.upper())),
                justify="right" if number else "left",
                no_wrap=number or any(isinstance(row[index], values.Bar) for row in rows),
                overflow="fold",
            )
        for row in rows:
            grid.add_row(*map(self._text, row))
        options = self._console.options.update(width=max(self._width, MIN_WIDTH) - indent)
        for segments in self._console.render_lines(grid, options, pad=False):
            line = Text.assemble(" " * indent, *((segment.text, segment.style or "") for segment in segments))
            line.rstrip()
            self._console.print(line)
        self._more(len(table.rows) - limit, table.noun, indent)

    def _section(self, section: Section) -> None:
        self.line("")
        title = (escape_controls(section.title), "bold")
        self._print(Text.assemble(title, escape_controls(f"  {section.summary}".rstrip())))
        for block in section.blocks:
            self.block(block)
        for part in section.sections:
            self._section(part)

    def _item(self, item: Item, indent: int, rows: int) -> None:
        title = (item.title,) if isinstance(item.title, str | Span) else item.title
        gap = "  " if title and item.objects else ""
        self.line((*title, gap, Span(format_names(item.objects), Tone.STRONG)), indent)
        for words in item.lines:
            self.line(words, indent + 2)
        for field in item.fields[:MAX_FIELDS]:
            value = (field.value,) if isinstance(field.value, str | Span) else field.value
            self.line((f"{field.name}: ", *value), indent + 2)
            for command in field.command.splitlines():
                self._console.print(Text(f"{' ' * (indent + 6)}{escape_controls(command)}"))
        self._more(len(item.fields) - MAX_FIELDS, "line", indent + 2)
        if item.table is not None:
            self.table(item.table, indent + 2, rows)

    def _children(self, children: Sequence[Tree], frame: Text) -> None:
        for index, child in enumerate(children):
            last = index == len(children) - 1
            first, further = ("└── ", "    ") if last else ("├── ", "│   ")
            quiet = STYLES[Tone.QUIET]
            self._print(
                self._text(child.line),
                before=Text.assemble(frame, (first, quiet)),
                after=Text.assemble(frame, (further, quiet)),
            )
            self._children(child.children, Text.assemble(frame, (further, quiet)))

    def _print(self, text: Text, indent: int = 0, before: Text | None = None, after: Text | None = None) -> None:
        """Print a line wrapped between words; `before` precedes its first line, `after` each continuation line."""
        before = Text(" " * indent) if before is None else before
        after = Text(" " * (indent + 2)) if after is None else after
        width = max(self._width, MIN_WIDTH) - after.cell_len
        lines = [text] if text.cell_len <= width else text.wrap(self._console, width)
        for index, line in enumerate(lines):
            shown = Text.assemble(after if index else before, line)
            shown.rstrip()
            self._console.print(shown)

    def _text(self, cell: Cell) -> Text:
        """Return words as a text with styles, control characters escaped."""
        if isinstance(cell, values.Bar):
            filled = 0 if cell.share is None else min(round(cell.share * BAR_COLUMNS), BAR_COLUMNS)
            return Text(f"{'█' * filled}{'░' * (BAR_COLUMNS - filled)} {format_percent(cell.share):>4}")
        result = Text()
        for part in (cell,) if isinstance(cell, str | Span) else cell:
            text, style = (part, None) if isinstance(part, str) else (part.text, STYLES[part.tone])
            result.append(truncate(escape_controls(text), self._limit), style)
        return result

    def _more(self, number: int, noun: str, indent: int = 2) -> None:
        """Print the number of omitted rows, if any."""
        if number > 0:
            self.line(Span(f"and {format_count(number, f'more {noun}')} (--output json has all)", Tone.QUIET), indent)


def _curve_levels(curve: values.Curve) -> str:
    """Return the use of a resource over time as block characters, one for each of at most CURVE equal intervals."""
    columns = min(CURVE_COLUMNS, len(curve.means))
    edges = [column * len(curve.means) // columns for column in range(columns + 1)]
    means = [sum(curve.means[start:end], Fraction()) / (end - start) for start, end in pairwise(edges)]
    top = len(LEVELS) - 1
    return "".join(LEVELS[min(ceil(mean * top), top)] for mean in means)


def _terminal_columns(stream: TextIO) -> int:
    """Return COLUMNS if it is set, else the columns of the terminal; MAX_COLUMNS for files and pipes."""
    if not stream.isatty():
        return MAX_COLUMNS
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    # 0 columns: the terminal does not know, as over a serial line.
    return os.get_terminal_size(stream.fileno()).columns or MAX_COLUMNS


def _is_ascii_locale() -> bool:
    """Return True if the user chose the C locale, where Python would write UTF-8.

    LC_CTYPE does not show the user's choice: Python sets it to C.UTF-8 in the C locale (PEP 538).
    """
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG")
    return locale in ("C", "POSIX") and not os.environ.get("PYTHONIOENCODING")


def _is_coloured(stream: TextIO) -> bool:
    """Return True for a terminal, and for any stream with FORCE_COLOR (force-color.org).

    NO_COLOR (no-color.org) overrides both: unwanted colours are worse than missing ones.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    )
