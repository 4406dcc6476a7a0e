"""Metrics for Prometheus, read off decisions and off the server's state.

What a request adds is counted here, under one lock; prometheus-client writes it down when somebody asks. Every label
has a bounded set of values: endpoints, outcomes, and names that the loaded rules themselves contain.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from platform import python_version
from threading import Lock
from time import monotonic
from typing import Protocol, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rules_engine.model.cluster import Freshness
from rules_engine.model.decision import Action, Decision, Step
from server.http.admission_record import AdmissionRecord
from server.state import State

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: from what a decision takes to what an API server waits at most for a webhook by default."""


class Kind(Enum):
    """What Prometheus calls a type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric: its name without the suffix of its type, what it says, and its labels."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def exposed_name(self) -> str:
        """As Prometheus sees it; of a histogram there are _bucket, _sum and _count."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


def _counter(name: str, help: str, *labels: str) -> Family:
    return Family(name=f"gpu_rules_{name}", kind=Kind.COUNTER, help=help, labels=labels)


def _gauge(name: str, help: str, *labels: str) -> Family:
    return Family(name=f"gpu_rules_{name}", kind=Kind.GAUGE, help=help, labels=labels)


REQUESTS = _counter("requests", "Admission requests by what became of them.", "endpoint", "outcome", "dry_run")
REMEMBERED = _counter(
    "remembered", "Requests that got the decision of an earlier one, which no rule can tell from them.", "endpoint"
)
SECONDS = Family(
    name="gpu_rules_request_seconds",
    kind=Kind.HISTOGRAM,
    help="Time to read, decide and answer a request, without waiting for a thread.",
    labels=("endpoint",),
)
STEPS = _counter("rule_steps", "What rules did, and in audit mode would have done.", "rule", "action", "mode")
FALLS = _counter("ladder_falls", "Resources that a ladder gave in place of another.", "rule", "from", "to", "mode")
INJECTIONS = _counter("injections", "Pods that a rule brought a resource to.", "rule", "resource", "mode")
DENIALS = _counter("denials", "Denials by rule and reason.", "rule", "reason", "mode")
ERRORS = _counter(
    "evaluation_errors", "Rules that could not be evaluated, and what came of it.", "rule", "action", "mode"
)
OPT_OUTS = _counter("opt_outs", "Rules skipped because the pod's annotation asked for it.", "rule")
CLUSTER_UNKNOWN = _counter(
    "cluster_unknown", "Decisions not to decide, since nothing is known of the cluster.", "rule", "mode"
)

IN_FLIGHT = _gauge("requests_in_flight", "Decisions under way.")
CONNECTIONS = _gauge("http_connections", "Open connections, handshakes included.", "listener")
HELD_BYTES = _gauge(
    "http_held_bytes", "Bytes of request headers and bodies that are received or wait for a decision.", "listener"
)
LIMITS_EXCEEDED = _counter("http_limits_exceeded", "HTTP limits exceeded.", "listener", "limit")
BUILD_INFO = _gauge("build_info", "1, with the version of this program and of Python.", "version", "python")
HANDSHAKES_FAILED = _counter("http_handshakes_failed", "TLS handshakes that failed.", "listener", "reason")
READY = _gauge("ready", "Whether new requests are wanted.")
RULES = _gauge("rules", "Rules in force, by kind.", "kind")
GENERATION = _gauge("rules_generation", "How many rule sets this process has put in force.")
RULES_SINCE = _gauge("rules_since_timestamp_seconds", "When the rules in force were put in force.")
RELOAD_SUCCESSFUL = _gauge("rules_last_reload_successful", "Whether the last rules that were found are in force.")
RELOAD_TIME = _gauge("rules_last_reload_timestamp_seconds", "When rules were last found to have changed.")
RELOADS_REFUSED = _counter("rules_reloads_refused", "Changed rules that were not put in force, for their errors.")
FRESH = _gauge("cluster_fresh", "Whether the view of the cluster can be decided on.")
COLLECTION_SYNCED = _gauge("cluster_synced", "Whether a collection has been read once.", "collection")
COLLECTION_AGE = _gauge("cluster_age_seconds", "Since a collection was last known to be current.", "collection")
COLLECTION_EVENTS = _counter(
    "cluster_reads", "Lists, watches and their events, and calls that failed, by what it was.", "collection", "what"
)
RESERVATIONS = _gauge("cluster_reservations", "Admitted pods that are not yet seen on a node.")
OVERPROMISES = _gauge(
    "cluster_overpromises", "Whether rules ask for what is free while no caller can get devices reserved."
)
CERTIFICATE = _gauge("certificate_expiry_timestamp_seconds", "When the certificate that is served expires.")
CERTIFICATES_REFUSED = _counter("certificates_refused", "Changed certificates that could not be served.")
WEBHOOK_READ = _gauge("webhook_read", "Whether a webhook configuration could be read when last looked at.", "endpoint")
WEBHOOK_DRIFT = _gauge(
    "webhook_drift", "Whether a webhook configuration is another than the rules in force need.", "endpoint"
)
LOG_WRITTEN = _counter("decision_log_lines", "Lines of the decision log that were written.")
LOG_DROPPED = _counter("decision_log_dropped", "Lines of the decision log that were lost, for want of time or space.")
LOG_TRUNCATED = _counter("decision_log_truncated", "Lines of the decision log from which something was left out.")
EVENTS_SENT = _counter("events", "Kubernetes Events that were sent.")
EVENTS_DROPPED = _counter("events_dropped", "Kubernetes Events that were not sent: too many, or a call that failed.")

_NAME_NO_RULE = frozenset({REQUESTS.name, REMEMBERED.name})

COUNTED = (REQUESTS, REMEMBERED, STEPS, FALLS, INJECTIONS, DENIALS, ERRORS, OPT_OUTS, CLUSTER_UNKNOWN)

FAMILIES = (
    *COUNTED,
    SECONDS,
    IN_FLIGHT,
    CONNECTIONS,
    HELD_BYTES,
    LIMITS_EXCEEDED,
    HANDSHAKES_FAILED,
    BUILD_INFO,
    READY,
    RULES,
    GENERATION,
    RULES_SINCE,
    RELOAD_SUCCESSFUL,
    RELOAD_TIME,
    RELOADS_REFUSED,
    FRESH,
    COLLECTION_SYNCED,
    COLLECTION_AGE,
    COLLECTION_EVENTS,
    RESERVATIONS,
    OVERPROMISES,
    CERTIFICATE,
    CERTIFICATES_REFUSED,
    WEBHOOK_READ,
    WEBHOOK_DRIFT,
    LOG_WRITTEN,
    LOG_DROPPED,
    LOG_TRUNCATED,
    EVENTS_SENT,
    EVENTS_DROPPED,
)
"""Every metric of ours; what prometheus-client says of the process (process_…) comes besides."""

Sample: TypeAlias = tuple[str, ...]
"""The name of a family that is counted, and the values of its labels in their order."""

Value: TypeAlias = tuple[Family, tuple[str, ...], float]


def counted(record: AdmissionRecord) -> Iterator[Sample]:
    """What one request adds, each by one."""
    yield REQUESTS.name, record.endpoint, record.outcome, "true" if record.dry_run else "false"
    if record.decision is not None:
        if record.decision.remembered:
            yield REMEMBERED.name, record.endpoint
        yield from record.decision.once(_counted_steps)


def _counted_steps(decision: Decision) -> tuple[Sample, ...]:
    return tuple(sample for step in decision.trace for sample in _counted_step(step))


def _counted_step(step: Step) -> Iterator[Sample]:
    rule, action = step.rule, step.action
    if action is Action.SKIP:
        if step.reason == "opt-out":
            yield OPT_OUTS.name, rule
        return
    mode = "audit" if step.audit else "enforce"
    yield STEPS.name, rule, action.value, mode
    if action is Action.CHANGE:
        for decision in step.resources:
            if decision.to is not None:
                yield FALLS.name, rule, decision.resource, decision.to, mode
        for resource in {amount.resource: None for amount in step.amounts}:
            yield INJECTIONS.name, rule, resource, mode
    if action is Action.DENY:
        yield DENIALS.name, rule, step.reason, mode
    if step.reason == "evaluation-error":
        yield ERRORS.name, rule, action.value, mode
    if step.cluster_unknown:
        yield CLUSTER_UNKNOWN.name, rule, mode


class Losses(Protocol):
    """Something that sends on what it is told, and drops what is too much."""

    @property
    def sent(self) -> int: ...
    @property
    def dropped(self) -> int: ...


class Log(Losses, Protocol):
    """A log that also shortens what is too long."""

    @property
    def truncated(self) -> int: ...


class Metrics(Collector):
    """Counts exchanges, as one of their observers, and writes everything down. Safe for use from several threads."""

    def __init__(
        self,
        state: State,
        *,
        decision_log: Log | None = None,
        events: Losses | None = None,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._state = state
        self._decision_log = decision_log
        self._events = events
        self._clock = clock
        self._now = now
        self._lock = Lock()
        self._counts: Counter[Sample] = Counter()
        self._durations: dict[str, _Durations] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def __call__(self, record: AdmissionRecord) -> None:
        """Count one exchange."""
        samples = list(counted(record))
        with self._lock:
            for sample in samples:
                self._counts[sample] += 1
            durations = self._durations.get(record.endpoint)
            if durations is None:
                durations = self._durations[record.endpoint] = _Durations()
            durations.add(record.seconds)

    def exposition(self) -> tuple[bytes, str]:
        """Everything in Prometheus' text format, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """Every family, also those that have nothing to say yet."""
        with self._lock:
            self._forget_rules_of_the_past()
            counts = dict(self._counts)
            durations = {name: (list(found.counts), found.sum) for name, found in self._durations.items()}
        values: list[Value] = [*self._counted(counts), *self._observed()]
        for family in FAMILIES:
            if family.kind is Kind.HISTOGRAM:
                yield _histogram(family, durations)
                continue
            make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
            metric = make(family.name, family.help, labels=family.labels)
            for owner, labels, value in values:
                if owner is family:
                    metric.add_metric(labels, value)
            yield metric

    def describe(self) -> Sequence[Metric]:
        """Nothing: the registry need not look for names that are there twice."""
        return ()

    def _forget_rules_of_the_past(self) -> None:
        """Rules that are not in force any more lose their series, or reloads would add to them without end."""
        served = self._state.served
        if served is None:
            return
        rules = served.rule_set
        known = {item.rule.id for kind in (rules.ladders, rules.injections, rules.validations) for item in kind}
        for sample in [sample for sample in self._counts if sample[0] not in _NAME_NO_RULE and sample[1] not in known]:
            del self._counts[sample]

    @staticmethod
    def _counted(counts: Mapping[Sample, int]) -> Iterator[Value]:
        families = {family.name: family for family in COUNTED}
        for (name, *labels), count in sorted(counts.items()):
            yield families[name], tuple(labels), count

    def _observed(self) -> Iterator[Value]:
        """What is not counted here, as it is now."""
        state = self._state
        yield IN_FLIGHT, (), state.in_flight
        yield from self._listening()
        yield BUILD_INFO, (_version(), python_version()), 1
        yield READY, (), state.not_ready(self._now()) is None
        served, reload = state.served, state.last_reload
        if served is not None:
            yield GENERATION, (), served.generation
            yield RULES_SINCE, (), served.since.timestamp()
            for kind, count in served.rules_by_kind.items():
                yield RULES, (kind,), count
        yield RELOADS_REFUSED, (), state.reloads_refused
        yield RELOAD_SUCCESSFUL, (), reload is None or reload.refused is None
        if reload is not None:
            yield RELOAD_TIME, (), reload.at.timestamp()
        yield FRESH, (), state.cluster is not None and state.cluster.freshness is Freshness.SYNCED
        if state.source is not None:
            yield RESERVATIONS, (), state.source.reservations
        yield OVERPROMISES, (), state.overpromises
        for collection in () if state.source is None else state.source.health:
            yield COLLECTION_SYNCED, (collection.name,), collection.synced
            if collection.synced:
                yield COLLECTION_AGE, (collection.name,), max(0.0, self._clock() - collection.contact)
            for what, count in sorted(collection.counts.items()):
                yield COLLECTION_EVENTS, (collection.name, what), count
        if state.certificate_not_after is not None:
            yield CERTIFICATE, (), state.certificate_not_after.timestamp()
        yield CERTIFICATES_REFUSED, (), state.certificates_refused
        yield from self._compared()
        for losses, sent, dropped in (
            (self._decision_log, LOG_WRITTEN, LOG_DROPPED),
            (self._events, EVENTS_SENT, EVENTS_DROPPED),
        ):
            if losses is not None:
                yield sent, (), losses.sent
                yield dropped, (), losses.dropped
        if self._decision_log is not None:
            yield LOG_TRUNCATED, (), self._decision_log.truncated

    def _listening(self) -> Iterator[Value]:
        for listener in self._state.listeners:
            yield CONNECTIONS, (listener.name,), listener.open_connections
            yield HELD_BYTES, (listener.name,), listener.held_bytes
            for limit, count in listener.exceeded.items():
                yield LIMITS_EXCEEDED, (listener.name, limit), count
            for reason, count in listener.handshakes_failed.items():
                yield HANDSHAKES_FAILED, (listener.name, reason), count

    def _compared(self) -> Iterator[Value]:
        """How the webhook configurations fit the rules; of one that was never read nothing is known."""
        for endpoint, compared in (self._state.webhooks or {}).items():
            yield WEBHOOK_READ, (endpoint,), compared.problem is None
            if compared.differences is not None:
                yield WEBHOOK_DRIFT, (endpoint,), bool(compared.differences)


@cache
def _version() -> str:
    """Return this program's version; "unknown" where it runs from a checkout that is not installed."""
    try:
        return version("gpu-rules")
    except PackageNotFoundError:
        return "unknown"


class _Durations:
    """How many took how long: counts by bucket, the last one for all that took longer."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


def _histogram(family: Family, durations: Mapping[str, tuple[list[int], float]]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    bounds = [*map(str, BUCKETS), "+Inf"]
    for endpoint, (counts, total) in sorted(durations.items()):
        metric.add_metric([endpoint], list(zip(bounds, accumulate(counts), strict=True)), sum_value=total)
    return metric
