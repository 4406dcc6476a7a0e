"""Problems an author can mend: what, where, and what was probably meant."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from rules_engine.model.source import Location


class Severity(Enum):
    """How bad a problem is: only an ERROR keeps a rule set from being used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to mend in a file.

    `code` is stable and meant for machines; `length` is the number of columns from `location` that are meant.
    """

    code: str
    message: str
    location: Location
    length: int = 1
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.location}: {self.severity.value}: {self.message} [{self.code}]"


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A clause such as " (did you mean 'object'?)" for the nearest candidate; empty where none is near."""
    near = get_close_matches(name, sorted(candidates), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""


def in_file_order(problems: Iterable[Problem], files: Sequence[str] = ()) -> tuple[Problem, ...]:
    """Every distinct problem once: files as listed (others after them, by name), then by line and column."""
    rank = {file: index for index, file in enumerate(files)}

    def key(problem: Problem) -> tuple[int, Location, str, str]:
        location = problem.location
        return rank.get(location.file, len(rank)), location, problem.code, problem.message

    return tuple(sorted(set(problems), key=key))


def snippet(problem: Problem, line: str) -> str:
    """The source line under its number, with a caret and a span below it; empty for an empty line."""
    if not line.strip():
        return ""
    number = f"{problem.location.line:>5}"
    start = min(problem.location.column - 1, len(line))
    width = max(1, min(problem.length, len(line) - start))
    # A tab before the caret stays a tab, so that the two lines still stand under each other in any terminal.
    indent = "".join("\t" if character == "\t" else " " for character in line[:start])
    return f"{number} | {line}\n{' ' * len(number)} | {indent}^{'~' * (width - 1)}"


def render(problem: Problem, sources: Mapping[str, Sequence[str]]) -> str:
    """The problem in one line and, where its file's lines are in `sources`, the line with a caret below."""
    lines = sources.get(problem.location.file, ())
    index = problem.location.line - 1
    below = snippet(problem, lines[index]) if index < len(lines) else ""
    return f"{problem}\n{below}" if below else str(problem)
