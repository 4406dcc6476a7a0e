"""Answer of a simulation: its record and totals for each rule set, and their comparison."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rules_engine.model.rules.simulation import Simulation
from rules_engine.simulation.comparison import ComparedMetric, compare_metrics
from rules_engine.simulation.record import Record
from rules_engine.simulation.totals import Totals, compute_totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer for one rule set."""

    record: Record
    totals: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer for one rule set or several.

    `comparison` is empty for one rule set, and if a simulation was interrupted: parts of a load are not comparable.
    """

    results: Sequence[Result]
    comparison: Sequence[ComparedMetric]

    @property
    def simulation(self) -> Simulation:
        return self.results[0].record.simulation

    @property
    def interrupted(self) -> bool:
        return any(result.record.interrupted for result in self.results)


def build_answer(records: Sequence[Record]) -> Answer:
    """Return the answer; the other rule sets are compared with the first.

    All simulations are measured up to the end of the longest: nothing changes after the end of the others.
    """
    comparable = len(records) > 1 and not any(record.interrupted for record in records)
    if comparable:
        ended = max(record.ended for record in records)
        records = [replace(record, ended=ended) for record in records]
    results = [Result(record=record, totals=compute_totals(record)) for record in records]
    return Answer(results=results, comparison=compare_metrics([each.totals for each in results]) if comparable else ())
