"""Use of nodes over time, and free devices that pods could not use."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.simulation.record import AdmittedPod, Amounts, PodRecord, Record, State

PARTS = 120
"""Parts of the time for which a mean use is computed: a curve with this many points is smooth on a page."""

MAX_KINDS = 16
"""Kinds of pods by which the fragmentation of a resource is measured, the most frequent ones. The computing time is
proportional."""

CACHED_AMOUNTS = 65_536
"""Free amounts of a node whose unusable devices are cached: equal nodes often have the same amounts."""

Unusable = Callable[[tuple[int, ...]], Mapping[str, int]]
"""A function from the free amounts of a node to its unusable devices, multiplied by the number of pods in `weights`."""


def time_span(record: Record) -> Milliseconds:
    """Return the time over which means are taken; at least 1, for a simulation that ends at its first moment."""
    return max(record.ended, 1)


def run_time(pod: PodRecord, record: Record) -> tuple[Milliseconds, Milliseconds]:
    """Return the start and end of the time that a bound pod holds its node, within the simulation."""
    end = time_span(record) if pod.ended is None else pod.ended
    return max(pod.bound or 0, 0), end


def waiting_time(pod: PodRecord) -> Milliseconds | None:
    """Return the time that a bound pod waited; None for other pods and for pods that ran from the beginning."""
    if pod.bound is None or (pod.arrival is None and pod.bound <= 0):
        return None
    return pod.bound - pod.arrived


def distinct_admissions(pods: Iterable[PodRecord]) -> Sequence[AdmittedPod]:
    """Return the admissions of pods; equal pods share one."""
    return list({id(pod.admitted): pod.admitted for pod in pods}.values())


def pods_by_node(record: Record) -> Mapping[str, Sequence[PodRecord]]:
    """Return the pods that each node ever had, in the order of the record."""
    by_node: dict[str, list[PodRecord]] = {node.name: [] for node in record.nodes}
    for pod in record.pods:
        if pod.bound is not None:
            by_node[pod.node].append(pod)
    return by_node


def use_intervals(
    pods: Sequence[PodRecord], record: Record
) -> Iterator[tuple[Milliseconds, Milliseconds, Mapping[str, int]]]:
    """Yield start and end of each interval in which the use of a node stays the same, with the amounts.

    The intervals follow each other from 0 to the end of the simulation.
    """
    changes: list[tuple[Milliseconds, int, Amounts]] = []
    for pod in pods:
        start, end = run_time(pod, record)
        if start < end:
            changes += [(start, 1, pod.admitted.given), (end, -1, pod.admitted.given)]
    changes.sort(key=lambda change: change[0])
    used: dict[str, int] = {}
    at = 0
    for time, sign, amounts in changes:
        if time != at:
            yield at, time, dict(used)
            at = time
        for resource, amount in amounts.items():
            used[resource] = used.get(resource, 0) + sign * amount
    if at < time_span(record):
        yield at, time_span(record), dict(used)


def use_changes(
    pods: Sequence[PodRecord], names: Collection[str], record: Record
) -> Iterator[tuple[str, Milliseconds, int]]:
    """Yield each change of the use of a node's resources: the resource, the time, and the amount from then on."""
    before: dict[str, int] = {}
    for at, _, used in use_intervals(pods, record):
        for name in names:
            now = used.get(name, 0)
            if now != before.get(name):
                yield name, at, now
                before[name] = now


def mean_curve(levels: Iterable[tuple[Milliseconds, Milliseconds, int]], end: Milliseconds) -> Sequence[Fraction]:
    """Return the mean of a level in each of PARTS equal parts of the time; in each millisecond, if there are fewer.

    `levels`: starts, ends and levels of intervals in order; the level between them is 0.
    """
    parts = min(PARTS, end)
    sums = [0] * parts
    edges = [part * end // parts for part in range(parts + 1)]
    part = 0
    for start, until, level in levels:
        at = start
        while at < until:
            while edges[part + 1] <= at:
                part += 1
            upto = min(until, edges[part + 1])
            sums[part] += level * (upto - at)
            at = upto
    return [Fraction(total, edges[part + 1] - edges[part]) for part, total in enumerate(sums)]


class Fragmentation:
    """Free devices that pods could not use.

    Pods of one kind can use as many free devices of a node as pods of this kind fit on the node, by all of their
    amounts. The kinds are taken from the simulation's pods that hold the resource, weighted by the number of pods.
    """

    def __init__(self, record: Record) -> None:
        self._kinds = _pod_kinds(record)
        self.weights: Mapping[str, int] = {
            resource: sum(weight for _, weight in kinds) for resource, kinds in self._kinds.items()
        }
        requested = {name for kinds in self._kinds.values() for kind, _ in kinds for name in kind}
        self.resources = tuple(sorted(requested))
        """The resources whose free amounts matter."""
        self.unusable: Unusable = lru_cache(CACHED_AMOUNTS)(self._unusable)

    def _unusable(self, free: tuple[int, ...]) -> Mapping[str, int]:
        amounts = dict(zip(self.resources, free, strict=True))
        return {
            resource: sum(
                weight * (amounts[resource] - _usable_devices(kind, amounts, resource))
                for kind, weight in self._kinds[resource]
            )
            for resource in self._kinds
            if amounts[resource]
        }


def _usable_devices(kind: Amounts, free: Mapping[str, int], resource: str) -> int:
    fitting = min(free[name] // amount for name, amount in kind.items())
    return fitting * kind[resource]


def _pod_kinds(record: Record) -> Mapping[str, Sequence[tuple[Amounts, int]]]:
    """Return the kinds of pods that hold each GPU resource, with the number of their pods, the most frequent first."""
    shared = {id(pod.admitted): pod.admitted for pod in record.pods if pod.state is not State.DENIED}
    counts = Counter(id(pod.admitted) for pod in record.pods if pod.state is not State.DENIED)
    merged: Counter[tuple[tuple[str, int], ...]] = Counter()
    for key, admitted in shared.items():
        merged[tuple(sorted((name, amount) for name, amount in admitted.given.items() if amount))] += counts[key]
    by_resource: dict[str, list[tuple[Amounts, int]]] = {}
    for kind, count in sorted(merged.items(), key=lambda item: (-item[1], item[0])):
        for resource, _ in kind:
            if is_gpu(resource) and len(by_resource.setdefault(resource, [])) < MAX_KINDS:
                by_resource[resource].append((dict(kind), count))
    return dict(sorted(by_resource.items()))
