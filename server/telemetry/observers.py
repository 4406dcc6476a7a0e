"""Observers of admission records, and formatters of the server's log."""

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
"""Return type of sys.exc_info()."""


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Enabled telemetry. `decision_log`: None if disabled, "-" for stdout. `callers`: those that cause Events."""

    decision_log: Path | None = None
    events: bool = False
    callers: Callers = Callers.AUTHENTICATED


class Telemetry:
    """All observers: metrics, and decision log and Events if enabled."""

    def __init__(self, settings: TelemetrySettings, state: State, sender: "Sender | None") -> None:
        log = settings.decision_log
        decisions = None if log is None else DecisionLog(None if log == STANDARD_OUTPUT else log)
        events = Events(sender) if settings.events and sender is not None else None
        self._parts: list[DecisionLog | Events] = [part for part in (decisions, events) if part is not None]
        self.metrics = Metrics(state, decision_log=decisions, events=events)
        self.observers: tuple[Observer, ...] = (
            self.metrics,
            *([] if decisions is None else [decisions]),
            *([] if events is None else [settings.callers.only(events)]),
        )

    def start(self) -> None:
        """Start the threads. Raises OSError if the decision log cannot be opened for writing."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Stop the threads; queued lines are written first."""
        for part in self._parts:
            part.stop()


class Lines(logging.Formatter):
    """Omits exception messages, which may quote a pod, and keeps type and traceback."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002
        return rfc3339(datetime.fromtimestamp(record.created, UTC), "milliseconds")

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802 - the name that logging calls
        error = ei[1]
        parts: list[str] = []
        while error is not None:
            # Messages of the operating system quote no pod.
            reason = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
            parts.append("".join(format_tb(error.__traceback__)) + type(error).__qualname__ + reason)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\ncaused by\n".join(parts)


class JsonLines(Lines):
    """Format a log record as a line of JSON; `extra={"members": {...}}` adds members."""

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
