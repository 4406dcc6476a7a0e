"""SARIF 2.1.0 log of a check."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from urllib.parse import quote

from rules_engine.authoring.check.check import CheckAnswer
from rules_engine.authoring.check.problem_reference import PROJECT_URL, ProblemEntry, reference_entries
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.problem import Problem


def check_sarif(checked: CheckAnswer) -> Json:
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


def _with_suppressions(checked: CheckAnswer) -> Iterator[tuple[Problem, Json]]:
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
