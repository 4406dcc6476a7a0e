"""Results as JSON, SARIF and GitHub annotations."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from textwrap import indent
from urllib.parse import quote

from rules_engine.checking.check import CheckResult
from rules_engine.checking.problem_reference import PROJECT_URL, ProblemEntry, reference_entries
from rules_engine.explaining.explain import Explanation, Material
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.problem import Problem, Severity
from rules_engine.model.problems.source import Location
from rules_engine.report.documents import field_members, location_members, problem_members
from rules_engine.testing.coverage import coverage_json
from rules_engine.testing.rule_tests import CaseName, CaseResult, DiagnosisResult, Result, TestRun


def check_json(checked: CheckResult) -> Json:
    """Return the document of `check --output json`."""
    problems: list[Json] = [problem_members(problem) for problem in checked.problems]
    problems += [{**problem_members(ignored.problem), "ignored": ignored.reason} for ignored in checked.ignored]
    return {
        "problems": problems,
        "errors": checked.errors,
        "warnings": checked.warnings + len(checked.ignored),
        "ignored": len(checked.ignored),
        "files": checked.files,
        "ignoredFiles": list(checked.passed_over),
        "rules": checked.rules,
        "tests": checked.tests,
    }


def check_sarif(checked: CheckResult) -> Json:
    """Return the SARIF 2.1.0 log of `check --output sarif`. Columns count characters; `endColumn` is exclusive."""
    from importlib.metadata import version  # its import takes longer than the other formats

    codes = sorted({problem.code for problem, _ in _with_suppressions(checked)})
    entries = reference_entries()
    driver: Json = {
        "name": "gpu-rules",
        "version": version("gpu-rules"),
        "informationUri": PROJECT_URL,
        "rules": [_sarif_rule(entries[code]) for code in codes],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [
                    {**_sarif_result(problem, codes), "suppressions": suppressions}
                    for problem, suppressions in _with_suppressions(checked)
                ],
            }
        ],
    }


def _with_suppressions(checked: CheckResult) -> Iterator[tuple[Problem, Json]]:
    """Yield each problem with its suppressions. If one result has the list, all must have it."""
    for problem in checked.problems:
        yield problem, []
    for ignored in checked.ignored:
        yield ignored.problem, [{"kind": "inSource", "justification": ignored.reason}]


def _sarif_rule(entry: ProblemEntry) -> Json:
    first, *_ = entry.cause.split(". ")
    return {
        "id": entry.code,
        "shortDescription": {"text": f"{first.removesuffix('.')}."},
        "fullDescription": {"text": f"{entry.cause} {entry.remedy}"},
        "help": {"text": entry.explanation(), "markdown": entry.markdown()},
        "helpUri": entry.url,
        "defaultConfiguration": {"level": entry.severity.value},
    }


def _sarif_result(problem: Problem, codes: Sequence[ProblemCode]) -> dict[str, Json]:
    location = problem.location
    region: Json = {
        "startLine": location.line,
        "startColumn": location.column,
        "endColumn": location.column + problem.length,
    }
    # A relative path becomes a relative reference, with forward slashes on every system.
    uri = quote(PurePath(location.file).as_posix(), errors="surrogateescape")
    return {
        "ruleId": problem.code,
        "ruleIndex": codes.index(problem.code),
        "level": problem.severity.value,
        "message": {"text": problem.message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }


def check_github(checked: CheckResult) -> Iterator[str]:
    """Yield a workflow command for each problem; GitHub shows it at its line in a pull request."""
    for problem in checked.problems:
        yield _github_problem(problem)


def _github_problem(problem: Problem) -> str:
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


def tests_json(run: TestRun) -> Json:
    """Return the document of `test --output json`."""
    return {
        "succeeded": run.succeeded,
        "cases": [_case_json(result) for result in run.results],
        "problems": [problem_members(problem) for problem in run.problems],
        "notRun": [{**_case_name_json(case.name), "reason": case.obstacle.value} for case in run.not_run],
        "deselected": run.deselected,
        **({} if run.coverage is None else {"coverage": coverage_json(run.coverage)}),
    }


def tests_github(run: TestRun) -> Iterator[str]:
    """Yield a workflow command for each problem, each failed case and each uncovered item, at its location.

    Cases not run are reported together, since GitHub shows few annotations.
    """
    for problem in run.problems:
        yield _github_problem(problem)
    for first, number in run.not_run_groups:
        case = first.name.case
        title, cases = (str(first.name), "") if number == 1 else (first.name.test, f"{number} cases ")
        yield _github_command("error", case.location, len(case.name), title, f"{cases}not run, since {first.obstacle}")
    for result in run.results:
        case = result.name.case
        if not result.passed:
            yield _github_command("error", case.location, len(case.name), str(result.name), result.explanation)
    for item in run.coverage.uncovered if run.coverage is not None else ():
        yield _github_command(
            "warning", item.location, len(item.name), "not covered", f"{item.name} is never {item.event}"
        )


def _case_name_json(name: CaseName) -> dict[str, Json]:
    return {
        "test": name.test,
        "case": name.case.name,
        **({"cluster": name.cluster} if name.cluster else {}),
        "source": location_members(name.case.location),
    }


def _case_json(result: Result) -> Json:
    details: dict[str, Json] = {}
    if isinstance(result, CaseResult):
        details["trace"] = [step.to_json(location_members) for step in result.admission.trace]
    if isinstance(result, DiagnosisResult):
        details["findings"] = [field_members(finding, "reason object message") for finding in result.findings]
    return {
        **_case_name_json(result.name),
        "passed": result.passed,
        "mismatches": [field_members(mismatch, "what expected actual") for mismatch in result.mismatches],
        **details,
    }


def explain_json(
    material: Material,
    explanations: Iterable[Explanation],
    problems: Sequence[dict[str, Json]],
    encode: Callable[[Json], str],
) -> Iterator[str]:
    """Yield the document of `explain --output json` pod by pod, of which there may be many thousands.

    `problems`, as members, may grow until the last explanation.
    """
    yield f'{{\n  "rules": {indent(encode([*material.rules]), "  ").lstrip()},\n'
    yield f'  "cluster": {encode(material.cluster_name)},\n'
    yield '  "pods": ['
    allowed = True
    for index, explanation in enumerate(explanations):
        allowed = allowed and explanation.admission.allowed
        yield f"{',' if index else ''}\n{indent(encode(explanation.to_json()), '    ')}"
    failed = any(problem["severity"] == Severity.ERROR.value for problem in problems)
    yield f'\n  ],\n  "allowed": {encode(allowed and not failed)},\n'
    yield f'  "problems": {indent(encode([*problems]), "  ").lstrip()}\n}}\n'
