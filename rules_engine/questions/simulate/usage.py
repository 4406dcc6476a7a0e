"""Use of nodes over time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from rules_engine.model.kubernetes.quantity import NanosByResource
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.questions.simulate.record import AdmittedPod, PodRecord, Record

PARTS = 120
"""Parts of the time for which a mean use is computed: a curve with this many points is smooth on a page."""


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
    changes: list[tuple[Milliseconds, int, NanosByResource]] = []
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
