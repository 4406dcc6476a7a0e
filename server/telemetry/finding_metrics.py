"""Metrics of `doctor --watch`: the findings of the last diagnosis.

A finding's reason is a name out of the loaded Diagnostics or a built-in one, so that the labels have a bounded set of
values; names of objects are in Events, not in metrics.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import Metric

from rules_engine.model.rules.finding import Certainty, FindingSeverity
from rules_engine.server.telemetry.events import Events
from rules_engine.server.telemetry.families import (
    BUILD_INFO,
    EVENTS_DROPPED,
    EVENTS_SENT,
    RELOAD_SUCCESSFUL,
    RELOADS_REFUSED,
    Family,
    MetricsCollector,
    Value,
    build_labels,
    build_metric,
    counter,
    gauge,
)

FINDINGS = gauge("doctor_findings", "Objects with a finding at the last diagnosis.", "reason", "severity", "certainty")
PENDING = gauge("doctor_pending_pods", "Unscheduled pods that request GPUs at the last diagnosis.")
NOT_EVALUATED = gauge("doctor_not_evaluated", "Diagnostics that were not evaluated for some object.")
OBJECTS = gauge("doctor_objects", "Objects read for the last diagnosis.", "collection")
ABSENT = gauge("doctor_absent", "1 for a collection that could not be read for the last diagnosis.", "collection")
SUCCESSFUL = gauge("doctor_last_diagnosis_successful", "1 if the last diagnosis succeeded, else 0.")
TIME = gauge("doctor_last_success_timestamp_seconds", "Time of the last successful diagnosis.")
SECONDS = gauge("doctor_last_success_duration_seconds", "Time that the last successful diagnosis took.")
FAILURES = counter("doctor_failures", "Failed diagnoses.")

FAMILIES = tuple(it for it in [*globals().values()] if isinstance(it, Family))
"""All metrics of `doctor --watch`."""

FindingKey = tuple[str, FindingSeverity, Certainty]
"""Reason, severity and certainty of findings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisCounts:
    """Counts of a diagnosis: `findings` by kind of finding, in objects; `objects` by collection."""

    at: datetime
    seconds: float
    findings: Mapping[FindingKey, int]
    pending_pods: int
    not_evaluated: int
    objects: Mapping[str, int]
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """State of `doctor --watch`: the last successful diagnosis, and failures since the start.

    `failure`: message of the last diagnosis, if it failed. `refused`: diagnostics of changed rules, if refused.
    """

    last: DiagnosisCounts | None = None
    failure: str | None = None
    failures: int = 0
    refused: str | None = None
    reloads_refused: int = 0


class FindingMetrics(MetricsCollector):
    """Collector of the current state."""

    def __init__(self, state: Callable[[], WatchState], events: Events | None) -> None:
        self._state = state
        self._events = events
        super().__init__()

    def collect(self) -> Iterator[Metric]:
        """Yield every family, also without samples."""
        values = list(self._values(self._state()))
        for family in FAMILIES:
            yield build_metric(family, values)

    def _values(self, state: WatchState) -> Iterator[Value]:
        yield BUILD_INFO, build_labels(), 1
        yield FAILURES, (), state.failures
        yield RELOADS_REFUSED, (), state.reloads_refused
        yield RELOAD_SUCCESSFUL, (), state.refused is None
        if self._events is not None:
            yield EVENTS_SENT, (), self._events.sent
            yield EVENTS_DROPPED, (), self._events.dropped
        last = state.last
        if last is not None or state.failure is not None:
            yield SUCCESSFUL, (), state.failure is None
        if last is None:
            return
        yield TIME, (), last.at.timestamp()
        yield SECONDS, (), last.seconds
        yield PENDING, (), last.pending_pods
        yield NOT_EVALUATED, (), last.not_evaluated
        for (reason, severity, certainty), objects in sorted(last.findings.items()):
            yield FINDINGS, (reason, severity.value, certainty.value), objects
        for collection, objects in sorted(last.objects.items()):
            yield OBJECTS, (collection,), objects
        for collection in last.absent:
            yield ABSENT, (collection,), 1
