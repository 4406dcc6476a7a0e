"""Problems that an author can fix, with their location and a suggestion."""

import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Protocol

from msgspec import Meta, field

from rules_engine.model.json.output import Output
from rules_engine.model.problems.codes import Code, ProblemCode
from rules_engine.model.problems.source import Location, escape_controls

if TYPE_CHECKING:
    CodeText = ProblemCode
else:
    CodeText = str  # msgspec has no schema of an Enum without members

MAX_COLUMNS = 8 + 160 + 1
"""Columns of a source line with its number and the mark of a cut, so that one line does not fill a terminal."""

MIN_COLUMNS = 24
"""Columns that are used even if the terminal has fewer: the number and some characters around the location."""

TAB_COLUMNS = 8
"""Maximum columns of a tab."""

MAX_CANDIDATES = 128
"""Candidates that a misspelt name is compared with: more than any object has fields, and than CEL has functions."""

MAX_NAME = 128
"""Characters of the names that are compared: the time of a comparison grows with the product of both lengths."""


class Severity(Enum):
    """Severity of a problem: only an ERROR prevents the use of a rule set."""

    ERROR = "error"
    WARNING = "warning"


class Problem(Output, frozen=True, kw_only=True):
    """One problem in a file."""

    code: Annotated[CodeText, Meta(description="Stable; docs/reference/problems.md has a section for each.")]
    message: str
    location: Annotated[Location, Meta(description="The first character.")] = field(name="source")
    length: Annotated[int, Meta(description="Columns from the first character on.")] = 1
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.location}: {self.severity.value}: {self.message} [{self.code}]"


class InputError(ValueError):
    """Input that cannot be used. `problems`: all of it, errors and warnings; the text has a line for each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def unknown_pods(problems: Iterable[Problem]) -> list[str]:
    """Return the messages about pods of the input that are not known."""
    return [problem.message for problem in problems if problem.code is Code.UNKNOWN_PODS]


def warn_of(problems: Iterable[Problem]) -> None:
    """Issue each warning as one of Python's, for the caller of the public function. Raises InputError for errors."""
    items = tuple(problems)
    if any(problem.severity is Severity.ERROR for problem in items):
        raise InputError(items)
    for problem in items:
        warnings.warn(str(problem), stacklevel=3)


def warning(code: ProblemCode, message: str, location: Location, text: str) -> Problem:
    """Return a warning about the text at a location."""
    return Problem(code=code, message=message, location=location, length=max(1, len(text)), severity=Severity.WARNING)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a clause such as " (did you mean 'object'?)" for the nearest candidate.

    The clause is empty if no candidate is near, or if the comparison would take long.
    """
    compared = sorted(islice(candidates, MAX_CANDIDATES + 1))
    if len(name) > MAX_NAME or len(compared) > MAX_CANDIDATES:
        return ""
    near = get_close_matches(name, [item for item in compared if len(item) <= MAX_NAME], n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""


def sort_problems(problems: Iterable[Problem], files: Sequence[str] = ()) -> tuple[Problem, ...]:
    """Return distinct problems in the order of `files` (unlisted files last, by name), then by line and column."""
    rank = {file: index for index, file in enumerate(files)}

    def key(problem: Problem) -> tuple[int, Location, str, str]:
        location = problem.location
        return rank.get(location.file, len(rank)), location, problem.code, problem.message

    return tuple(sorted(set(problems), key=key))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemLayout:
    """The columns and the encoding of a terminal or file, which limit how a source line is shown."""

    columns: int = MAX_COLUMNS
    encoding: str = "utf-8"

    @property
    def cut_mark(self) -> str:
        """The mark of an omitted part."""
        return "…" if self._encodes("…") else "..."

    def replace_unprintable(self, character: str) -> str:
        """Replace a character that a terminal would interpret or hide, or that the encoding lacks."""
        if unicodedata.category(character) in ("Cc", "Cf") and character != "\t":
            character = "\ufffd"
        return character if self._encodes(character) else "?"

    def _encodes(self, text: str) -> bool:
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            return False
        return True


_DEFAULT_PAGE = ProblemLayout()


class Marked(Protocol):
    """Text at a place in a file that a caret and a span mark."""

    @property
    def location(self) -> Location:
        """The first character."""

    @property
    def length(self) -> int:
        """The number of columns from the first character on."""


class MarkedProblem(Marked, Protocol):
    """A problem at a place in a file."""

    @property
    def severity(self) -> Severity:
        """Error or warning."""


def render_snippet(problem: MarkedProblem, line: str, page: ProblemLayout = _DEFAULT_PAGE) -> str:
    """Render the source line with its number, and a caret and a span below it; empty for an empty line.

    A line that is too long for the page is cut to the part around the problem; marks show the cuts.
    """
    if not line.strip():
        return ""
    number = f"{problem.location.line:>5} | "
    start = min(problem.location.column - 1, len(line))
    # A line may have millions of characters: drop what cannot fit before any character is measured.
    left, right = max(0, start - 2 * MAX_COLUMNS), start + 2 * MAX_COLUMNS
    cells = [page.replace_unprintable(character) for character in line[left:right]]
    start -= left
    end = min(max(start + 1, start + problem.length), max(len(cells), start + 1))
    room = min(max(MIN_COLUMNS, page.columns), MAX_COLUMNS) - len(number)
    # One extra width, since a problem may be at the end of the line.
    first, last = _visible_range([*map(_character_columns, cells), 1], start, end, room, len(page.cut_mark))
    before = f"{page.cut_mark if left + first else ''}{''.join(cells[first:start])}"
    after = f"{''.join(cells[start:last])}{page.cut_mark if left + last < len(line) else ''}"
    # A tab before the caret stays a tab, so that the two lines are aligned in any terminal.
    indent = "".join("\t" if cell == "\t" else " " * _character_columns(cell) for cell in before)
    marks = "~" * (
        max(1, sum(1 if cell == "\t" else _character_columns(cell) for cell in cells[start : min(end, last)])) - 1
    )
    return f"{number}{before}{after}\n{' ' * (len(number) - 2)}| {indent}^{marks}"


def _visible_range(widths: Sequence[int], start: int, end: int, room: int, cut: int) -> tuple[int, int]:
    """Return the range of a line's characters around `start` that fit into `room` columns.

    `widths` has the columns of each character, and of the end of the line; `cut` is the width of the mark of a cut.
    """
    length = len(widths) - 1
    if sum(widths[:length]) + (start == length) <= room:
        return 0, length
    span, following = sum(widths[start:end]) + cut, sum(widths[start : max(length, end)])
    # Columns before the problem: half of the room, less if the problem needs them, more if few columns follow.
    left = max(room - following, min(room // 2, max(room // 4, room - span)))
    first, used = start, 0
    if sum(widths[:start]) <= left:
        first, used = 0, sum(widths[:start])
    else:
        used = cut
        while used + widths[first - 1] <= left:
            first -= 1
            used += widths[first]
    if used + following <= room:
        return first, length
    last, used = start, used + cut
    while used + widths[last] <= room:
        used += widths[last]
        last += 1
    return first, last


def _character_columns(character: str) -> int:
    """Return the terminal columns of a character (Unicode Standard Annex 11, and combining marks)."""
    if character == "\t":
        return TAB_COLUMNS
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def render_problem(
    problem: MarkedProblem, sources: Mapping[str, Sequence[str]], page: ProblemLayout = _DEFAULT_PAGE
) -> str:
    """Render the problem as one line and, if `sources` has its file, the source line with a caret below."""
    lines = sources.get(problem.location.file, ())
    index = problem.location.line - 1
    below = render_snippet(problem, lines[index], page) if index < len(lines) else ""
    head = escape_controls(str(problem))
    return f"{head}\n{below}" if below else head


class Problems:
    """Collects problems; the only mutable state while files are read."""

    def __init__(self) -> None:
        self.items: list[Problem] = []

    def error(
        self,
        code: ProblemCode,
        message: str,
        at: Location | Marked,
        length: int = 1,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Add a problem of a node, or of the characters at a location."""
        place, length = (at, length) if isinstance(at, Location) else (at.location, at.length)
        self.items.append(Problem(code=code, message=message, location=place, length=length, severity=severity))

    def warning(self, code: ProblemCode, message: str, at: Location | Marked, length: int = 1) -> None:
        self.error(code, message, at, length, Severity.WARNING)

    @property
    def failed(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.items)
