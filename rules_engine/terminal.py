"""Consoles of rich for text for people, on a terminal or in a pipe."""

import os
from collections.abc import Collection, Iterator, Sequence
from io import TextIOWrapper
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from rules_engine.model.excerpt import visible
from rules_engine.model.wording import counted

WIDTH = 100_000
"""Line width in columns, larger than any line: the terminal wraps long lines, so that no text is cut off."""

MAX_ROWS = 40
"""Lines of a section, about a screen: of more, the first ones are shown and the others counted; JSON has them all."""

BOLD = Style(bold=True)
DIM = Style(dim=True)


def console(stream: TextIO) -> Console:
    """Return the console of a stream, without other characters than ASCII's in the C locale."""
    if isinstance(stream, TextIOWrapper) and _is_ascii_locale():
        stream.reconfigure(encoding="ascii", errors=stream.errors)
    coloured = _is_coloured(stream)
    return Console(
        file=stream,
        color_system="standard" if coloured else None,
        force_terminal=coloured,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
        width=WIDTH,
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str]) -> Iterator[Text]:
    """Yield the lines of a table, its head if there are rows. Columns of `numbers`, by their heads, are on the right.

    Control characters in the cells are escaped.
    """
    if not rows:
        return
    shown = [head, *([visible(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = [
            " " * (width - cell_len(cell)) + cell if name in numbers else cell + " " * (width - cell_len(cell))
            for cell, width, name in zip(row, widths, head, strict=True)
        ]
        yield Text(f"  {'  '.join(cells)}".rstrip(), "dim" if row is head else "")


class TextReport:
    """A report in sections, printed line by line. `numbers`: the heads of columns that are on the right."""

    numbers: Collection[str] = ()

    def __init__(self, stream: TextIO) -> None:
        self._console = console(stream)

    def _line(self, text: str | Text) -> None:
        """Print a line; control characters are escaped unless it is a Text."""
        self._console.print(Text(visible(text)) if isinstance(text, str) else text)

    def _section(self, title: str, described: str) -> None:
        self._line("")
        self._line(Text.assemble((title, BOLD), visible(f"  {described}".rstrip())))

    def _table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        for line in table(head, rows, self.numbers):
            self._line(line)

    def _more(self, number: int, noun: str) -> None:
        """Print how many rows were left out, if any."""
        if number > 0:
            self._line(Text(f"  and {counted(number, f'more {noun}')} (--output json has all)", DIM))


def _is_ascii_locale() -> bool:
    """Return True if the user chose the C locale, for which Python writes UTF-8.

    Python also sets LC_CTYPE to C.UTF-8 then (PEP 538), and if no locale is chosen: it is not the user's choice.
    """
    chosen = os.environ.get("LC_ALL") or os.environ.get("LANG")
    return chosen in ("C", "POSIX") and not os.environ.get("PYTHONIOENCODING")


def _is_coloured(stream: TextIO) -> bool:
    """Return True for a terminal, and for any stream with FORCE_COLOR (force-color.org).

    NO_COLOR (no-color.org) overrides both: colours that were not wanted are worse than none.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    )
