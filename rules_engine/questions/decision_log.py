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
from rules_engine.model.wording import format_count

L = TypeVar("L", bound=Struct)

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
        """Yield the decisions. Other lines are counted, with a warning for each reason at the first one.

        A log that cannot be read, or has no decision, is an error.
        """
        first: dict[str, int] = {}
        try:
            with nullcontext(standard_input()) if self._path == STDIN else self._path.open("rb") as file:
                for number, text in enumerate(log_lines(file), start=1):
                    if text is not None and not text.strip():
                        continue
                    self.lines += 1
                    line = TOO_LONG if text is None else self._parse(text)
                    if isinstance(line, str):
                        self.unreadable[line] += 1
                        first.setdefault(line, number)
                    else:
                        yield line
        except OSError as error:
            report_unreadable(self._path, error, self._problems)
            return
        if not self.decisions:
            message = "no decision: no pod was sent, or this is no decision log"
            self._problems.error(Code.NOT_A_POD, message, Location(str(self._path), 1, 1))
            return
        for reason, number in first.items():
            message = f"{format_count(self.unreadable[reason], 'line')} left out: {reason}"
            self._problems.warning(Code.UNREAD_OBJECT, message, Location(str(self._path), number, 1))

    def _parse(self, text: bytes) -> L | str:
        """Return the decision of a line, or the reason why it has none."""
        try:
            return self._decode(text)
        except ValidationError:
            return NO_DECISION
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return NO_JSON
