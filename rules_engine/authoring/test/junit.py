"""Results of `test` as JUnit XML, which CI servers show."""

from itertools import groupby
from xml.etree import ElementTree as ET

from rules_engine.authoring.test.rule_tests import CaseName, CaseNotRun, CaseResult, TestAnswer
from rules_engine.model.problems.problem import Severity
from rules_engine.model.problems.source import Location

_PROBLEMS = "problems"
"""Name of the suite of errors in files."""


def junit_xml(run: TestAnswer) -> str:
    """Return the document: a suite for each test, and one for errors in files, which prevented cases.

    A case that was not run is an error, so that a CI server does not take it for passed. There are no times: results
    do not depend on a clock.
    """
    root = ET.Element("testsuites", name="gpu-rules")
    cases: list[CaseResult | CaseNotRun] = [*run.cases, *run.cases_not_run]
    cases.sort(key=_suite_key)
    for (_, test), suite_cases in groupby(cases, key=_suite_key):
        suite = ET.SubElement(root, "testsuite", name=_xml_text(test))
        for case in suite_cases:
            element = _add_case(suite, case.test, case.title, case.source)
            if isinstance(case, CaseNotRun):
                ET.SubElement(element, "error", message=f"not run: {case.reason}", type="not-run")
            elif not case.passed:
                message = _xml_text(str(case.mismatches[0]))
                failure = ET.SubElement(element, "failure", message=message, type="mismatch")
                failure.text = _xml_text(f"{case.explanation}\n{case.source}")
    errors = [problem for problem in run.problems if problem.severity is Severity.ERROR]
    if errors:
        suite = ET.SubElement(root, "testsuite", name=_PROBLEMS)
        for problem in errors:
            element = _add_case(suite, _PROBLEMS, f"{problem.location}: {problem.code}", problem.location)
            ET.SubElement(element, "error", message=_xml_text(problem.message), type=problem.code)
    for suite in (*root, root):
        suite.set("tests", str(len(suite.findall(".//testcase"))))
        suite.set("failures", str(len(suite.findall(".//failure"))))
        suite.set("errors", str(len(suite.findall(".//error"))))
    ET.indent(root)
    # ASCII is valid whatever encoding the caller writes: other characters become references.
    document: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=False)
    return document.decode("ascii")


def _suite_key(name: CaseName) -> tuple[str, str]:
    return name.source.file, name.test


def _add_case(suite: ET.Element, class_name: str, name: str, place: Location) -> ET.Element:
    members = {"classname": class_name, "name": name, "file": place.file, "line": str(place.line)}
    return ET.SubElement(suite, "testcase", {key: _xml_text(text) for key, text in members.items()})


def _xml_text(text: str) -> str:
    """Escape the characters that XML forbids, even as references (XML 1.0, section 2.2)."""
    return "".join(c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text)
