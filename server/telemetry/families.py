"""Families of metrics, and their exposition to Prometheus."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class MetricType(Enum):
    """Metric type of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric: its name without the suffix of its type, its help text and its labels."""

    name: str
    kind: MetricType
    help: str
    labels: tuple[str, ...] = ()


Value: TypeAlias = tuple[Family, tuple[str, ...], float]


def counter(name: str, help: str, *labels: str) -> Family:
    return Family(name=f"gpu_rules_{name}", kind=MetricType.COUNTER, help=help, labels=labels)


def gauge(name: str, help: str, *labels: str) -> Family:
    return Family(name=f"gpu_rules_{name}", kind=MetricType.GAUGE, help=help, labels=labels)


BUILD_INFO = gauge("build_info", "1, labelled with the versions of gpu-rules and Python.", "version", "python")
RELOAD_SUCCESSFUL = gauge("rules_last_reload_successful", "1 if the last reload succeeded, else 0.")
RELOADS_REFUSED = counter("rules_reloads_refused", "Changed rule sets refused because of errors.")
EVENTS_SENT = counter("events", "Kubernetes Events sent.")
EVENTS_DROPPED = counter("events_dropped", "Kubernetes Events dropped because of a rate limit or a failed call.")


@cache
def build_labels() -> tuple[str, str]:
    """Return the versions of gpu-rules, "unknown" in a checkout that is not installed, and of Python."""
    try:
        return version("gpu-rules"), python_version()
    except PackageNotFoundError:
        return "unknown", python_version()


class MetricsCollector(Collector):
    """Collector of the metrics of gpu-rules; prometheus-client adds metrics of the process (process_…)."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def exposition(self) -> tuple[bytes, str]:
        """Return all metrics in Prometheus' text format, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    @abstractmethod
    def collect(self) -> Iterator[Metric]:
        """Yield every family, also without samples."""


def build_metric(family: Family, values: Iterable[Value]) -> Metric:
    """Return the samples of a counter or a gauge among all values."""
    make = CounterMetricFamily if family.kind is MetricType.COUNTER else GaugeMetricFamily
    made = make(family.name, family.help, labels=family.labels)
    for owner, labels, value in values:
        if owner is family:
            made.add_metric(labels, value)
    return made
