"""Reader of decision logs: the lines of decisions, and the numbers of all other lines, in bounded memory."""

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from rules_engine.language.files import STDIN, standard_input
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
NOT_A_LOG = "no decision: no pod was sent, or this is no decision log"


class DecisionLogReader(Generic[L]):
    """A decision log, of whose lines a type has the members that are read.

    `lines`: the number of lines that were read; `unreadable`: of those that are no decisions, by reason.
    """

    def __init__(self, path: Path, line_type: type[L]) -> None:
        self.path = path
        self.lines = 0
        self.unreadable = Counter[str]()
        self._decode = Decoder(line_type).decode

    def decisions(self, problems: Problems) -> Iterator[tuple[L, bytes]]:
        """Yield each line of a decision with its text. Raises OSError.

        Others are counted; the first ones get a warning each. A log without any decision is an error.
        """
        with nullcontext(standard_input()) if self.path == STDIN else self.path.open("rb") as file:
            for number, text in enumerate(log_lines(file), start=1):
                if text is not None and not text.strip():
                    continue
                self.lines += 1
                line = TOO_LONG if text is None else self._parse(text)
                if not isinstance(line, str):
                    yield line, text or b""
                    continue
                self.unreadable[line] += 1
                if self.unreadable.total() <= MAX_LINE_WARNINGS:
                    self._warn(problems, f"the line is left out: {line}", number)
        left_out = self.unreadable.total()
        if left_out > MAX_LINE_WARNINGS:
            lines = "line is" if left_out == MAX_LINE_WARNINGS + 1 else "lines are"
            self._warn(problems, f"{left_out - MAX_LINE_WARNINGS:,} more {lines} left out", 1)
        if left_out == self.lines:
            problems.error(Code.NOT_A_POD, NOT_A_LOG, Location(str(self.path), 1, 1))

    def _warn(self, problems: Problems, message: str, number: int) -> None:
        problems.warning(Code.UNREAD_OBJECT, message, Location(str(self.path), number, 1))

    def _parse(self, text: bytes) -> L | str:
        """Return a line of a decision, or the reason why it is none."""
        try:
            return self._decode(text)
        except ValidationError:
            return NO_DECISION
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return NO_JSON
