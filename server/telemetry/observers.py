"""Observers of admission records, as configured."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from server.http import probes
from server.http.admission_record import Callers, Observer
from server.state import State
from server.telemetry.decision_log import DecisionLog
from server.telemetry.events import Events
from server.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from server.telemetry.events import Sender


STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Enabled telemetry. `decision_log`: None if disabled, "-" for stdout. `callers`: whose requests cause Events.

    `decision_log_messages`: results of message expressions are logged, too. `decision_log_requests`: the
    fields of requests and of the cluster that rules read are recorded.
    """

    decision_log: Path | None = None
    decision_log_messages: bool = False
    decision_log_requests: bool = False
    events: bool = False
    callers: Callers = Callers.AUTHENTICATED


class Telemetry:
    """All observers: metrics, and decision log and Events if enabled."""

    def __init__(self, settings: TelemetrySettings, state: State, sender: "Sender | None") -> None:
        log = settings.decision_log
        path = None if log == STANDARD_OUTPUT else log
        messages, requests = settings.decision_log_messages, settings.decision_log_requests
        decisions = None if log is None else DecisionLog(path, messages=messages, requests=requests)
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


_log = logging.getLogger(__name__)


class OverpromiseWarning:
    """Logs a warning when rules that read free devices come into force, and no devices are reserved."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._logged = False

    def check(self) -> None:
        overpromises = self._state.overpromises
        if overpromises and not self._logged:
            _log.warning("%s", probes.OVERPROMISES)
        self._logged = overpromises
