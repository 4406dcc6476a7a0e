"""Totals of a simulation: the use of resources, GPU-hours, waiting times, fallbacks, denials and losses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.simulation.figures import Figures, compute_figures
from rules_engine.simulation.record import Amounts, PodRecord, Record, State
from rules_engine.simulation.usage import (
    distinct_admissions,
    mean_curve,
    pods_by_node,
    time_span,
    use_intervals,
    waiting_time,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    """The use of a resource, of one node or of all, in nanos: on average over time, at most, and at the end.

    Pods that are bound at the last moment count only at the end, and in the peak.
    """

    capacity: int
    mean: Fraction
    peak: int
    end: int

    @property
    def share(self) -> Fraction | None:
        """The mean use as a share of the capacity; None if there is no capacity."""
        return self.mean / self.capacity if self.capacity else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUse(ResourceUse):
    """The use of a resource in the cluster.

    `curve`: the mean use in each of PARTS equal parts of the time.
    """

    curve: Sequence[Fraction] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """The use of a node by resource; `pods`: all pods that it ever had."""

    node: str
    pods: int
    resources: Mapping[str, ResourceUse]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTimes:
    """Waiting times of the pods that were bound, by nearest rank; None if no pod was bound.

    `longest`: of the `waiting` pods at the end.
    """

    p50: Milliseconds | None
    p95: Milliseconds | None
    waiting: int
    longest: Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackTotal:
    """Fallbacks from one resource to another: the pods that fell back, and the devices that they requested."""

    rule: RuleId
    requested: str
    given: str
    pods: int
    devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsWith:
    """Pods with the same text: a denial, a message of the scheduler, or a feature that is not modelled."""

    text: str
    rule: RuleId | None = None
    given: Amounts = field(default_factory=dict)
    pods: Sequence[PodRecord] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of a simulation."""

    time: Milliseconds
    pods: int
    states: Mapping[State, int]
    bound: int
    fell_back: int
    replaced: int
    resources: Mapping[str, ClusterUse]
    nodes: Sequence[NodeUse] = field(repr=False)
    figures: Figures
    waiting: WaitingTimes
    fallbacks: Sequence[FallbackTotal]
    denials: Sequence[PodsWith]
    pending: Sequence[PodsWith]
    not_modelled: Sequence[PodsWith]


def compute_totals(record: Record) -> Totals:
    """Return the totals of a simulation."""
    use = _Use(record)
    use.measure()
    states = Counter(pod.state for pod in record.pods)
    bound = [pod for pod in record.pods if pod.bound is not None]
    return Totals(
        time=record.ended,
        pods=len(record.pods),
        states={state: states[state] for state in State},
        bound=len(bound),
        fell_back=sum(bool(pod.admitted.fallbacks) and pod.state is not State.DENIED for pod in record.pods),
        replaced=sum(bool(pod.replaces) for pod in record.pods),
        resources=use.resources(),
        nodes=use.nodes,
        figures=compute_figures(record),
        waiting=_waiting_times(record, bound),
        fallbacks=_count_fallbacks(record.pods),
        denials=_group_denials(record.pods),
        pending=_group_pending(record.pods),
        not_modelled=_group_not_modelled(record.pods),
    )


class _Use:
    """Sums over the nodes of a simulation."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._span = time_span(record)
        self._names = _resources_to_report(record)
        self.nodes: list[NodeUse] = []
        self._capacity: Counter[str] = Counter()
        self._integral: Counter[str] = Counter()
        self._end: Counter[str] = Counter()
        self._changes: dict[str, Counter[Milliseconds]] = {name: Counter() for name in self._names}

    def measure(self) -> None:
        """Add up all nodes."""
        pods = pods_by_node(self._record)
        for node in self._record.nodes:
            allocatable = {name: quantity.nanos for name, quantity in node.allocatable.items()}
            self._measure_node(node.name, allocatable, pods[node.name])

    def _measure_node(self, name: str, allocatable: Mapping[str, int], pods: Sequence[PodRecord]) -> None:
        integral: Counter[str] = Counter()
        peak: dict[str, int] = {}
        before: Mapping[str, int] = {}
        end: Counter[str] = Counter()
        for pod in pods:
            if pod.state is State.RUNNING:
                end.update(pod.admitted.given)
        for start, until, used in use_intervals(pods, self._record):
            for resource, amount in used.items():
                if amount != before.get(resource, 0):
                    self._changes[resource][start] += amount - before.get(resource, 0)
                    peak[resource] = max(peak.get(resource, 0), amount)
                integral[resource] += amount * (until - start)
            before = used
        self._capacity.update({each: allocatable.get(each, 0) for each in self._names})
        self._integral.update(integral)
        self._end.update(end)
        self.nodes.append(
            NodeUse(
                node=name,
                pods=len(pods),
                resources={
                    each: ResourceUse(
                        capacity=allocatable.get(each, 0),
                        mean=Fraction(integral[each], self._span),
                        peak=max(peak.get(each, 0), end[each]),
                        end=end[each],
                    )
                    for each in self._names
                    if allocatable.get(each) or integral[each]
                },
            )
        )

    def resources(self) -> Mapping[str, ClusterUse]:
        """Return the use of each resource in the cluster."""
        return {name: self._cluster_use(name) for name in self._names}

    def _cluster_use(self, name: str) -> ClusterUse:
        levels: list[tuple[Milliseconds, int]] = []
        level = 0
        for time, change in sorted(self._changes[name].items()):
            level += change
            levels.append((time, level))
        ends = [*(time for time, _ in levels[1:]), self._span]
        spans = ((start, end, level) for (start, level), end in zip(levels, ends, strict=False))
        return ClusterUse(
            capacity=self._capacity[name],
            mean=Fraction(self._integral[name], self._span),
            peak=max((self._end[name], *(level for _, level in levels))),
            end=self._end[name],
            curve=mean_curve(spans, self._span),
        )


def _resources_to_report(record: Record) -> Sequence[str]:
    """Return the resources to report, GPUs first: resources given to pods, and GPUs of nodes."""
    admissions = [pod for pod in distinct_admissions(record.pods) if not pod.message]
    names = {name for pod in admissions for name, amount in pod.given.items() if amount}
    names |= {name for node in record.nodes for name, quantity in node.allocatable.items() if is_gpu(name) and quantity}
    return sorted(names, key=lambda name: (not is_gpu(name), name))


def _waiting_times(record: Record, bound: Sequence[PodRecord]) -> WaitingTimes:
    times = sorted(time for pod in bound if (time := waiting_time(pod)) is not None)
    waiting = [record.ended - pod.arrived for pod in record.pods if pod.state is State.PENDING]
    return WaitingTimes(
        p50=_percentile(times, 50),
        p95=_percentile(times, 95),
        waiting=len(waiting),
        longest=max(waiting, default=0),
    )


def _percentile(ordered: Sequence[Milliseconds], percent: int) -> Milliseconds | None:
    """Return a percentile by nearest rank; None without values."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def _count_fallbacks(pods: Sequence[PodRecord]) -> Sequence[FallbackTotal]:
    pods_by_move: Counter[tuple[RuleId, str, str]] = Counter()
    devices: Counter[tuple[RuleId, str, str]] = Counter()
    for pod in pods:
        if pod.state is State.DENIED:
            continue
        for fallback in pod.admitted.fallbacks:
            devices[fallback.rule, fallback.requested, fallback.given] += fallback.count
        pods_by_move.update(
            {(fallback.rule, fallback.requested, fallback.given) for fallback in pod.admitted.fallbacks}
        )
    return [
        FallbackTotal(rule=rule, requested=requested, given=given, pods=number, devices=devices[rule, requested, given])
        for (rule, requested, given), number in sorted(pods_by_move.items(), key=lambda item: (-item[1], item[0]))
    ]


def _group_denials(pods: Sequence[PodRecord]) -> Sequence[PodsWith]:
    """Return denied pods by message. Messages that differ only in the pod's name are merged under the first one."""
    by_message: dict[tuple[RuleId | None, str], list[PodRecord]] = {}
    for pod in pods:
        if pod.state is State.DENIED:
            message = pod.admitted.message.replace(f"{pod.namespace}/{pod.name}", "")
            by_message.setdefault((pod.admitted.denied_by, message), []).append(pod)
    return _most_pods_first(
        [PodsWith(text=denied[0].admitted.message, rule=rule, pods=denied) for (rule, _), denied in by_message.items()]
    )


def _group_pending(pods: Sequence[PodRecord]) -> Sequence[PodsWith]:
    by_message: dict[tuple[str, tuple[tuple[str, int], ...]], list[PodRecord]] = {}
    for pod in pods:
        if pod.state is State.PENDING:
            by_message.setdefault((pod.message, tuple(sorted(pod.admitted.given.items()))), []).append(pod)
    return _most_pods_first(
        [PodsWith(text=text, given=dict(given), pods=waiting) for (text, given), waiting in by_message.items()]
    )


def _group_not_modelled(pods: Sequence[PodRecord]) -> Sequence[PodsWith]:
    by_text: dict[str, list[PodRecord]] = {}
    for pod in pods:
        for text in pod.admitted.not_modelled:
            by_text.setdefault(text, []).append(pod)
    return _most_pods_first([PodsWith(text=text, pods=using) for text, using in by_text.items()])


def _most_pods_first(groups: Sequence[PodsWith]) -> Sequence[PodsWith]:
    """Return groups by descending number of pods; equal groups keep the order of their first pods."""
    return sorted(groups, key=lambda group: -len(group.pods))
