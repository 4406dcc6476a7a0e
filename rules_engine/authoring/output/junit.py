"""Results of `test` as JUnit XML, which CI servers show."""

from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree as ET

from rules_engine.authoring.rule_tests import CaseName, CaseResult, TestRun
from rules_engine.model.problems import Problem, Severity

_PROBLEMS = "problems"
"""Name of the suite of errors in files."""


def junit(run: TestRun) -> str:
    """Return the document: a suite for each test, and one for the errors that prevented cases.

    A case that was not run is an error, so that a report without failures means that all cases passed. There are no
    times: results do not depend on a clock.
    """
    root = ET.Element("testsuites", name="gpu-rules")
    cases: list[tuple[CaseName, CaseResult | None]] = [
        *((result.name, result) for result in run.results),
        *((name, None) for name in run.not_run),
    ]
    for (_, test), found in groupby(sorted(cases, key=_suite), key=_suite):
        suite = ET.SubElement(root, "testsuite", name=_text(test))
        for name, result in found:
            _case(suite, name, result)
    errors = [problem for problem in run.problems if problem.severity is Severity.ERROR]
    if errors:
        _problems(ET.SubElement(root, "testsuite", name=_PROBLEMS), errors)
    for suite in (*root, root):
        suite.set("tests", str(len(suite.findall(".//testcase"))))
        suite.set("failures", str(len(suite.findall(".//failure"))))
        suite.set("errors", str(len(suite.findall(".//error"))))
    ET.indent(root)
    # ASCII is right in any encoding: other characters become references.
    document: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=False)
    return document.decode("ascii")


def _suite(item: tuple[CaseName, CaseResult | None]) -> tuple[str, str]:
    name, _ = item
    return name.case.location.file, name.test


def _case(suite: ET.Element, name: CaseName, result: CaseResult | None) -> None:
    place = name.case.location
    title = f"{name.case.name} [{name.cluster}]" if name.cluster else name.case.name
    case = ET.SubElement(
        suite, "testcase", classname=_text(name.test), name=_text(title), file=_text(place.file), line=str(place.line)
    )
    if result is None:
        ET.SubElement(case, "error", message="not run: its rules or its expectation have errors", type="not-run")
    elif not result.passed:
        lines = list(map(str, result.mismatches))
        failure = ET.SubElement(case, "failure", message=_text(lines[0]), type="mismatch")
        failure.text = _text("\n".join([*lines, str(place)]))


def _problems(suite: ET.Element, errors: Sequence[Problem]) -> None:
    for problem in errors:
        place = problem.location
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_PROBLEMS,
            name=_text(f"{place}: {problem.code}"),
            file=_text(place.file),
            line=str(place.line),
        )
        ET.SubElement(case, "error", message=_text(problem.message), type=problem.code)


def _text(text: str) -> str:
    """Escape the characters that no XML document may have (XML 1.0, section 2.2)."""
    return "".join(c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text)
