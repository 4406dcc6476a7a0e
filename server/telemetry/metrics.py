"""Metrics for Prometheus, derived from decisions and from the server's state.

Requests are counted here, under one lock; prometheus-client renders the counts on each scrape. Every label
has a bounded set of values: endpoints, outcomes, and the names and the digest of the loaded rules.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from threading import Lock
from time import monotonic
from typing import TypeAlias

from prometheus_client.core import HistogramMetricFamily, Metric

from rules_engine.model.kubernetes.cluster import Freshness
from rules_engine.model.rules.decision import Action, Step
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.state import ServerState
from rules_engine.server.telemetry.decision_log import DecisionLog
from rules_engine.server.telemetry.events import Events
from rules_engine.server.telemetry.families import (
    BUILD_INFO,
    EVENTS_DROPPED,
    EVENTS_SENT,
    RELOAD_SUCCESSFUL,
    RELOADS_REFUSED,
    Family,
    MetricsCollector,
    MetricType,
    Value,
    build_labels,
    build_metric,
    counter,
    gauge,
)

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: from the time of one decision to the default timeoutSeconds of a webhook."""

REQUESTS = counter("requests", "Admission requests by outcome.", "endpoint", "outcome", "dry_run")
SECONDS = Family(
    name="gpu_rules_request_seconds",
    kind=MetricType.HISTOGRAM,
    help="Time to parse, decide and answer a request, without the wait for a thread.",
    labels=("endpoint",),
)
STEPS = counter("rule_steps", "Steps of rules by action, also of rules in audit mode.", "rule", "action", "mode")
FALLBACKS = counter(
    "ladder_fallbacks", "Resources that a ladder replaced by another rung's.", "rule", "from", "to", "mode"
)
INJECTIONS = counter("injections", "Injections of a resource into a pod.", "rule", "resource", "mode")
DENIALS = counter("denials", "Denials by rule and reason.", "rule", "reason", "mode")
ERRORS = counter("evaluation_errors", "Rules whose evaluation failed, by resulting action.", "rule", "action", "mode")
OPT_OUTS = counter("opt_outs", "Rules skipped because of the pod's opt-out annotation.", "rule")
CLUSTER_UNKNOWN = counter(
    "cluster_unknown", "Steps without a decision, since the state of the cluster was unknown.", "rule", "mode"
)

IN_FLIGHT = gauge("requests_in_flight", "Decisions in the thread for larger pods, or waiting for it.")
CONNECTIONS = gauge("http_connections", "Open connections, handshakes included.", "listener")
HELD_BYTES = gauge(
    "http_held_bytes", "Bytes of request headers and bodies being received or waiting for a decision.", "listener"
)
LIMITS_EXCEEDED = counter("http_limits_exceeded", "HTTP limits exceeded.", "listener", "limit")
HANDSHAKES_FAILED = counter("http_handshakes_failed", "Failed TLS handshakes.", "listener", "reason")
READY = gauge("ready", "1 if the server is ready for requests, else 0.")
RULES = gauge("rules", "Active rules, by kind.", "kind")
RULES_INFO = gauge("rules_info", "1, labelled with the digest of the active rules.", "digest")
GENERATION = gauge("rules_generation", "Number of rule sets that this process has activated.")
RULES_SINCE = gauge("rules_since_timestamp_seconds", "Time at which the active rules were activated.")
RULES_KEPT = gauge("rules_kept", "1 if kept rules are active, because the rule files had errors at the start, else 0.")
RELOAD_TIME = gauge("rules_last_reload_timestamp_seconds", "Time of the last reload.")
FRESH = gauge("cluster_fresh", "1 if the view of the cluster is fresh, else 0.")
COLLECTION_SYNCED = gauge("cluster_synced", "1 if a collection has been listed, else 0.", "collection")
COLLECTION_AGE = gauge("cluster_age_seconds", "Time since a collection was last known to be current.", "collection")
COLLECTION_EVENTS = counter(
    "cluster_reads", "Lists, watches, watch events and failed calls by kind.", "collection", "what"
)
RESERVATIONS = gauge("cluster_reservations", "Decided pods with reserved devices, not yet bound to a node.")
OVERPROMISES = gauge("cluster_overpromises", "1 if rules read free devices but no caller can reserve any, else 0.")
CERTIFICATE = gauge("certificate_expiry_timestamp_seconds", "Expiry time of the serving certificate.")
CERTIFICATES_REFUSED = counter("certificates_refused", "Changed certificates refused because they cannot be served.")
WEBHOOK_READ = gauge("webhook_read", "1 if the last read of a webhook configuration succeeded, else 0.", "endpoint")
WEBHOOK_DRIFT = gauge(
    "webhook_drift", "1 if a webhook configuration differs from what the active rules need, else 0.", "endpoint"
)
OFFERS_AGE = gauge("offers_age_seconds", "Time since GPUOffers were last written, or since the start.")
OFFERS_OMITTED = gauge("offers_omitted", "1 for each rule that GPUOffers leave out.", "rule")
LOG_WRITTEN = counter("decision_log_lines", "Lines written to the decision log.")
LOG_DROPPED = counter(
    "decision_log_dropped", "Lines of the decision log dropped because the queue was full or the write failed."
)
LOG_TRUNCATED = counter("decision_log_truncated", "Lines of the decision log with shortened or omitted members.")
LOG_UNRECORDED = counter(
    "decision_log_unrecorded", "Lines of the decision log without their requests, which are too long for a line."
)

COUNTED = (REQUESTS, STEPS, FALLBACKS, INJECTIONS, DENIALS, ERRORS, OPT_OUTS, CLUSTER_UNKNOWN)

FAMILIES = tuple(it for it in [*globals().values()] if isinstance(it, Family))
"""All metrics of the server."""

Sample: TypeAlias = tuple[str, ...]
"""Name of a counter, and the values of its labels in their order."""


def _step_samples(step: Step) -> Iterator[Sample]:
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
                yield FALLBACKS.name, rule, decision.resource, decision.to, mode
        for resource in {amount.resource: None for amount in step.amounts}:
            yield INJECTIONS.name, rule, resource, mode
    if action is Action.DENY:
        yield DENIALS.name, rule, step.reason, mode
    if step.reason == "evaluation-error":
        yield ERRORS.name, rule, action.value, mode
    if step.cluster_unknown:
        yield CLUSTER_UNKNOWN.name, rule, mode


class Metrics(MetricsCollector):
    """Observer that counts admission records, and collector of all metrics. Safe for use from several threads."""

    def __init__(
        self,
        state: ServerState,
        *,
        decision_log: DecisionLog | None = None,
        events: Events | None = None,
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
        self._durations: dict[str, list[float]] = {}
        """By endpoint, the counts by bucket, the last one for all longer durations, and the sum of durations."""
        super().__init__()

    def __call__(self, record: AdmissionRecord) -> None:
        """Count one admission record."""
        request = REQUESTS.name, record.endpoint, record.outcome, "true" if record.dry_run else "false"
        steps = () if record.decision is None else record.decision.trace
        samples = [request, *(sample for step in steps for sample in _step_samples(step))]
        with self._lock:
            self._counts.update(samples)
            durations = self._durations.setdefault(record.endpoint, [0] * (len(BUCKETS) + 2))
            durations[bisect_left(BUCKETS, record.seconds)] += 1
            durations[-1] += record.seconds

    def collect(self) -> Iterator[Metric]:
        """Yield every family, also without samples."""
        with self._lock:
            self._delete_series_of_former_rules()
            counts = dict(self._counts)
            durations = {name: [*each] for name, each in self._durations.items()}
        families = {family.name: family for family in COUNTED}
        counted = ((families[name], tuple(labels), count) for (name, *labels), count in sorted(counts.items()))
        values: list[Value] = [*counted, *self._current_values()]
        for family in FAMILIES:
            if family.kind is MetricType.HISTOGRAM:
                yield _build_histogram(family, durations)
                continue
            yield build_metric(family, values)

    def _delete_series_of_former_rules(self) -> None:
        """Delete the series of rules no longer active; otherwise each reload could add series."""
        rule_ids = {item.rule.id for item in self._state.served.rule_set.rules}
        for sample in [it for it in self._counts if it[0] != REQUESTS.name and it[1] not in rule_ids]:
            del self._counts[sample]

    def _current_values(self) -> Iterator[Value]:
        """Yield the current values that are not counted here."""
        state = self._state
        yield IN_FLIGHT, (), state.in_flight
        yield from self._listener_values()
        yield BUILD_INFO, build_labels(), 1
        yield READY, (), state.readiness_problem(self._now()) is None
        served, reload = state.served, state.last_reload
        yield RULES_INFO, (served.digest,), 1
        yield GENERATION, (), served.generation
        yield RULES_SINCE, (), served.since.timestamp()
        for kind, count in served.rules_by_kind.items():
            yield RULES, (kind,), count
        yield RELOADS_REFUSED, (), state.reloads_refused
        yield RELOAD_SUCCESSFUL, (), reload is None or reload.refused is None
        yield RULES_KEPT, (), served.kept
        if reload is not None:
            yield RELOAD_TIME, (), reload.at.timestamp()
        yield FRESH, (), state.cluster.freshness is Freshness.SYNCED
        yield RESERVATIONS, (), state.source.reservations
        yield OVERPROMISES, (), state.overpromises
        if state.offers is not None:
            yield OFFERS_AGE, (), max(0.0, (self._now() - state.offers.at).total_seconds())
            for rule in state.offers.omitted:
                yield OFFERS_OMITTED, (rule,), 1
        for collection in state.source.health:
            yield COLLECTION_SYNCED, (collection.name,), collection.synced
            if collection.synced:
                yield COLLECTION_AGE, (collection.name,), max(0.0, self._clock() - collection.contact)
            for what, count in sorted(collection.counts.items()):
                yield COLLECTION_EVENTS, (collection.name, what), count
        if state.certificate_not_after is not None:
            yield CERTIFICATE, (), state.certificate_not_after.timestamp()
        yield CERTIFICATES_REFUSED, (), state.certificates_refused
        yield from self._webhook_values()
        yield from self._output_values()

    def _output_values(self) -> Iterator[Value]:
        if (log := self._decision_log) is not None:
            yield LOG_WRITTEN, (), log.sent
            yield LOG_DROPPED, (), log.dropped
            yield LOG_TRUNCATED, (), log.truncated
            yield LOG_UNRECORDED, (), log.unrecorded
        if (events := self._events) is not None:
            yield EVENTS_SENT, (), events.sent
            yield EVENTS_DROPPED, (), events.dropped

    def _listener_values(self) -> Iterator[Value]:
        for listener in self._state.listeners:
            counts = listener.counts
            yield CONNECTIONS, (listener.name,), counts.open_connections
            yield HELD_BYTES, (listener.name,), counts.held_bytes
            for limit, count in counts.exceeded.items():
                yield LIMITS_EXCEEDED, (listener.name, limit), count
            for reason, count in counts.handshakes_failed.items():
                yield HANDSHAKES_FAILED, (listener.name, reason), count

    def _webhook_values(self) -> Iterator[Value]:
        """Yield the drift of the webhook configurations; configurations not read yet are skipped."""
        for endpoint, compared in (self._state.webhooks or {}).items():
            yield WEBHOOK_READ, (endpoint,), compared.problem is None
            if compared.differences is not None:
                yield WEBHOOK_DRIFT, (endpoint,), bool(compared.differences)


def _build_histogram(family: Family, durations: Mapping[str, Sequence[float]]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    bounds = [*map(str, BUCKETS), "+Inf"]
    for endpoint, (*counts, total) in sorted(durations.items()):
        metric.add_metric([endpoint], list(zip(bounds, accumulate(counts), strict=True)), sum_value=total)
    return metric
