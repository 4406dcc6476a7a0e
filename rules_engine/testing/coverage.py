"""Coverage of rules and Diagnostics by test cases: the rules, their parts, and both outcomes of each condition."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rules_engine.cel import Budget, Program
from rules_engine.diagnosis.diagnostic import CompiledDiagnostic, Diagnostic, diagnostic_environment
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.rule_set.compiler import Compiler, ExpressionCompiler
from rules_engine.kinds import KINDS, Kind
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.excerpt import escape_controls, truncate
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.decision import RulePart, Step
from rules_engine.model.rules.rule import ExpressionDocument, Rule, RuleId
from rules_engine.report.documents import field_members, location_members


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageItem:
    """An event of a part of a rule, and how often test cases caused it."""

    rule: RuleId
    location: Location
    name: str
    event: str
    hits: int

    @property
    def covered(self) -> bool:
        return self.hits > 0


@dataclass(frozen=True, slots=True)
class Coverage:
    """The items of all rules that are not Off, in file order."""

    items: tuple[CoverageItem, ...]

    @property
    def uncovered(self) -> tuple[CoverageItem, ...]:
        return tuple(item for item in self.items if not item.covered)

    @property
    def covered(self) -> int:
        return len(self.items) - len(self.uncovered)

    @property
    def percent(self) -> float:
        """Percentage of covered items, rounded down to a tenth: never 100 if an item is uncovered."""
        return 1000 * self.covered // len(self.items) / 10 if self.items else 100.0

    def reaches(self, percent: float) -> bool:
        """Return True if the percentage of covered items, not rounded, is at least `percent`."""
        return 100 * self.covered >= percent * len(self.items)


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
class _Record:
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

    def __init__(self, kinds: Sequence[Kind] = KINDS) -> None:
        self._parts = {kind.name: kind.parts for kind in kinds}
        self._outcomes: dict[Location, Counter[bool]] = {}
        self._conditions: dict[Location, Sequence[_RecordedProgram]] = {}
        self._records: dict[Location, _Record] = {}
        self._files: dict[str, str] = {}
        """Path of each file after links, by its name."""
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
                self._records[place] = _Record(rule, parts, self._conditions[place], 0, [0] * len(parts))

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
        return Coverage(tuple(sorted(items, key=lambda item: item.location)))

    def _outcomes_at(self, location: Location) -> Counter[bool]:
        return self._outcomes.setdefault(self._place(location), Counter())

    def _place(self, location: Location) -> Location:
        file = self._files.get(location.file)
        if file is None:
            file = self._files[location.file] = os.path.realpath(location.file)
        return Location(file, location.line, location.column)


def _rule_items(record: _Record) -> Iterator[CoverageItem]:
    rule = record.rule
    yield CoverageItem(rule=rule.id, location=rule.location, name=rule.id, event="applied", hits=record.applied)
    for part, hits in zip(record.parts, record.hits, strict=True):
        yield CoverageItem(rule=rule.id, location=part.location, name=part.name, event=part.event, hits=hits)
    yield from _condition_items(rule.id, record.conditions)


def _condition_items(rule: RuleId, conditions: Iterable[_RecordedProgram]) -> Iterator[CoverageItem]:
    for condition in conditions:
        for outcome in (True, False):
            yield CoverageItem(
                rule=rule,
                location=condition.source.location,
                name=truncate(" ".join(condition.source.text.split())),
                event=str(outcome).lower(),
                hits=condition.outcomes[outcome],
            )


def coverage_table(coverage: Coverage, minimum: float = 0) -> Iterator[str]:
    """Yield a table of the uncovered items, and the total, with the minimum if it is not reached."""
    rows = [
        (escape_controls(str(item.location)), escape_controls(item.name), f"never {item.event}")
        for item in coverage.uncovered
    ]
    if rows:
        place, name = (max(len(row[column]) for row in rows) for column in (0, 1))
        yield "not covered"
        yield from (f"  {row[0]:{place}}  {row[1]:{name}}  {row[2]}" for row in rows)
    low = "" if coverage.reaches(minimum) else f", less than {minimum:g} %"
    yield f"coverage {coverage.percent:g} %: {coverage.covered} of {len(coverage.items)}{low}"


def coverage_json(coverage: Coverage) -> Json:
    """Return the coverage in the document of `test --output json`."""
    return {
        **field_members(coverage, "percent covered"),
        "total": len(coverage.items),
        "uncovered": [
            {"rule": item.rule, **location_members(item.location), "name": item.name, "never": item.event}
            for item in coverage.uncovered
        ],
    }
