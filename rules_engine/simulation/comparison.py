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


@dataclass(frozen=True, slots=True, kw_only=True)
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


def _state_metric(name: str, title: str, better: Better, state: State) -> Metric:
    """Return the metric that counts the pods in a state."""
    return Metric(name=name, title=title, unit=Unit.PODS, better=better, of=lambda totals: totals.states[state])


METRICS: Sequence[Metric] = (
    Metric(
        name="bound", title="pods that got a node", unit=Unit.PODS, better=Better.HIGHER, of=lambda totals: totals.bound
    ),
    _state_metric("succeeded", "pods that ended", Better.HIGHER, State.SUCCEEDED),
    _state_metric(PENDING, "pods that wait at the end", Better.LOWER, State.PENDING),
    Metric(
        name="waitingP50",
        title="waiting time, p50",
        unit=Unit.MILLISECONDS,
        better=Better.LOWER,
        of=lambda totals: totals.waiting.p50_of_all,
    ),
    Metric(
        name="waitingP95",
        title="waiting time, p95",
        unit=Unit.MILLISECONDS,
        better=Better.LOWER,
        of=lambda totals: totals.waiting.p95_of_all,
    ),
    _state_metric("denied", "pods denied", Better.NEITHER, State.DENIED),
    _state_metric("preempted", "pods preempted", Better.LOWER, State.PREEMPTED),
    _state_metric("evicted", "pods evicted", Better.LOWER, State.EVICTED),
    Metric(
        name="fell",
        title="pods given another resource",
        unit=Unit.PODS,
        better=Better.LOWER,
        of=lambda totals: totals.fell,
    ),
    Metric(name="utilisation", title="GPU utilisation", unit=Unit.SHARE, better=Better.HIGHER, of=_gpu_utilisation),
    Metric(
        name="gpuHoursGiven",
        title="GPU-hours given",
        unit=Unit.GPU_HOURS,
        better=Better.NEITHER,
        of=lambda totals: totals.gpu_hours.given,
    ),
    Metric(
        name="gpuHoursLost",
        title="GPU-hours lost by falling",
        unit=Unit.GPU_HOURS,
        better=Better.LOWER,
        of=lambda totals: totals.gpu_hours.lost,
    ),
    Metric(
        name="gpuHoursShort",
        title="GPU-hours given too little",
        unit=Unit.GPU_HOURS,
        better=Better.LOWER,
        of=lambda totals: totals.gpu_hours.short,
    ),
    Metric(
        name="fragmentation",
        title="fragmentation",
        unit=Unit.SHARE,
        better=Better.LOWER,
        of=lambda totals: totals.fragmentation,
    ),
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
