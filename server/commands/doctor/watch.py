"""`doctor --watch`: diagnoses again and again, with the findings of the last one as metrics and Events."""

import gc
import logging
import logging.config
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic

from rules_engine import doctor
from rules_engine.model.kubernetes.cluster_objects import DIAGNOSED_RESOURCES
from rules_engine.model.problems.problem import render_problem
from rules_engine.model.rules.finding import Certainty, FindingSeverity
from rules_engine.questions.doctor.scope import Scope
from rules_engine.questions.doctor.values import Diagnosis
from rules_engine.rules.sources.rule_sources import RuleSource
from rules_engine.server.cluster.connection import RENEWAL_CAUSES, ApiError, Connection
from rules_engine.server.cluster.listing import Listing
from rules_engine.server.commands.doctor.finding_events import QUIET_SECONDS, finding_events
from rules_engine.server.commands.doctor.preparation import PreparedDoctor, paths_of, prepare_diagnosis
from rules_engine.server.http.app import create_probes_app
from rules_engine.server.http.limits import PLAIN_CONNECTIONS
from rules_engine.server.http.listener import Listener
from rules_engine.server.http.probes import Page
from rules_engine.server.http.sockets import bind_socket, share_of_connections
from rules_engine.server.option_types import Address
from rules_engine.server.rules.folder_watch import files_signature
from rules_engine.server.signals import Signals
from rules_engine.server.telemetry.events import Events
from rules_engine.server.telemetry.finding_metrics import DiagnosisCounts, FindingMetrics, WatchState
from rules_engine.server.telemetry.process_log import logging_config
from rules_engine.server.timing import PeriodicTask, rfc3339

RETRY_SECONDS = 60.0
"""Time until the next diagnosis after a failed one, if the interval is longer."""

_log = logging.getLogger(__name__)


class WatchError(Exception):
    """A failure to start, with the message to print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """Settings of `doctor --watch`. `interval_seconds`: from the end of a diagnosis to the next one."""

    rules: tuple[RuleSource, ...]
    scope: Scope
    interval_seconds: float
    timeout_seconds: float
    metrics_listen: Address
    events: bool
    log_format: str


def watch_cluster(settings: WatchSettings, prepared: PreparedDoctor, connection: Connection) -> None:
    """Diagnose until SIGINT or SIGTERM. Raises WatchError, before the first diagnosis."""
    logging.config.dictConfig(logging_config(settings.log_format))
    with ExitStack() as stack:
        try:
            bound = stack.enter_context(bind_socket(settings.metrics_listen.host, settings.metrics_listen.port))
        except OSError as error:
            message = f"cannot listen on {settings.metrics_listen}: {error.strerror}"
            raise WatchError(message) from None
        events = None
        if settings.events:
            events = Events(connection, quiet_seconds=QUIET_SECONDS)
            events.start()
            stack.callback(events.stop)
        repeated = RepeatedDiagnosis(settings, prepared, connection, events)
        metrics = FindingMetrics(lambda: repeated.state, events)
        health: Page = HTTPStatus.OK, {"status": "ok"}
        app = create_probes_app(lambda: health, lambda: readiness_page(repeated.state), metrics.exposition)
        listener = Listener("metrics", bound, app, connections=share_of_connections(PLAIN_CONNECTIONS))
        listener.serve()
        stack.callback(listener.stop, 0)
        task = PeriodicTask(repeated.step, name="doctor", doing="diagnosing", retry_seconds=settings.interval_seconds)
        signals = Signals(on_hangup=())
        url = f"http://{Address(*listener.address)}"
        text = f"gpu-rules doctor diagnoses every {settings.interval_seconds:g} s; metrics at {url}"
        if settings.log_format == "json":
            _log.info("%s", text)
        else:
            print(text, file=sys.stderr, flush=True)
        task.start()
        stack.callback(task.stop)
        signals.wait(None)


class RepeatedDiagnosis:
    """Diagnoses a live cluster, in one thread at a time; `state` is replaced as a whole."""

    def __init__(
        self,
        settings: WatchSettings,
        prepared: PreparedDoctor,
        connection: Connection,
        events: Events | None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.state = WatchState()
        self._settings = settings
        self._prepared = prepared
        self._connection = connection
        self._events = events
        self._clock = clock
        self._seen = prepared.seen
        self._unread: Sequence[str] = ()

    def step(self) -> float:
        """Diagnose once; return the seconds until the next time."""
        self._reload()
        start = self._clock()
        try:
            last = self._diagnose(start)
        except ApiError as error:
            if str(error) != self.state.failure:
                _log.warning("no diagnosis: %s", error)
            if error.cause in RENEWAL_CAUSES:
                self._connection.renew()
            self.state = replace(self.state, failure=str(error), failures=self.state.failures + 1)
            return min(self._settings.interval_seconds, RETRY_SECONDS)
        except Exception:
            self.state = replace(self.state, failure="unexpected error", failures=self.state.failures + 1)
            raise
        finally:
            gc.collect()  # an object and its cluster refer to each other
        if self.state.failure is not None:
            _log.warning("diagnosed again")
        self.state = replace(self.state, last=last, failure=None)
        return self._settings.interval_seconds

    def _diagnose(self, start: float) -> DiagnosisCounts:
        prepared, settings = self._prepared, self._settings
        listing = Listing(self._connection, seconds=settings.timeout_seconds)
        listed = listing.read(DIAGNOSED_RESOURCES, namespace=settings.scope.namespace)
        unread = tuple(listed.warnings())
        for message in unread if unread != self._unread else ():
            _log.warning("diagnosed without it: %s", message)
        self._unread = unread
        report = doctor(listed.objects, prepared.diagnostics, prepared.rule_set, settings.scope, prepared.rules)
        if self._events is not None:
            self._events.add_new(finding_events(report, listed.objects))
        return count_findings(report, self._clock() - start)

    def _reload(self) -> None:
        """Read changed rules; rules with errors are refused, and the previous ones stay."""
        if files_signature(paths_of(self._settings.rules)) == self._seen:
            return
        prepared = prepare_diagnosis(self._settings.rules)
        self._seen = prepared.seen
        text = "\n".join(render_problem(problem, prepared.sources) for problem in prepared.problems)
        if prepared.failed:
            _log.error("changed rules refused:\n%s", text)
            self.state = replace(self.state, refused=text, reloads_refused=self.state.reloads_refused + 1)
            return
        _log.info("changed rules read%s", f":\n{text}" if text else "")
        self._prepared = prepared
        self.state = replace(self.state, refused=None)


def count_findings(report: Diagnosis, seconds: float) -> DiagnosisCounts:
    """Return the counts of a report."""
    findings: Counter[tuple[str, FindingSeverity, Certainty]] = Counter()
    for group in report.findings:
        for finding in (group, *group.effects):
            findings[finding.reason, finding.severity, finding.certainty] += len(group.objects)
    return DiagnosisCounts(
        at=datetime.now(UTC),
        seconds=seconds,
        findings=findings,
        pending_pods=report.pending_pods,
        not_evaluated=len({skipped.diagnostic for skipped in report.not_evaluated}),
        objects=report.objects,
        absent=tuple(absent.objects for absent in report.not_read),
    )


def readiness_page(state: WatchState) -> Page:
    """Return the readiness report: 503 before the first successful diagnosis."""
    if state.last is None:
        reason = state.failure or "the first diagnosis is under way"
        return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "reason": reason}
    return HTTPStatus.OK, {"status": "ok", "diagnosed": rfc3339(state.last.at), "failure": state.failure}
