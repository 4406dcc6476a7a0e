"""Figures by which simulations of one load are compared: on several clusters, under several rule sets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

from rules_engine.model.rules.simulation import Milliseconds
from rules_engine.simulation.record import Record
from rules_engine.simulation.totals import GpuHours, compute_gpu_hours, waiting_time

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a simulation.

    `pods` and `ran` are without pods that had a node at the beginning: these depend on the cluster, not on the load.
    `waited`: the waiting time of all pods together. A pod that never ran counts up to `until`; without `until` it never
    will run: it is one of `never_will_run`, and no time counts for it.
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
        """Mean waiting time of all pods in milliseconds; None without pods, or if a pod never will run."""
        return Fraction(self.waited, self.pods) if self.pods and not self.never_will_run else None


class By(StrEnum):
    """Figure by which the best simulation is chosen."""

    WAITING = "waiting"
    GIVEN = "given"
    UNSERVED = "unserved"

    def key(self, figures: Figures) -> tuple[Fraction | int, ...]:
        """Return a key that is least for the best figures.

        WAITING: fewest pods that never will run, then the least mean waiting time. GIVEN: most GPU-hours given, without
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
    ends = record.simulation.until is not None
    never_ran = [record.ended - pod.arrived for pod in pods if pod.bound is None]
    return Figures(
        pods=len(pods),
        ran=len(ran),
        waited=sum(ran) + (sum(never_ran) if ends else 0),
        never_will_run=0 if ends else len(never_ran),
        hours=compute_gpu_hours(record),
    )


def best(rows: Iterable[tuple[Row, Figures]], by: By) -> Sequence[Row]:
    """Return the rows with the best figures, in their order: more than one row is a tie."""
    keyed = [(by.key(figures), row) for row, figures in rows]
    least = min((key for key, _ in keyed), default=None)
    return [row for key, row in keyed if key == least]
