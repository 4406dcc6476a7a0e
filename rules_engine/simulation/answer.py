"""Answer of simulations of one workload: the record and totals of each, and the best of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rules_engine.model.rules.simulation import Simulation
from rules_engine.simulation.figures import By, best
from rules_engine.simulation.record import PodRecord, Record
from rules_engine.simulation.totals import Totals, compute_totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer for one cluster and rule set."""

    record: Record
    totals: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer for each cluster and rule set: a table with one row for each, which are compared by `by`."""

    results: Sequence[Result]
    by: By

    @property
    def simulation(self) -> Simulation:
        return self.results[0].record.simulation

    @property
    def interrupted(self) -> bool:
        """True if a simulation was interrupted: parts of a workload are not comparable."""
        return any(result.record.interrupted for result in self.results)

    @property
    def best(self) -> Sequence[int]:
        """The numbers of the best results, several if they tie; none if no pod ran."""
        rows = [(number, result.totals.figures) for number, result in enumerate(self.results)]
        return best(rows, self.by) if any(figures.ran for _, figures in rows) else ()

    @property
    def never_ran(self) -> Sequence[PodRecord]:
        """The pods that ran in no simulation, as the first one records them."""
        ran = {
            (pod.namespace, pod.name) for result in self.results for pod in result.record.pods if pod.bound is not None
        }
        return [pod for pod in self.results[0].record.pods if (pod.namespace, pod.name) not in ran]

    @property
    def names(self) -> Sequence[str]:
        """The name of each result: its cluster if there are several, and its rules if there are several rule sets."""
        records = [result.record for result in self.results]
        sets = len({record.rules for record in records}) > 1
        return [", rules ".join([record.cluster] * self.several_clusters + [record.rules] * sets) for record in records]

    @property
    def several_clusters(self) -> bool:
        return len({result.record.cluster for result in self.results}) > 1


def build_answer(records: Sequence[Record], by: By = By.WAITING) -> Answer:
    """Return the answer.

    All simulations are measured up to the end of the longest: nothing changes after the end of the others.
    """
    if not any(record.interrupted for record in records):
        ended = max(record.ended for record in records)
        records = [replace(record, ended=ended) for record in records]
    return Answer(results=[Result(record=record, totals=compute_totals(record)) for record in records], by=by)
