"""Positions of the characters of a YAML scalar in its file.

YAML 1.1, sections 9.1 to 9.3 (flow and block scalars), as PyYAML and libyaml read them. All functions take the
file's lines without their ends, count lines and columns from 0, and return SourceText's breaks, which count from 1.
"""

import re
from collections.abc import Mapping, Sequence

Breaks = tuple[tuple[int, int, int], ...]
Mark = tuple[int, int]
"""Line and column, both from 0."""

_BLANK = " \t"
_ESCAPES: Mapping[str | None, re.Pattern[str]] = {"'": re.compile("''"), '"': re.compile(r"\\(?:x..|u.{4}|U.{8}|.|$)")}
"""Escapes by the style of a scalar; plain scalars have none."""


class _Trace:
    """Recorder of the places where the text does not continue in the next column of the source."""

    def __init__(self, mark: Mark) -> None:
        self.offset = 0
        self._breaks = {0: mark}

    def jump(self, line: int, column: int) -> None:
        self._breaks[self.offset] = (line, column)

    def breaks(self) -> Breaks:
        return tuple((offset, line + 1, column + 1) for offset, (line, column) in self._breaks.items())


def flow_breaks(lines: Sequence[str], start: Mark, end: Mark, style: str | None) -> Breaks:
    """Locate a plain or quoted scalar, from its first character to just after its last, inside the quotes."""
    escape = _ESCAPES.get(style)
    trace = _Trace(start)
    blank: list[int] = []
    joined = False
    for number in range(start[0], end[0] + 1):
        raw = lines[number]
        first, last = number == start[0], number == end[0]
        right = end[1] if last else len(raw)
        left = start[1] if first else right - len(raw[:right].lstrip(_BLANK))
        if left == right and not first and not last:
            blank.append(number)
            continue
        if not first:
            _fold_line_end(trace, blank, joined)
            trace.jump(number, left)
        escapes = list(escape.finditer(raw, left, right)) if escape else []
        joined = not last and bool(escapes) and escapes[-1].group() == "\\"
        if not last:
            # Blanks before a line's end are not text, unless one of them is escaped.
            right = max(left, len(raw.rstrip(_BLANK)), escapes[-1].end() if escapes else 0)
        _trace_text(trace, number, left, right, escapes)
        blank = []
    return trace.breaks()


def _fold_line_end(trace: _Trace, blank: Sequence[int], joined: bool) -> None:
    """Fold a line end into a space, or into nothing if it is escaped or empty lines follow; empty lines stay."""
    for number in blank:
        trace.jump(number, 0)
        trace.offset += 1
    if not blank and not joined:
        trace.offset += 1


def _trace_text(trace: _Trace, number: int, left: int, right: int, escapes: Sequence[re.Match[str]]) -> None:
    for escape in escapes:
        trace.offset += escape.start() - left
        if escape.group() != "\\":
            trace.offset += 1
            trace.jump(number, escape.end())
        left = escape.end()
    trace.offset += right - left


def block_breaks(lines: Sequence[str], start: Mark, text: str, *, folded: bool) -> Breaks:
    """Locate a literal or folded scalar that begins with its `|` or `>` and is read as `text`."""
    number = start[0] + 1
    trace = _Trace(start)
    indent = _block_indent(lines, number, text)
    content_end = len(text.rstrip("\n"))
    previous = ""
    blank: list[int] = []
    while trace.offset < content_end:
        content = lines[number][indent:]
        if content:
            if folded and previous and previous[0] not in _BLANK and content[0] not in _BLANK:
                _fold_line_end(trace, blank, joined=False)
            else:
                _line_ends(trace, blank, after=previous)
            trace.jump(number, indent)
            trace.offset += len(content)
            previous, blank = content, []
        else:
            blank.append(number)
        number += 1
    # Only line ends remain: of the last content, and of empty lines that the chomping indicator keeps.
    kept = len(text) - trace.offset - bool(previous)
    _line_ends(trace, range(number, number + kept), after=previous)
    return trace.breaks()


def _block_indent(lines: Sequence[str], number: int, text: str) -> int:
    """Return the columns of indentation: the first line with content has more spaces in the file than in the text."""
    content = text.lstrip("\n")
    if not content:
        return 0
    raw = lines[number + len(text) - len(content)]
    return _leading_spaces(raw) - _leading_spaces(content)


def _leading_spaces(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _line_ends(trace: _Trace, blank: Sequence[int], *, after: str) -> None:
    """Keep the line ends of the preceding content, if any, and of the empty lines."""
    trace.offset += bool(after)
    for number in blank:
        trace.jump(number, 0)
        trace.offset += 1
