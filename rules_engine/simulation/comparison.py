"""Comparison of simulations of one load under several rule sets, with a verdict for each metric."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from rules_engine.simulation.record import State
from rules_engine.simulation.totals import Totals

Value = Fraction | int | None
"""The value of a metric; None if it has no value, such as a percentile of waiting times at a pod that never ran."""

PENDING = "pending"
"""The metric that also depends on the number of denied pods."""


class Unit(StrEnum):
    """Units of metrics."""

    PODS = "pods"
    MILLISECONDS = "milliseconds"
    SHARE = "share"
    GPU_HOURS = "GPU-hours"


class Better(StrEnum):
    """Directions in which a metric is better; NEITHER: that depends on the purpose of the rules."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


class Verdict(StrEnum):
    """Result of comparing a value with the value of the first rule set."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Metric:
    """A number by which simulations are compared."""

    name: str
    title: str
    unit: Unit
    better: Better
    of: Callable[[Totals], Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMetric:
    """A metric with its value for each rule set, and a verdict for each but the first."""

    metric: Metric
    values: Sequence[Value]
    verdicts: Sequence[Verdict]


def _gpu_utilisation(totals: Totals) -> Value:
    hours = totals.gpu_hours
    return hours.given / hours.capacity if hours.capacity else None


METRICS: Sequence[Metric] = (
    Metric("bound", "pods that got a node", Unit.PODS, Better.HIGHER, lambda totals: totals.bound),
    Metric("succeeded", "pods that ended", Unit.PODS, Better.HIGHER, lambda totals: totals.states[State.SUCCEEDED]),
    Metric(PENDING, "pods that wait at the end", Unit.PODS, Better.LOWER, lambda totals: totals.states[State.PENDING]),
    Metric(
        "waitingP50", "waiting time, p50", Unit.MILLISECONDS, Better.LOWER, lambda totals: totals.waiting.p50_of_all
    ),
    Metric(
        "waitingP95", "waiting time, p95", Unit.MILLISECONDS, Better.LOWER, lambda totals: totals.waiting.p95_of_all
    ),
    Metric("denied", "pods denied", Unit.PODS, Better.NEITHER, lambda totals: totals.states[State.DENIED]),
    Metric("preempted", "pods preempted", Unit.PODS, Better.LOWER, lambda totals: totals.states[State.PREEMPTED]),
    Metric("evicted", "pods evicted", Unit.PODS, Better.LOWER, lambda totals: totals.states[State.EVICTED]),
    Metric("fell", "pods given another resource", Unit.PODS, Better.LOWER, lambda totals: totals.fell),
    Metric("utilisation", "GPU utilisation", Unit.SHARE, Better.HIGHER, _gpu_utilisation),
    Metric("gpuHoursGiven", "GPU-hours given", Unit.GPU_HOURS, Better.NEITHER, lambda totals: totals.gpu_hours.given),
    Metric(
        "gpuHoursLost", "GPU-hours lost by falling", Unit.GPU_HOURS, Better.LOWER, lambda totals: totals.gpu_hours.lost
    ),
    Metric(
        "gpuHoursShort",
        "GPU-hours given too little",
        Unit.GPU_HOURS,
        Better.LOWER,
        lambda totals: totals.gpu_hours.short,
    ),
    Metric("fragmentation", "fragmentation", Unit.SHARE, Better.LOWER, lambda totals: totals.fragmentation),
)
"""All metrics, in the order of reports."""


def compare_metrics(all_totals: Sequence[Totals]) -> Sequence[ComparedMetric]:
    """Return the metrics of simulations, each compared with the first simulation."""
    compared = []
    for metric in METRICS:
        values = [metric.of(totals) for totals in all_totals]
        verdicts = [_metric_verdict(metric, all_totals[0], totals) for totals in all_totals[1:]]
        compared.append(ComparedMetric(metric=metric, values=values, verdicts=verdicts))
    return compared


def _metric_verdict(metric: Metric, first_totals: Totals, other_totals: Totals) -> Verdict:
    first, other = metric.of(first_totals), metric.of(other_totals)
    if first == other:
        return Verdict.EQUAL
    if first is None or other is None:
        # A missing waiting time belongs to a pod that never ran.
        never = Verdict.WORSE if other is None else Verdict.BETTER
        return never if metric.unit is Unit.MILLISECONDS else Verdict.UNKNOWN
    if metric.better is Better.NEITHER:
        return Verdict.DIFFERENT
    never_ran = other_totals.pods - other_totals.bound - (first_totals.pods - first_totals.bound)
    if metric.name == PENDING and never_ran * (other - first) <= 0:
        # Fewer pods wait because more were denied, or vice versa.
        return Verdict.DIFFERENT
    return Verdict.BETTER if (other > first) is (metric.better is Better.HIGHER) else Verdict.WORSE
