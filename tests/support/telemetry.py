"""Admission records as the server creates them, and metrics as Prometheus reads them."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.rule import Rule
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.state import ServerState
from rules_engine.server.telemetry.families import MetricsCollector
from rules_engine.server.telemetry.metrics import Metrics
from tests.support.evaluation import compiled
from tests.support.server import application, call, encoded, review
from tests.support.states import state_of


def admission_record(
    path: str,
    object: Any,
    *rules: Rule,
    on: Cluster = Cluster(),  # noqa: B008 - immutable
    state: ServerState | None = None,
    **request: Any,
) -> AdmissionRecord:
    """Return the record of one request to a server with these rules."""
    seen: list[AdmissionRecord] = []
    state = state or state_of(compiled(*rules), on)
    body = object if isinstance(object, bytes) else encoded(review(object, **request))
    call(application(state, observers=[seen.append]), path, body)
    [record] = seen
    return record


def series(metrics: MetricsCollector) -> dict[str, float]:
    """Return every sample of an exposition, by its name and labels as `name{label=value,…}`."""
    content, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }


def counted(metrics: Metrics, name: str) -> dict[str, float]:
    """Return the samples of one metric, by their labels."""
    return {key.removeprefix(name): value for key, value in series(metrics).items() if key.split("{")[0] == name}
