"""Totals of a simulation: the use of resources, fallbacks, and pods with the same denial or message."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from rules_engine.accelerators.resources import is_gpu
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.quantity import NANOS, base_units
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.questions.simulate.record import NOT_ADMITTED, PodRecord, Record, State
from rules_engine.questions.simulate.usage import (
    distinct_admissions,
    mean_curve,
    pods_by_node,
    time_span,
    use_intervals,
)

Units = int | float
"""Cores, bytes, devices or seconds."""

UnitsByResource = Annotated[Mapping[str, Units], Meta(description="By resource.")]
PodNames = Annotated[tuple[str, ...], Meta(description="Namespace and name of each.")]

Level = tuple[Milliseconds, Milliseconds, int]
"""Start and end of an interval, and the amount in use."""

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
    """Pods that are denied or refused with one message."""

    pods: PodNames
    message: Annotated[str, Meta(description="Of the first pod, if the messages differ in names of pods alone.")]
    rule: Annotated[RuleId | None, Meta(description="null: the API server itself refused the pods.")]


class Waiting(Output, frozen=True, kw_only=True):
    """Pods that wait at the end with one message and equal amounts."""

    pods: PodNames
    message: Annotated[str, Meta(description="The scheduler's.")]
    given: UnitsByResource
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
    """Return the use of each resource that pods were given or that is a GPU, GPUs first, and of each node."""
    given = [pod.given for pod in distinct_admissions(record.pods) if not pod.message]
    held = {name for amounts in given for name, amount in amounts.items() if amount}
    held |= {name for node in record.nodes for name, quantity in node.allocatable.items() if is_gpu(name) and quantity}
    names, pods, nodes = sorted(held, key=lambda name: (not is_gpu(name), name)), pods_by_node(record), []
    total: Counter[str] = Counter()
    for node in record.nodes:
        capacity = Counter({name: quantity.nanos for name, quantity in node.allocatable.items()})
        total += capacity
        uses = {
            name: NodeResourceUse(**use, used=tuple(_changes(levels)))
            for name, use, levels in _measure(names, pods[node.name], capacity, record)
            if capacity[name] or use["mean"]
        }
        nodes.append(NodeUse(name=node.name, pods=len(pods[node.name]), resources=uses))
    resources = {
        name: ClusterUse(**use, curve=tuple(mean / NANOS for mean in mean_curve(levels, time_span(record))))
        for name, use, levels in _measure(names, [pod for each in pods.values() for pod in each], total, record)
    }
    return resources, tuple(nodes)


def _measure(
    names: Sequence[str], pods: Sequence[PodRecord], capacity: Mapping[str, int], record: Record
) -> Iterator[tuple[str, dict[str, Any], Sequence[Level]]]:
    """Yield each resource with the members of its use by pods, and with its levels."""
    intervals, end = [*use_intervals(pods, record)], Counter[str]()
    for pod in pods:
        if pod.state is State.RUNNING:
            end.update(pod.admitted.given)
    for name in names:
        levels = [(start, until, used.get(name, 0)) for start, until, used in intervals]
        integral = sum(level * (until - start) for start, until, level in levels)
        use = {
            "capacity": base_units(capacity.get(name, 0)),
            "mean": Fraction(integral, time_span(record) * NANOS),
            "peak": base_units(max([end[name], *(level for _, _, level in levels)])),
            "end": base_units(end[name]),
        }
        yield name, use, levels


def _changes(levels: Sequence[Level]) -> Iterator[tuple[Units, Units]]:
    before = None
    for start, _, level in levels:
        if level != before:
            yield to_seconds(start), base_units(level)
        before = level


def percentile(ordered: Sequence[Milliseconds], percent: int) -> Milliseconds | None:
    """Return a percentile by nearest rank; None without values."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def count_fallbacks(pods: Sequence[PodRecord]) -> tuple[FallbackTotal, ...]:
    """Return the fallbacks by rule and resources, the most frequent first."""
    moves: dict[tuple[RuleId, str, str], list[tuple[int, int]]] = {}
    for number, pod in enumerate(pods):
        for each in pod.admitted.fallbacks if pod.state not in NOT_ADMITTED else ():
            moves.setdefault((each.rule, each.requested, each.given), []).append((number, each.devices))
    totals = [
        FallbackTotal(rule=rule, requested=requested, given=given, pods=len({*numbers}), devices=sum(devices))
        for (rule, requested, given), moved in sorted(moves.items())
        for numbers, devices in [zip(*moved, strict=True)]
    ]
    return tuple(sorted(totals, key=lambda total: -total.pods))


def group_denials(pods: Sequence[PodRecord]) -> tuple[Denial, ...]:
    """Return denials by message. Messages that differ only in the pod's name are merged under the first one."""
    keyed = (
        ((pod.admitted.denied_by, pod.admitted.message.replace(f"{pod.namespace}/{pod.name}", "")), pod)
        for pod in pods
        if pod.state in NOT_ADMITTED
    )
    return tuple(
        Denial(pods=pod_names(denied), message=denied[0].admitted.message, rule=rule)
        for (rule, _), denied in _groups(keyed)
    )


def group_pending(record: Record) -> tuple[Waiting, ...]:
    """Return waiting pods by message and amounts."""
    waiting = [pod for pod in record.pods if pod.state is State.PENDING]
    return tuple(
        Waiting(
            pods=pod_names(group),
            message=message,
            given=to_units(dict(given)),
            longest_seconds=to_seconds(record.ended - min(pod.arrived for pod in group)),
        )
        for (message, given), group in _groups(
            ((pod.message, tuple(sorted(pod.admitted.given.items()))), pod) for pod in waiting
        )
    )


def group_not_modelled(pods: Sequence[PodRecord]) -> tuple[NotModelled, ...]:
    """Return pods by what they use that is not modelled."""
    groups = _groups((text, pod) for pod in pods for text in pod.admitted.not_modelled)
    return tuple(NotModelled(pods=pod_names(using), what=text) for text, using in groups)


def _groups(keyed: Iterable[tuple[Key, PodRecord]]) -> Sequence[tuple[Key, Sequence[PodRecord]]]:
    """Return pods by key, the most first; groups of equal size keep the order of their first pods."""
    groups: dict[Key, list[PodRecord]] = {}
    for key, pod in keyed:
        groups.setdefault(key, []).append(pod)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def pod_names(pods: Sequence[PodRecord]) -> tuple[str, ...]:
    return tuple(f"{pod.namespace}/{pod.name}" for pod in pods)


def to_units(nanos_by_resource: Mapping[str, int]) -> Mapping[str, Units]:
    """Return amounts in cores, bytes and devices."""
    return {name: base_units(nanos) for name, nanos in sorted(nanos_by_resource.items())}
