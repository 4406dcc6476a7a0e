"""Figures by which simulations of one workload are compared: on several clusters, under several rule sets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

from rules_engine.model.durations import UNITS
from rules_engine.model.gpu.mig import card_share
from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.simulation.record import Amounts, Record
from rules_engine.simulation.stranded import stranded_card_time
from rules_engine.simulation.usage import distinct_admissions, run_time, time_span, waiting_time

Row = TypeVar("Row")

Key = tuple[Fraction | int, ...]
"""A sort key of figures, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHours:
    """Hours of cards; a MIG device counts as its share of a card's compute slices.

    `capacity`: of all nodes. `requested` and `given`: of pods while they ran. `lost`: given beyond the request, such as
    a whole card for a request of 1g. `short`: requested but not given. `stranded`: free but in pieces, as
    `stranded_card_time` defines it.
    """

    capacity: Fraction
    requested: Fraction
    given: Fraction
    lost: Fraction
    short: Fraction
    stranded: Fraction

    @property
    def used_share(self) -> Fraction | None:
        return self.given / self.capacity if self.capacity else None

    @property
    def unused(self) -> Fraction:
        """Hours of the capacity that no pod held."""
        return max(self.capacity - self.given, Fraction())


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a simulation.

    `pods` and `ran` are without pods that had a node at the beginning: they depend on the cluster, not on the workload.
    `waited`: the waiting time of all pods together. A pod that never ran counts up to `until`. Without `until` it will
    never run: it is one of `never_will_run`, as are pods of a Job that never arrived, and no time counts for it.
    """

    pods: int
    ran: int
    waited: Milliseconds
    never_will_run: int
    hours: GpuHours

    @property
    def never_ran(self) -> int:
        return self.pods - self.ran

    @property
    def waiting(self) -> Fraction | None:
        """Mean waiting time of all pods in milliseconds; None without pods, or if a pod will never run."""
        return Fraction(self.waited, self.pods) if self.pods and not self.never_will_run else None


class By(StrEnum):
    """Figure by which the best simulation is chosen."""

    WAITING = "waiting"
    GIVEN = "given"
    UNSERVED = "unserved"

    def key(self, figures: Figures) -> Key:
        """Return a key that is least for the best figures.

        WAITING: fewest pods that will never run, then the least mean waiting time. GIVEN: most GPU-hours given, without
        hours lost to fallback. UNSERVED: fewest pods that never ran.
        """
        match self:
            case By.WAITING:
                return figures.never_will_run, Fraction(figures.waited, max(figures.pods, 1))
            case By.GIVEN:
                return (figures.hours.lost - figures.hours.given,)
            case By.UNSERVED:
                return (figures.never_ran,)


def compute_figures(record: Record) -> Figures:
    """Return the figures of a simulation."""
    pods = [pod for pod in record.pods if pod.bound is None or waiting_time(pod) is not None]
    ran = [waited for pod in pods if (waited := waiting_time(pod)) is not None]
    hours = _compute_gpu_hours(record)
    if record.simulation.until is not None:
        waited = sum(ran) + sum(record.ended - pod.arrived for pod in pods if pod.bound is None)
        return Figures(pods=len(pods), ran=len(ran), waited=waited, never_will_run=0, hours=hours)
    arrived = sum(pod.arrival is not None and not pod.replaces for pod in record.pods)
    count = len(pods) + max(sum(arrival.pods for arrival in record.simulation.arrivals) - arrived, 0)
    return Figures(pods=count, ran=len(ran), waited=sum(ran), never_will_run=count - len(ran), hours=hours)


def _count_cards(amounts: Amounts) -> Fraction:
    """Return the cards in amounts of GPU resources; a MIG device is a share of one."""
    return sum(
        (card_share(name) * Fraction(amount, NANOS) for name, amount in amounts.items() if is_gpu(name)), Fraction()
    )


def _compute_gpu_hours(record: Record) -> GpuHours:
    """Return the GPU-hours of a simulation."""
    bound = [pod for pod in record.pods if pod.bound is not None]
    times: Counter[int] = Counter()
    for pod in bound:
        start, end = run_time(pod, record)
        times[id(pod.admitted)] += max(end - start, 0)
    requested = given = lost = short = Fraction()
    for admitted in distinct_admissions(bound):
        hours = Fraction(times[id(admitted)], UNITS["h"])
        wanted, held = _count_cards(admitted.requested), _count_cards(admitted.given)
        requested += hours * wanted
        given += hours * held
        lost += hours * max(held - wanted, Fraction())
        short += hours * max(wanted - held, Fraction())
    allocatable: Counter[str] = Counter()
    for node in record.nodes:
        allocatable.update({name: quantity.nanos for name, quantity in node.allocatable.items()})
    capacity = _count_cards(allocatable) * Fraction(time_span(record), UNITS["h"])
    stranded = stranded_card_time(record) / UNITS["h"]
    return GpuHours(capacity=capacity, requested=requested, given=given, lost=lost, short=short, stranded=stranded)


def best(rows: Iterable[tuple[Row, Figures]], by: By) -> Sequence[Row]:
    """Return the rows with the best figures, in their order: more than one row is a tie."""
    keyed = [(by.key(figures), row) for row, figures in rows]
    least = min((key for key, _ in keyed), default=None)
    return [row for key, row in keyed if key == least]
