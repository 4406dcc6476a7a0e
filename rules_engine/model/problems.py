"""Problems that an author can fix, with their location and a suggestion."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from rules_engine.model.problem_codes import ProblemCode
from rules_engine.model.source import Location

MAX_SHOWN = 160
"""Characters of a source line that are shown: more would fill a terminal with one line."""


class Severity(Enum):
    """Severity of a problem: only an ERROR keeps a rule set from being used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem in a file.

    `code` is stable and meant for machines; `length` is the number of columns from `location` on.
    """

    code: ProblemCode
    message: str
    location: Location
    length: int = 1
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.location}: {self.severity.value}: {self.message} [{self.code}]"


def warning(code: ProblemCode, message: str, location: Location, text: str) -> Problem:
    """Return a warning about the text at a location."""
    return Problem(code=code, message=message, location=location, length=max(1, len(text)), severity=Severity.WARNING)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a clause such as " (did you mean 'object'?)" for the nearest candidate; empty if none is near."""
    near = get_close_matches(name, sorted(candidates), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""


def in_file_order(problems: Iterable[Problem], files: Sequence[str] = ()) -> tuple[Problem, ...]:
    """Sort distinct problems: files as listed (others after them, by name), then by line and column."""
    rank = {file: index for index, file in enumerate(files)}

    def key(problem: Problem) -> tuple[int, Location, str, str]:
        location = problem.location
        return rank.get(location.file, len(rank)), location, problem.code, problem.message

    return tuple(sorted(set(problems), key=key))


def snippet(problem: Problem, line: str) -> str:
    """Render the source line with its number, and a caret and a span below it; empty for an empty line.

    A long line is cut to the part around the problem, with … at the cuts.
    """
    if not line.strip():
        return ""
    start = min(problem.location.column - 1, len(line))
    end = min(max(start + 1, start + problem.length), max(len(line), start + 1))
    first = max(0, min(start - MAX_SHOWN // 2, len(line) - MAX_SHOWN))
    last = first + MAX_SHOWN
    before, meant, after = line[first:start], line[start : min(end, last)], line[end:last]
    before = f"…{before}" if first else before
    after = f"{after}…" if last < len(line) else after
    number = f"{problem.location.line:>5}"
    # A tab before the caret stays a tab, so that the two lines are aligned in any terminal.
    indent = "".join("\t" if character == "\t" else " " * _columns(character) for character in before)
    width = max(1, sum(map(_columns, meant)))
    text = "".join(map(_visible, f"{before}{meant}{after}"))
    return f"{number} | {text}\n{' ' * len(number)} | {indent}^{'~' * (width - 1)}"


def _columns(character: str) -> int:
    """Return the terminal columns of a character (Unicode Standard Annex 11, and combining marks)."""
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _visible(character: str) -> str:
    """Replace a character that a terminal would interpret or hide by a visible one of one column."""
    return "\ufffd" if unicodedata.category(character) in ("Cc", "Cf") and character != "\t" else character


def render(problem: Problem, sources: Mapping[str, Sequence[str]]) -> str:
    """Render the problem in one line and, if `sources` has its file, the source line with a caret below."""
    lines = sources.get(problem.location.file, ())
    index = problem.location.line - 1
    below = snippet(problem, lines[index]) if index < len(lines) else ""
    return f"{problem}\n{below}" if below else str(problem)
