"""Results of `check` and `test` as text."""

from rules_engine.authoring.check.check import NOTHING_CHECKED, CheckAnswer
from rules_engine.authoring.test.coverage import Coverage, coverage_total
from rules_engine.authoring.test.rule_tests import CaseResult, TestRun
from rules_engine.model.problems.problem import Severity
from rules_engine.model.wording import format_count
from rules_engine.questions.explain.text import place_span, trace_tree
from rules_engine.report.text import Screen
from rules_engine.report.values import Span, Table, Tone, Words

_INDENT = 6
"""Indentation of the lines below the name of a failed case."""


def check_summary(checked: CheckAnswer) -> Words:
    """Return the numbers of files that `check` read and of their problems."""
    counts = [
        *([format_count(checked.errors, "error")] if checked.errors else []),
        *([format_count(checked.warnings, "warning")] if checked.warnings else []),
    ]
    if checked.ignored:
        counts[-1] += f" ({len(checked.ignored)} ignored)"
    parts = [
        f"{format_count(checked.files, 'file')} checked",
        *([f"{len(checked.skipped)} skipped"] if checked.skipped else []),
        *(counts or ["no problems" if checked.files else NOTHING_CHECKED]),
        *([f"{' and '.join(checked.not_read)} were not read"] if checked.not_read else []),
    ]
    warned = checked.warnings > len(checked.ignored) or not checked.files
    return Span(", ".join(parts), Tone.BAD if checked.errors else Tone.WARNING if warned else Tone.GOOD)


def print_tests(run: TestRun, screen: Screen, *, quiet: bool = False) -> None:
    """Print each case with its mismatches, then the totals. `quiet`: omit the cases that passed."""
    answer = run.answer
    screen.problems(answer.problems, run.sources)
    for first, number in answer.not_run_groups:
        name = str(first) if number == 1 else f"{first.test}: {format_count(number, 'case')}"
        screen.line((Span("not run", Tone.BAD), f"  {name}, since {first.reason}", place_span(first.source)))
    for result in answer.cases:
        if not (quiet and result.passed):
            _print_case(result, screen)
    if quiet and answer.succeeded:
        return
    errors = sum(problem.severity is Severity.ERROR for problem in answer.problems)
    parts = [
        f"{answer.passed} passed",
        *([f"{answer.failed} failed"] if answer.failed else []),
        *([f"{answer.not_run} not run"] if answer.not_run else []),
        *([f"{answer.deselected} deselected"] if answer.deselected else []),
        *([format_count(errors, "error")] if errors else []),
    ]
    screen.line(Span(", ".join(parts), Tone.GOOD if answer.succeeded else Tone.BAD))


def _print_case(result: CaseResult, screen: Screen) -> None:
    mark = Span("pass", Tone.GOOD) if result.passed else Span("FAIL", Tone.BAD)
    place = () if result.passed else (place_span(result.source),)
    screen.line((mark, f"  {result}", *place))
    if result.passed:
        return
    for mismatch in result.mismatches:
        screen.line(Span(mismatch.what, Tone.STRONG), _INDENT)
        screen.line(Span(f"- expected {mismatch.expected}", Tone.BAD), _INDENT + 2)
        screen.line(Span(f"+ actual   {mismatch.actual}", Tone.GOOD), _INDENT + 2)
    if result.mutation is not None:
        screen.tree(trace_tree(result.mutation, result.validation, Span("why", Tone.QUIET), skipped=True), _INDENT)


def print_coverage(coverage: Coverage, screen: Screen, *, quiet: bool, minimum: float | None) -> None:
    """Print a table of what is not covered, and the total. `quiet`: nothing if a minimum is reached."""
    if quiet and minimum is not None and coverage.reaches(minimum):
        return
    rows = [(str(item.location), item.name, f"never {item.event}") for item in coverage.uncovered]
    screen.table(Table(heads=("place", "not covered", "event"), rows=rows), 0, len(rows))
    screen.line(coverage_total(coverage, minimum or 0))
