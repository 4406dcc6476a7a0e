"""Figures by which simulations of one workload are compared: on several clusters, under several rule sets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, TypeVar

from msgspec import Meta

from rules_engine.accelerators.resources import card_share, is_gpu
from rules_engine.model.durations import UNITS
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.quantity import NANOS, NanosByResource
from rules_engine.questions.simulate.record import Record
from rules_engine.questions.simulate.stranded import stranded_card_time
from rules_engine.questions.simulate.usage import distinct_admissions, run_time, time_span, waiting_time

Row = TypeVar("Row")

FigureKey = tuple[Fraction | int, ...]
"""A sort key of figures, the best first."""


class GpuHours(Output, frozen=True, kw_only=True):
    """Hours of cards; a MIG device counts as its share of a card's compute slices."""

    capacity: Annotated[Fraction, Meta(description="Of all nodes.")]
    requested: Annotated[Fraction, Meta(description="Requested by pods, while they ran.")]
    given: Annotated[Fraction, Meta(description="Held by pods.")]
    lost: Annotated[Fraction, Meta(description="Given beyond the request, such as a whole card for a request of 1g.")]
    short: Annotated[Fraction, Meta(description="Requested, but not given.")]
    unused: Annotated[Fraction, Meta(description="Of the capacity, what no pod held.")]
    stranded: Annotated[Fraction, Meta(description="Unused in pieces; waiting pods would fit on them together.")]

    @property
    def used_share(self) -> Fraction | None:
        return self.given / self.capacity if self.capacity else None


class Figures(Output, frozen=True, kw_only=True):
    """Figures of a simulation."""

    pods: Annotated[int, Meta(description="Pods without a node at the beginning: they depend on the workload alone.")]
    ran: Annotated[int, Meta(description="Of these, pods that got a node.")]
    never_will_run: Annotated[int, Meta(description="Without `until`: pods that did not run, or not arrive.")]
    total_waiting_seconds: Annotated[Fraction, Meta(description="A pod that never ran counts up to `until`, if given.")]
    mean_waiting_seconds: Annotated[Fraction | None, Meta(description="null: no pods, or a pod will never run.")]
    gpu_hours: GpuHours

    @property
    def never_ran(self) -> int:
        return self.pods - self.ran


class By(StrEnum):
    """Figure by which the best simulation is chosen."""

    WAITING = "waiting"
    GIVEN = "given"
    UNSERVED = "unserved"

    def key(self, figures: Figures) -> FigureKey:
        """Return a key that is least for the best figures.

        WAITING: fewest pods that will never run, then the least mean waiting time. GIVEN: most GPU-hours given, without
        hours lost to fallback. UNSERVED: fewest pods that never ran.
        """
        match self:
            case By.WAITING:
                return figures.never_will_run, figures.total_waiting_seconds / max(figures.pods, 1)
            case By.GIVEN:
                return (figures.gpu_hours.lost - figures.gpu_hours.given,)
            case By.UNSERVED:
                return (figures.never_ran,)


def compute_figures(record: Record) -> Figures:
    """Return the figures of a simulation."""
    pods = [pod for pod in record.pods if pod.bound is None or waiting_time(pod) is not None]
    ran = [waited for pod in pods if (waited := waiting_time(pod)) is not None]
    count, waited = len(pods), sum(ran)
    if record.simulation.until is not None:
        waited += sum(record.ended - pod.arrived for pod in pods if pod.bound is None)
        never_will_run = 0
    else:
        arrived = sum(pod.arrival is not None and not pod.replaces for pod in record.pods)
        count += max(sum(arrival.pods for arrival in record.simulation.arrivals) - arrived, 0)
        never_will_run = count - len(ran)
    return Figures(
        pods=count,
        ran=len(ran),
        never_will_run=never_will_run,
        total_waiting_seconds=Fraction(waited, 1000),
        mean_waiting_seconds=Fraction(waited, 1000 * count) if count and not never_will_run else None,
        gpu_hours=_compute_gpu_hours(record),
    )


def _count_cards(amounts: NanosByResource) -> Fraction:
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
    used = [
        (Fraction(times[id(each)], UNITS["h"]), _count_cards(each.requested), _count_cards(each.given))
        for each in distinct_admissions(bound)
    ]
    given = sum((hours * held for hours, _, held in used), Fraction())
    allocatable: Counter[str] = Counter()
    for node in record.nodes:
        allocatable.update({name: quantity.nanos for name, quantity in node.allocatable.items()})
    capacity = _count_cards(allocatable) * Fraction(time_span(record), UNITS["h"])
    return GpuHours(
        capacity=capacity,
        requested=sum((hours * wanted for hours, wanted, _ in used), Fraction()),
        given=given,
        lost=sum((hours * max(held - wanted, Fraction()) for hours, wanted, held in used), Fraction()),
        short=sum((hours * max(wanted - held, Fraction()) for hours, wanted, held in used), Fraction()),
        unused=max(capacity - given, Fraction()),
        stranded=stranded_card_time(record) / UNITS["h"],
    )


def best(rows: Iterable[tuple[Row, Figures]], by: By) -> Sequence[Row]:
    """Return the rows with the best figures, in their order: more than one row is a tie."""
    keyed = [(by.key(figures), row) for row, figures in rows]
    least = min((key for key, _ in keyed), default=None)
    return [row for key, row in keyed if key == least]
