"""Answer of a simulation: its record and totals for each rule set, and their comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

from rules_engine.model.simulation import Simulation
from rules_engine.simulation.comparison import Compared, compare
from rules_engine.simulation.record import Record
from rules_engine.simulation.totals import Totals, totals


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
    comparison: Sequence[Compared]

    @property
    def simulation(self) -> Simulation:
        return self.results[0].record.simulation

    @property
    def interrupted(self) -> bool:
        return any(result.record.interrupted for result in self.results)


def answer(records: Sequence[Record]) -> Answer:
    """Return the answer; the first rule set is the one that the others are compared with."""
    results = [Result(record=record, totals=totals(record)) for record in records]
    comparable = len(results) > 1 and not any(record.interrupted for record in records)
    return Answer(results=results, comparison=compare([result.totals for result in results]) if comparable else ())
