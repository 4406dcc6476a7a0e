"""What watches the server from outside, as the operator asked for it: metrics always, the rest where it is wanted."""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from traceback import format_tb
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from server.http.admission_record import Callers, Observer
from server.state import State
from server.telemetry.decision_log import DecisionLog
from server.telemetry.events import Events
from server.telemetry.metrics import Metrics
from server.timestamps import rfc3339

if TYPE_CHECKING:
    from server.telemetry.events import Sender

STANDARD_OUTPUT = Path("-")

ExceptionInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
"""What sys.exc_info() returns."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What is wanted. `decision_log` None: no log; "-": to standard output. `callers`: whose requests make Events."""

    decision_log: Path | None = None
    events: bool = False
    callers: Callers = Callers.AUTHENTICATED


class Observing:
    """Everything that is told of requests."""

    def __init__(self, wanted: Observed, state: State, sender: "Sender | None") -> None:
        log = wanted.decision_log
        decisions = None if log is None else DecisionLog(None if log == STANDARD_OUTPUT else log)
        events = Events(sender) if wanted.events and sender is not None else None
        self._parts: list[DecisionLog | Events] = [part for part in (decisions, events) if part is not None]
        self.metrics = Metrics(state, decision_log=decisions, events=events)
        self.observers: tuple[Observer, ...] = (
            self.metrics,
            *([] if decisions is None else [decisions]),
            *([] if events is None else [wanted.callers.only(events)]),
        )

    def start(self) -> None:
        """Begin. Raises OSError where the decision log cannot be written."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Write what is left."""
        for part in self._parts:
            part.stop()


class Lines(logging.Formatter):
    """Says where an unexpected error came up, and not what it says of it, which may quote a pod."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002
        return rfc3339(datetime.fromtimestamp(record.created, UTC), "milliseconds")

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802 - logging calls it so
        error = ei[1]
        parts: list[str] = []
        while error is not None:
            # What the system says of its errors is no pod's.
            said = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
            parts.append("".join(format_tb(error.__traceback__)) + type(error).__qualname__ + said)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\nwhich came of\n".join(parts)


class JsonLines(Lines):
    """A log record as a line of JSON; `extra={"members": {...}}` gives it more members."""

    def format(self, record: logging.LogRecord) -> str:
        members = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        members |= getattr(record, "members", {})
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        return json.dumps(members, ensure_ascii=False)
