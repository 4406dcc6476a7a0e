"""Annotations of GitHub: workflow commands that GitHub shows at lines of a pull request."""

from collections.abc import Iterator

from rules_engine.authoring.test.rule_tests import TestAnswer
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import Location


def tests_github(run: TestAnswer) -> Iterator[str]:
    """Yield a workflow command for each problem, each failed case and each uncovered item, at its location.

    Cases not run are reported together, since GitHub shows few annotations.
    """
    for problem in run.problems:
        yield github_problem(problem)
    for first, number in run.not_run_groups:
        title, cases = (str(first), "") if number == 1 else (first.test, f"{number} cases ")
        yield _github_command("error", first.source, len(first.case), title, f"{cases}not run, since {first.reason}")
    for result in run.cases:
        if not result.passed:
            yield _github_command("error", result.source, len(result.case), str(result), result.explanation)
    for item in run.coverage.uncovered if run.coverage is not None else ():
        yield _github_command(
            "warning", item.location, len(item.name), "not covered", f"{item.name} is never {item.event}"
        )


def github_problem(problem: Problem) -> str:
    """Return the workflow command for a problem."""
    return _github_command(problem.severity.value, problem.location, problem.length, problem.code, problem.message)


def _github_command(level: str, location: Location, length: int, title: str, message: str) -> str:
    properties = {
        "file": location.file,
        "line": str(location.line),
        "col": str(location.column),
        "endColumn": str(location.column + length),
        "title": title,
    }
    encoded = ",".join(f"{name}={_escape_github(value, ':,')}" for name, value in properties.items())
    return f"::{level} {encoded}::{_escape_github(message)}"


def _escape_github(text: str, also: str = "") -> str:
    """Escape what GitHub's runner unescapes: the percent sign, line ends and, in properties, colon and comma."""
    for character in f"%\r\n{also}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
