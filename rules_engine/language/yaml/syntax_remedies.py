"""Remedies of syntax errors in YAML: each changes a line, or a block, so that the parser gets further."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import yaml

from rules_engine.model.problems.source import MAX_REMEDY

MAX_TEXT = 64 * 1024
"""Characters of a document for which remedies are tried: each trial parses it again."""

MAX_TRIALS = 40
"""Changes to try: some ten for each of the lines before the error."""

MAX_LINES = 4
"""Lines with text, up to the line of the error, that may be its cause."""

MAX_LINE = 1_000
"""Characters of a line that is changed: bounds the work of the patterns."""

TEMPLATE = "templates are not expanded: write the value, or render the file first"

_ITEM = r"\s*(?:-\s+)*"
_KEY = r"[A-Za-z][\w./-]*"
_WORD = re.compile(rf"({_ITEM})([A-Za-z][\w-]*)\s*(?:#.*)?")
_GLUED = re.compile(rf"({_ITEM})({_KEY}):((?![\s/]).+)")
_ASSIGNED = re.compile(rf"({_ITEM})({_KEY})\s*(?:=(?!=)|：)\s*(\S.*)")
_GLUED_FLOW = re.compile(r"([A-Za-z]\w*):([\[{])")
_MEMBER = re.compile(rf"({_ITEM}(?:{_KEY}|\"[^\"]*\"|'[^']*'):\s+|{_ITEM})(\S.*?)\s*")
_INDICATOR = re.compile(r"(?:^\s*(?:-\s+)*|[\[,{]\s*|:\s+|-\s+)([*&%@`][^,\]}\s]*)")
_BLOCK = re.compile(rf"({_ITEM}){_KEY}:\s+[|>][-+0-9]*\s*$")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CURLY = re.compile("[“„].+[”“]|[‘‚].+[’‘]")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_PATH = re.compile(
    r"\{\{\s*(?:request\.)?((?:object|oldObject|namespaceObject|request|params|variables)\.[\w.]+)\s*\}\}"
)
_NAME = re.compile(rf"\s*(?:-\s+)?({_KEY}):")


@dataclass(frozen=True, slots=True)
class LineEdit:
    """New text for a line, or `count` of them; the message is about `length` columns of the first, from `column` on.

    Lines and columns count from 0.
    """

    message: str
    line: int
    column: int
    length: int
    lines: tuple[str, ...]
    count: int = 1


def find_remedy(lines: Sequence[str], line: int, column: int, loader: type[Any], first: int = 0) -> LineEdit | None:
    """Return the first change of a line after which the parser gets beyond the error at a position, or None.

    `lines`: the lines of one document, after `first` lines of the file. A template's only remedy is its value.
    """
    if sum(map(len, lines)) > MAX_TEXT:
        return None
    above = range(min(line, len(lines) - 1), -1, -1)
    near = [number for number in above if _has_text(lines[number]) and len(lines[number]) <= MAX_LINE][:MAX_LINES]
    last = max((number for number, text in enumerate(lines) if _has_text(text)), default=0)
    further: LineEdit | None = None
    for change in islice(_propose_changes(lines, near, (line, column), first), MAX_TRIALS):
        changed = [*lines[: change.line], *change.lines, *lines[change.line + change.count :]]
        reached = _error_line(changed, loader)
        if reached is None:
            return change
        # An error at the end may be the same one.
        if further is None and line + len(change.lines) - change.count < reached <= last:
            further = change
    if further is not None:
        return further
    for number in near[:2]:
        expression = _TEMPLATE.search(lines[number])
        if expression:
            return LineEdit(TEMPLATE, number, expression.start(), len(expression.group()), ())
    return None


def template_message(value: str, key: str | None) -> str:
    """Return the message for a template that is the whole value of a key."""
    path = _PATH.fullmatch(value)
    return f"templates are not expanded: write {path[1]}" if path and _is_expression(key) else TEMPLATE


def _is_expression(key: str | None) -> bool:
    return key is not None and (key == "when" or key.lower().endswith("expression"))


def _has_text(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _error_line(lines: Sequence[str], loader: type[Any]) -> int | None:
    try:
        for _ in yaml.parse("\n".join(lines), Loader=loader):
            pass
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark
        return int(mark.line)
    return None


def _propose_changes(
    lines: Sequence[str], near: Sequence[int], error: tuple[int, int], first: int
) -> Iterator[LineEdit]:
    for number in near:
        text = lines[number]
        if _TEMPLATE.search(text):
            # In quotes it would be text.
            yield from _template_changes(number, text)
            return
        yield from _key_changes(number, text)
        yield from _indicator_changes(number, text)
    if near and near[0] == error[0] and re.search(r"[\[{]", lines[error[0]][: error[1]]):
        yield from _flow_changes(error[0], lines[error[0]], error[1])
    for number in near:
        yield from _value_changes(number, lines[number])
    yield from _block_text_changes(lines, error[0])
    for number in near[:2]:
        yield from _indentation_changes(lines, number, first)
    for number in near[1:]:
        yield from _block_changes(lines, number)


def _replace_rest(line: int, column: int, old: str, new: str, before: str, reason: str) -> Iterator[LineEdit]:
    """Yield a change of the text from a column on, unless the new text is too long for a message."""
    if len(new) <= MAX_REMEDY:
        yield LineEdit(f"{reason}: write {new}", line, column, len(old), (before + new,))


def _template_changes(line: int, text: str) -> Iterator[LineEdit]:
    before, value = _split_value(text)
    key = _NAME.match(text)
    if _PATH.search(value) and _is_expression(key[1] if key else None):
        new = _PATH.sub(r"\1", value)
        reason = "templates are not expanded"
        yield from _replace_rest(line, len(before), value, new, before, reason)
        yield from _replace_rest(line, len(before), value, _quote_value(new), before, reason)


def _split_value(text: str) -> tuple[str, str]:
    """Return a line up to its value, and the value."""
    member = _MEMBER.fullmatch(text)
    return (member[1], member[2]) if member else ("", text)


def _key_changes(line: int, text: str) -> Iterator[LineEdit]:
    word = _WORD.fullmatch(text)
    if word:
        yield from _replace_rest(line, len(word[1]), word[2], f"{word[2]}:", word[1], f"'{word[2]}' has no colon")
    for pattern, reason in ((_GLUED, "no space after the colon"), (_ASSIGNED, "a key ends with a colon")):
        match = pattern.fullmatch(text)
        if match:
            start = len(match[1])
            yield from _replace_rest(line, start, text[start:], f"{match[2]}: {match[3]}", match[1], reason)
    for match in _GLUED_FLOW.finditer(text):
        new = f"{match[1]}: {match[2]}"
        changed = f"{text[: match.start()]}{new}{text[match.end() :]}"
        length = match.end() - match.start()
        yield LineEdit(f"no space after the colon: write {new}", line, match.start(), length, (changed,))


def _indicator_changes(line: int, text: str) -> Iterator[LineEdit]:
    """Yield the text in quotes for values that begin with a character of YAML's syntax."""
    for match in _INDICATOR.finditer(text):
        start, value = match.start(1), match[1]
        reason = f"text cannot begin with {value[0]}"
        quoted = f'"{value}"'
        change = LineEdit(
            f"{reason}: write {quoted}", line, start, len(value), (text[:start] + quoted + text[match.end() :],)
        )
        if "\\" not in value and '"' not in value:
            yield change
        remaining = text[start:].rstrip()
        yield from _replace_rest(line, start, remaining, _quote_value(remaining), text[:start], reason)


def _flow_changes(line: int, text: str, column: int) -> Iterator[LineEdit]:
    for mark, reason in (
        (",", "two items without a comma"),
        ("]", "the list is not closed"),
        ("}", "the map is not closed"),
    ):
        changed = f"{text[:column].rstrip()}{mark} {text[column:]}"
        yield LineEdit(f"{reason}: write {mark} before this", line, min(column, len(text)), 1, (changed,))


def _value_changes(line: int, text: str) -> Iterator[LineEdit]:
    """Yield the whole value of a line in quotes."""
    before, value = _split_value(text)
    quote = value[0] if value[0] in "'\"" else ""
    if quote and value.count(quote) % 2:
        yield from _replace_rest(line, len(before), value, f"{value}{quote}", before, "the quote is not closed")
    if quote and _is_outer(value, quote):
        reason = f"{quote} inside of {quote} ends the value"
        yield from _replace_rest(line, len(before), value, _quote_value(value[1:-1]), before, reason)
    close = {"[": "]", "{": "}"}.get(value[0])
    if close and value.count(value[0]) > value.count(close):
        what = "list" if close == "]" else "map"
        yield from _replace_rest(line, len(before), value, f"{value}{close}", before, f"the {what} is not closed")
    else:
        if _CURLY.fullmatch(value):
            yield from _replace_rest(
                line, len(before), value, _quote_value(value[1:-1]), before, "curly quotes are text"
            )
        if "\\" in value:
            single = _DOUBLE.sub(_without_escapes, value)
            reason = "in double quotes a backslash begins an escape"
            yield from _replace_rest(line, len(before), value, single, before, reason)
        yield from _replace_rest(line, len(before), value, _quote_value(value), before, "the whole value needs quotes")


def _without_escapes(text: re.Match[str]) -> str:
    """Return a double-quoted text in quotes that leave a backslash as it is."""
    return _quote_value(text[1].replace('\\"', '"').replace("\\\\", "\\")) if "\\" in text[1] else text[0]


def _is_outer(value: str, quote: str) -> bool:
    """Return True if the first and the last quote probably enclose the value, which has such quotes inside."""
    inner = value[1:-1]
    first = inner.find(quote)
    return value.endswith(quote) and first > 0 and not re.match(r"[\w.)\]]", inner[first - 1])


def _quote_value(value: str) -> str:
    if "'" not in value:
        return f"'{value}'"
    if '"' not in value and "\\" not in value:
        return f'"{value}"'
    return "'" + value.replace("'", "''") + "'"


def _indentation_changes(lines: Sequence[str], number: int, first: int) -> Iterator[LineEdit]:
    """Yield the line as another item, as a continuation of the value above, and at the indentation of lines above."""
    text = lines[number].lstrip()
    indent = len(lines[number]) - len(text)
    above = [index for index in range(number - 1, -1, -1) if _has_text(lines[index])][: 2 * MAX_LINES]
    name = _NAME.match(text)
    items = (re.match(rf"( *)- +({_KEY}):", lines[index]) for index in above)
    if name and any(item and len(item[1]) == indent and item[2] == name[1] for item in items):
        yield from _replace_rest(number, indent, text, f"- {text}", " " * indent, "an item begins with a dash")
    if above and name is None and not text.startswith("-"):
        to = len(lines[above[0]]) - len(lines[above[0]].lstrip()) + 4
        message = f"this continues the value above: write it {to - indent} spaces further right"
        yield LineEdit(message, number, indent, len(text), (" " * to + text,))
    places: dict[int, str] = {}
    for index in above:
        column = len(lines[index]) - len(lines[index].lstrip())
        if lines[index].lstrip().startswith("- ") and not text.startswith("-"):
            places.setdefault(column + 2, f"like the key after the dash in line {first + index + 1}")
        places.setdefault(column, f"like line {first + index + 1}")
    for place in sorted(places.keys() - {indent}, key=lambda place: (abs(place - indent), place)):
        message = f"wrong indentation: begin in column {place + 1}, {places[place]}"
        yield LineEdit(message, number, indent, len(text), (" " * place + text,))


def _block_text_changes(lines: Sequence[str], line: int) -> Iterator[LineEdit]:
    """Yield the text of a block, up to a line, further right than its key."""
    starts = (number for number in range(min(line, len(lines) - 1), -1, -1) if _BLOCK.match(lines[number]))
    start = next(starts, line)
    header = _BLOCK.match(lines[start]) if start < line else None
    text = lines[start + 1 : line + 1]
    if header and text:
        indent = len(text[0]) - len(text[0].lstrip())
        right = len(header[1]) + 2 - indent
        message = f"the text of a block begins further right than its key: write it {right} spaces further right"
        moved = tuple(" " * right + item for item in text)
        yield LineEdit(message, start + 1, indent, len(text[0]) - indent, moved, len(text))


def _block_changes(lines: Sequence[str], number: int) -> Iterator[LineEdit]:
    """Yield a value over several lines as a block."""
    before, value = _split_value(lines[number])
    if before.rstrip().endswith(":"):
        indent = len(lines[number + 1]) - len(lines[number + 1].lstrip())
        message = "a value with this text needs a block: write | here, and the text on lines of its own below"
        yield LineEdit(message, number, len(before), len(value), (f"{before}|", " " * indent + value))
