"""Coverage of rules and Diagnostics by test cases: the rules, their parts, and both outcomes of each condition."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from msgspec import Meta, field

from rules_engine.language.cel import Budget, Program
from rules_engine.model.json.output import Output
from rules_engine.model.problems.source import Location, SourceText, truncate
from rules_engine.model.rules.decision import RulePart, Step
from rules_engine.model.rules.rule import ExpressionDocument, Rule
from rules_engine.rules.diagnostic.evaluation import CompiledDiagnostic, diagnostic_environment
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.compiled import RuleKind
from rules_engine.rules.rule_set.compiler import Compiler, ExpressionCompiler


class CoverageItem(Output, frozen=True, kw_only=True):
    """An event of a part of a rule."""

    rule: Annotated[str, Meta(description="Kind and name.")]
    location: Location = field(name="source")
    name: Annotated[str, Meta(description="The rule, a part of it, or a condition.")]
    event: Annotated[str, Meta(description="What no case caused: applied, requested, given, used, true, false.")] = (
        field(name="never")
    )


class Coverage(Output, frozen=True, kw_only=True):
    """Coverage of all rules that are not Off, and of Diagnostics."""

    percent: Annotated[float, Meta(description="Rounded down to a tenth: never 100 if an item is uncovered.")]
    covered: Annotated[int, Meta(description="Items that a case covers.")]
    total: Annotated[int, Meta(description="Rules, their parts, and both outcomes of each condition.")]
    uncovered: Annotated[tuple[CoverageItem, ...], Meta(description="In file order.")]

    @classmethod
    def of(cls, items: Iterable[tuple[CoverageItem, int]]) -> "Coverage":
        """Return the coverage of items, each with the number of its events."""
        hits = sorted(items, key=lambda item: item[0].location)
        uncovered = tuple(item for item, count in hits if not count)
        total, covered = len(hits), len(hits) - len(uncovered)
        percent = 1000 * covered // total / 10 if total else 100.0
        return cls(percent=percent, covered=covered, total=total, uncovered=uncovered)

    def reaches(self, percent: float) -> bool:
        """Return True if the percentage of covered items, not rounded, is at least `percent`."""
        return 100 * self.covered >= percent * self.total


@dataclass(frozen=True, slots=True)
class _RecordedProgram(Program):
    """A condition that counts its outcomes."""

    outcomes: Counter[bool]

    def evaluate(self, activation: Mapping[str, object], budget: Budget) -> object:
        value = super(_RecordedProgram, self).evaluate(activation, budget)
        if isinstance(value, bool):
            self.outcomes[value] += 1
        return value


class _Recording(ExpressionCompiler):
    """A compiler whose conditions count their outcomes. Only tests use it: in a server, conditions cost no more."""

    def __init__(self, outcomes_at: Callable[[Location], Counter[bool]], *arguments: Any) -> None:
        self.recorded: list[_RecordedProgram] = []
        self._outcomes_at = outcomes_at
        super().__init__(*arguments)

    def condition(self, source: SourceText | None, effects: Sequence[str]) -> Program | None:
        program = super().condition(source, effects)
        if program is None:
            return None
        outcomes = self._outcomes_at(program.source.location)
        recorded = _RecordedProgram(program.checked, program.generated, outcomes)
        self.recorded.append(recorded)
        return recorded


class _RecordingCompiler(_Recording, Compiler):
    """A recording compiler of a rule."""


@dataclass(slots=True)
class _RuleCoverage:
    """The parts and conditions of a rule, and its events so far."""

    rule: Rule
    parts: Sequence[RulePart]
    conditions: Sequence[_RecordedProgram]
    applied: int
    hits: list[int]


class CoverageRecorder:
    """Recorder of coverage, for rules compiled by `compiler_of` whose rule set is then added.

    Rules are identified by their location, with links resolved: tests may refer to a file by several paths.
    """

    def __init__(self, kinds: Sequence[RuleKind] = KINDS) -> None:
        self._parts = {kind.name: kind.parts for kind in kinds}
        self._outcomes: dict[Location, Counter[bool]] = {}
        self._conditions: dict[Location, Sequence[_RecordedProgram]] = {}
        self._records: dict[Location, _RuleCoverage] = {}
        self._real_path: Callable[[str], str] = cache(os.path.realpath)
        self._diagnostics: dict[Location, tuple[Diagnostic, Sequence[_RecordedProgram]]] = {}
        """Diagnostics that were compiled without error, with their conditions."""

    def compiler_of(self, rule: Rule) -> Compiler:
        """Return a compiler that records the outcomes of a rule's conditions."""
        compiler = _RecordingCompiler(self._outcomes_at, rule)
        self._conditions[self._place(rule.location)] = compiler.recorded
        return compiler

    def diagnostic_compiler_of(self, diagnostic: Diagnostic) -> ExpressionCompiler:
        """Return a compiler that records the outcomes of a Diagnostic's condition."""
        compiler = _Recording(self._outcomes_at, diagnostic, diagnostic_environment(diagnostic.for_each))
        self._conditions[self._place(diagnostic.location)] = compiler.recorded
        return compiler

    def add_diagnostics(self, compiled: Iterable[CompiledDiagnostic]) -> None:
        """Add Diagnostics, all of which `diagnostic_compiler_of` compiled."""
        for diagnostic in (each.diagnostic for each in compiled):
            place = self._place(diagnostic.location)
            self._diagnostics.setdefault(place, (diagnostic, self._conditions[place]))

    def add(self, rule_set: RuleSet) -> None:
        """Add the rules of a set, all of which `compiler_of` compiled."""
        for compiled in rule_set.rules:
            rule, place = compiled.rule, self._place(compiled.rule.location)
            if place not in self._records:
                parts = tuple(self._parts[rule.kind](rule))
                self._records[place] = _RuleCoverage(rule, parts, self._conditions[place], 0, [0] * len(parts))

    def __contains__(self, document: ExpressionDocument) -> bool:
        """Return True if the rule or Diagnostic was compiled, in any set."""
        return self._place(document.location) in self._conditions

    def observe(self, trace: Iterable[Step], namespace: str) -> None:
        """Count the events in the trace of a pod in a namespace."""
        for step in trace:
            record = self._records[self._place(step.location)]
            record.applied += step.applies
            for index, part in enumerate(record.parts):
                record.hits[index] += part.reached(step, namespace)

    @property
    def coverage(self) -> Coverage:
        """Coverage by the traces observed so far."""
        items = [item for record in self._records.values() for item in _rule_items(record)]
        for diagnostic, conditions in self._diagnostics.values():
            items += _condition_items(diagnostic.id, conditions)
        return Coverage.of(items)

    def _outcomes_at(self, location: Location) -> Counter[bool]:
        return self._outcomes.setdefault(self._place(location), Counter())

    def _place(self, location: Location) -> Location:
        return Location(self._real_path(location.file), location.line, location.column)


def _rule_items(record: _RuleCoverage) -> Iterator[tuple[CoverageItem, int]]:
    rule = record.rule
    yield CoverageItem(rule=rule.id, location=rule.location, name=rule.id, event="applied"), record.applied
    for part, hits in zip(record.parts, record.hits, strict=True):
        yield CoverageItem(rule=rule.id, location=part.location, name=part.name, event=part.event), hits
    yield from _condition_items(rule.id, record.conditions)


def _condition_items(rule: str, conditions: Iterable[_RecordedProgram]) -> Iterator[tuple[CoverageItem, int]]:
    for condition in conditions:
        location, name = condition.source.location, truncate(" ".join(condition.source.text.split()))
        for outcome in (True, False):
            event = str(outcome).lower()
            yield CoverageItem(rule=rule, location=location, name=name, event=event), condition.outcomes[outcome]


def coverage_total(coverage: Coverage, minimum: float = 0) -> str:
    """Return the total, with the minimum if it is not reached."""
    low = "" if coverage.reaches(minimum) else f", less than {minimum:g} %"
    return f"coverage {coverage.percent:g} %: {coverage.covered} of {coverage.total}{low}"
