"""Reader of decision logs: the lines of decisions, and the numbers of all other lines, in bounded memory."""

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from rules_engine.language.files import STDIN, report_unreadable, standard_input
from rules_engine.language.log_lines import MAX_LINE_BYTES, log_lines
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location

L = TypeVar("L", bound=Struct)

MAX_LINE_WARNINGS = 3
"""Unreadable lines of one file with a warning of their own: the others are counted."""

TOO_LONG = f"longer than {MAX_LINE_BYTES:,} bytes"
NO_JSON = "cut, or not JSON"
NO_DECISION = "not a line of a decision log"


class DecisionLogReader(Generic[L]):
    """A decision log, of whose lines a type has the members that are read.

    `lines`: the number of lines that were read; `unreadable`: of those that are no decisions, by reason.
    """

    def __init__(self, path: Path, line_type: type[L], problems: Problems) -> None:
        self.lines = 0
        self.unreadable = Counter[str]()
        self._path = path
        self._problems = problems
        self._decode = Decoder(line_type).decode

    @property
    def decisions(self) -> int:
        """The number of decisions that were read."""
        return self.lines - self.unreadable.total()

    def __iter__(self) -> Iterator[L]:
        """Yield the decisions. Other lines are counted, and the first ones get a warning each.

        A log that cannot be read, or has no decision, is an error.
        """
        try:
            with nullcontext(standard_input()) if self._path == STDIN else self._path.open("rb") as file:
                yield from filter(None, map(self._read, enumerate(log_lines(file), start=1)))
        except OSError as error:
            report_unreadable(self._path, error, self._problems)
            return
        if (more := self.unreadable.total() - MAX_LINE_WARNINGS) > 0:
            self._warn(f"{more:,} more {'line is' if more == 1 else 'lines are'} left out", 1)
        if not self.decisions:
            message = "no decision: is it a decision log?"
            self._problems.error(Code.NOT_A_POD, message, Location(str(self._path), 1, 1))

    def _read(self, numbered: tuple[int, bytes | None]) -> L | None:
        """Return the decision of a line; None without one."""
        number, text = numbered
        if text is not None and not text.strip():
            return None
        self.lines += 1
        try:
            if text is not None:
                return self._decode(text)
            reason = TOO_LONG
        except ValidationError:
            reason = NO_DECISION
        except (DecodeError, UnicodeDecodeError, RecursionError):
            reason = NO_JSON
        self.unreadable[reason] += 1
        if self.unreadable.total() <= MAX_LINE_WARNINGS:
            self._warn(f"the line is left out: {reason}", number)
        return None

    def _warn(self, message: str, number: int) -> None:
        self._problems.warning(Code.UNREAD_OBJECT, message, Location(str(self._path), number, 1))
