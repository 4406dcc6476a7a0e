"""Observers of admission records, as configured."""

import logging
from pathlib import Path

from rules_engine.server.cluster.connection import Connection
from rules_engine.server.http import probes
from rules_engine.server.http.admission_record import Callers, Observer
from rules_engine.server.state import ServerState
from rules_engine.server.telemetry.decision_log import DecisionLog
from rules_engine.server.telemetry.events import Events
from rules_engine.server.telemetry.metrics import Metrics

STANDARD_OUTPUT = Path("-")


class Telemetry:
    """All observers: metrics, and decision log and Events if enabled.

    `log`: the file of the decision log, None if disabled, "-" for stdout; `messages` and `requests`: as in DecisionLog.
    `connection`: the client that sends Events, None if disabled. `callers`: whose requests cause Events.
    """

    def __init__(
        self,
        state: ServerState,
        log: Path | None,
        connection: Connection | None,
        *,
        messages: bool = False,
        requests: bool = False,
        callers: Callers = Callers.AUTHENTICATED,
    ) -> None:
        path = None if log == STANDARD_OUTPUT else log
        decisions = None if log is None else DecisionLog(path, messages=messages, requests=requests)
        events = None if connection is None else Events(connection)
        self._parts: list[DecisionLog | Events] = [part for part in (decisions, events) if part is not None]
        self.metrics = Metrics(state, decision_log=decisions, events=events)
        self.observers: tuple[Observer, ...] = (
            self.metrics,
            *([] if decisions is None else [decisions]),
            *([] if events is None else [callers.only(events)]),
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

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._logged = False

    def check(self) -> None:
        overpromises = self._state.overpromises
        if overpromises and not self._logged:
            _log.warning("%s", probes.OVERPROMISES)
        self._logged = overpromises
