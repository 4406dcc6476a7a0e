"""Totals of a simulation: the use of resources, fallbacks, and pods with the same denial or message."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, TypeVar

from msgspec import Meta

from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.quantity import NANOS, base_units
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.simulation.record import PodRecord, Record, State
from rules_engine.simulation.usage import (
    distinct_admissions,
    mean_curve,
    pods_by_node,
    time_span,
    use_intervals,
)

Units = int | float
"""Cores, bytes, devices or seconds."""

Amounts = Annotated[Mapping[str, Units], Meta(description="By resource.")]
PodNames = Annotated[tuple[str, ...], Meta(description="Namespace and name of each.")]

Key = TypeVar("Key")


class ResourceUse(Output, frozen=True, kw_only=True):
    """The use of a resource. Pods that are bound at the last moment count only at the end, and in the peak."""

    capacity: Annotated[Units, Meta(description="Allocatable at the beginning.")]
    mean: Annotated[Fraction, Meta(description="On average over time.")]
    peak: Annotated[Units, Meta(description="The most in use at a time.")]
    end: Annotated[Units, Meta(description="In use at the end.")]

    @property
    def share(self) -> Fraction | None:
        """The mean use as a share of the capacity; None if there is no capacity."""
        return self.mean / Fraction(self.capacity) if self.capacity else None


class ClusterUse(ResourceUse, frozen=True, kw_only=True):
    """The use of a resource on all nodes. Pods that are bound at the last moment count only at the end and peak."""

    curve: Annotated[tuple[Fraction, ...], Meta(description="The mean use in at most 120 equal parts of the time.")]


class NodeResourceUse(ResourceUse, frozen=True, kw_only=True):
    """The use of a resource on a node. Pods that are bound at the last moment count only at the end and peak."""

    used: Annotated[tuple[tuple[Units, Units], ...], Meta(description="A time in seconds, and the use from then on.")]


class NodeUse(Output, frozen=True, kw_only=True):
    """The use of a node."""

    name: str
    pods: Annotated[int, Meta(description="Pods that the node ever had.")]
    resources: Mapping[str, NodeResourceUse]


class FallbackTotal(Output, frozen=True, kw_only=True):
    """Pods that a rule moved from one resource to another."""

    rule: RuleId
    requested: str
    given: str
    pods: int
    devices: Annotated[int, Meta(description="Devices that they requested.")]


class Denial(Output, frozen=True, kw_only=True):
    """Pods that are denied with one message."""

    pods: PodNames
    message: Annotated[str, Meta(description="Of the first pod, if the messages differ in names of pods alone.")]
    rule: Annotated[RuleId | None, Meta(description="null: no rule denied the pods, which are malformed.")]


class Waiting(Output, frozen=True, kw_only=True):
    """Pods that wait at the end with one message and equal amounts."""

    pods: PodNames
    message: Annotated[str, Meta(description="The scheduler's.")]
    given: Amounts
    longest_seconds: Annotated[Units, Meta(description="The time that the first of them has waited.")]


class NotModelled(Output, frozen=True, kw_only=True):
    """Pods that use something that the simulation does not model."""

    pods: PodNames
    what: Annotated[str, Meta(description="What is not modelled.")]


def to_seconds(time: Milliseconds) -> Units:
    """Return a time in seconds, with milliseconds as decimals."""
    whole, milliseconds = divmod(time, 1000)
    return time / 1000 if milliseconds else whole


def measure_use(record: Record) -> tuple[Mapping[str, ClusterUse], tuple[NodeUse, ...]]:
    """Return the use of each resource, GPUs first, and of each node."""
    use = _Use(record)
    use.measure()
    return use.resources(), tuple(use.nodes)


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
        used_from: dict[str, list[tuple[Units, Units]]] = {each: [] for each in self._names}
        end: Counter[str] = Counter()
        for pod in pods:
            if pod.state is State.RUNNING:
                end.update(pod.admitted.given)
        for start, until, used in use_intervals(pods, self._record):
            for resource in self._names:
                if start == 0 or used.get(resource, 0) != before.get(resource, 0):
                    used_from[resource].append((to_seconds(start), base_units(used.get(resource, 0))))
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
                name=name,
                pods=len(pods),
                resources={
                    each: NodeResourceUse(
                        capacity=base_units(allocatable.get(each, 0)),
                        mean=Fraction(integral[each], self._span * NANOS),
                        peak=base_units(max(peak.get(each, 0), end[each])),
                        end=base_units(end[each]),
                        used=tuple(used_from[each]),
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
            capacity=base_units(self._capacity[name]),
            mean=Fraction(self._integral[name], self._span * NANOS),
            peak=base_units(max((self._end[name], *(level for _, level in levels)))),
            end=base_units(self._end[name]),
            curve=tuple(mean / NANOS for mean in mean_curve(spans, self._span)),
        )


def _resources_to_report(record: Record) -> Sequence[str]:
    """Return the resources to report, GPUs first: resources given to pods, and GPUs of nodes."""
    admissions = [pod for pod in distinct_admissions(record.pods) if not pod.message]
    names = {name for pod in admissions for name, amount in pod.given.items() if amount}
    names |= {name for node in record.nodes for name, quantity in node.allocatable.items() if is_gpu(name) and quantity}
    return sorted(names, key=lambda name: (not is_gpu(name), name))


def percentile(ordered: Sequence[Milliseconds], percent: int) -> Milliseconds | None:
    """Return a percentile by nearest rank; None without values."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def count_fallbacks(pods: Sequence[PodRecord]) -> tuple[FallbackTotal, ...]:
    """Return the fallbacks by rule and resources, the most frequent first."""
    pods_by_move: Counter[tuple[RuleId, str, str]] = Counter()
    devices: Counter[tuple[RuleId, str, str]] = Counter()
    for pod in pods:
        if pod.state is State.DENIED:
            continue
        for fallback in pod.admitted.fallbacks:
            devices[fallback.rule, fallback.requested, fallback.given] += fallback.devices
        pods_by_move.update(
            {(fallback.rule, fallback.requested, fallback.given) for fallback in pod.admitted.fallbacks}
        )
    return tuple(
        FallbackTotal(rule=rule, requested=requested, given=given, pods=number, devices=devices[rule, requested, given])
        for (rule, requested, given), number in sorted(pods_by_move.items(), key=lambda item: (-item[1], item[0]))
    )


def group_denials(pods: Sequence[PodRecord]) -> tuple[Denial, ...]:
    """Return denials by message. Messages that differ only in the pod's name are merged under the first one."""
    by_message: dict[tuple[RuleId | None, str], list[PodRecord]] = {}
    for pod in pods:
        if pod.state is State.DENIED:
            message = pod.admitted.message.replace(f"{pod.namespace}/{pod.name}", "")
            by_message.setdefault((pod.admitted.denied_by, message), []).append(pod)
    return tuple(
        Denial(pods=pod_names(denied), message=denied[0].admitted.message, rule=rule)
        for (rule, _), denied in _most_pods_first(by_message)
    )


def group_pending(record: Record) -> tuple[Waiting, ...]:
    """Return waiting pods by message and amounts."""
    by_message: dict[tuple[str, tuple[tuple[str, int], ...]], list[PodRecord]] = {}
    for pod in record.pods:
        if pod.state is State.PENDING:
            by_message.setdefault((pod.message, tuple(sorted(pod.admitted.given.items()))), []).append(pod)
    return tuple(
        Waiting(
            pods=pod_names(waiting),
            message=message,
            given=to_units(dict(given)),
            longest_seconds=to_seconds(record.ended - min(pod.arrived for pod in waiting)),
        )
        for (message, given), waiting in _most_pods_first(by_message)
    )


def group_not_modelled(pods: Sequence[PodRecord]) -> tuple[NotModelled, ...]:
    """Return pods by what they use that is not modelled."""
    by_text: dict[str, list[PodRecord]] = {}
    for pod in pods:
        for text in pod.admitted.not_modelled:
            by_text.setdefault(text, []).append(pod)
    return tuple(NotModelled(pods=pod_names(using), what=text) for text, using in _most_pods_first(by_text))


def _most_pods_first(groups: Mapping[Key, Sequence[PodRecord]]) -> Sequence[tuple[Key, Sequence[PodRecord]]]:
    """Return groups by descending number of pods; equal groups keep the order of their first pods."""
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def pod_names(pods: Sequence[PodRecord]) -> tuple[str, ...]:
    return tuple(f"{pod.namespace}/{pod.name}" for pod in pods)


def to_units(nanos_by_resource: Mapping[str, int]) -> Mapping[str, Units]:
    """Return amounts in cores, bytes and devices."""
    return {name: base_units(nanos) for name, nanos in sorted(nanos_by_resource.items())}
