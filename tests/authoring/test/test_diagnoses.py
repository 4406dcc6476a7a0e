"""Diagnoses of RuleTests: run, reported in each format, and counted by coverage."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.test.mismatches import MAX_DIFFERENCES
from rules_engine.authoring.test.rule_tests import run_tests
from tests.support.authoring import cli, ladder, write
from tests.support.diagnostics import document

CORDONED = document(
    """
    when: object.spec.?unschedulable.orValue(false)
    reason: Cordoned
    messageExpression: object.metadata.name + ' is cordoned'
    """,
    "cordoned",
)
LABELLED = document("when: object.metadata.labels.wrong == 'x'\nreason: Labelled", "labelled")
CLUSTER = "{nodes: [{name: worker}, {name: cordoned, unschedulable: true}]}"
FOUND = "{reason: Cordoned, object: Node/cordoned}"


def rule_test(*diagnoses: str, cluster: str = CLUSTER, name: str = "nodes", more: str = "") -> str:
    lines = "".join(f"    - {diagnosis}\n" for diagnosis in diagnoses)
    head = f"apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {{name: {name}}}\nspec:\n  cluster: {cluster}\n"
    return f"{head}{more}  diagnoses:\n{lines}"


def folder(tmp_path: Path, *diagnoses: str, diagnostics: str = CORDONED, cluster: str = CLUSTER) -> Path:
    files = {"rules/d.yaml": diagnostics, "rules/d.test.yaml": rule_test(*diagnoses, cluster=cluster)}
    return write(tmp_path, files) / "rules"


@pytest.mark.parametrize(
    "diagnosis",
    [
        f"{{name: a, expect: [{FOUND}]}}",
        f"{{name: a, reasons: [Cordoned], expect: [{FOUND}]}}",
        "{name: a, expect: [{reason: Cordoned, object: Node/cordoned, message: is cordoned}]}",
    ],
)
def test_a_diagnosis_with_the_expected_findings_passes(diagnosis: str, tmp_path: Path) -> None:
    result = cli("test", folder(tmp_path, diagnosis))
    assert (result.exit_code, result.stdout) == (0, "pass  nodes: a\n1 passed\n")


@pytest.mark.parametrize(
    ("expect", "mismatches"),
    [
        ("[]", [("Cordoned of Node/cordoned", "no finding", "'cordoned is cordoned'")]),
        (f"[{FOUND}, {FOUND}]", [("Cordoned of Node/cordoned", "a finding", "none")]),
        (f"[{FOUND}, {{reason: Cordoned, object: Node/worker}}]", [("Cordoned of Node/worker", "a finding", "none")]),
        (
            "[{reason: Cordoned, object: Node/cordoned, message: drained}]",
            [("Cordoned of Node/cordoned, message", "a text with 'drained'", "'cordoned is cordoned'")],
        ),
    ],
)
def test_another_finding_is_a_mismatch(expect: str, mismatches: list[tuple[str, ...]], tmp_path: Path) -> None:
    (result,) = run_tests([folder(tmp_path, f"{{name: a, expect: {expect}}}")]).answer.cases
    assert [(mismatch.what, mismatch.expected, mismatch.actual) for mismatch in result.mismatches] == mismatches


def test_findings_match_expectations_in_any_order(tmp_path: Path) -> None:
    again = document("when: object.spec.?unschedulable.orValue(false)\nreason: Cordoned", "again")
    texts = f"{{name: a, expect: [{FOUND}, {{reason: Cordoned, object: Node/cordoned, message: %s}}]}}"
    both = f"{again}---\n{CORDONED}"
    (result,) = run_tests([folder(tmp_path, texts % "is cordoned", diagnostics=both)]).answer.cases
    assert result.passed
    (other,) = run_tests([folder(tmp_path, texts % "wrong", diagnostics=both)]).answer.cases
    assert [mismatch.what for mismatch in other.mismatches] == ["Cordoned of Node/cordoned, message"]


def test_a_diagnostic_that_fails_is_a_mismatch_unless_it_is_not_compared(tmp_path: Path) -> None:
    every = "{name: every, expect: [" + FOUND + "]}"
    one = "{name: one, reasons: [Cordoned], expect: [" + FOUND + "]}"
    run = run_tests([folder(tmp_path, every, one, diagnostics=f"{CORDONED}---\n{LABELLED}")])
    failed, passed = run.answer.cases
    assert passed.passed
    (mismatch,) = failed.mismatches
    assert (mismatch.what, mismatch.expected) == ("Diagnostic/labelled", "a result")
    assert mismatch.actual.startswith("not evaluated for 2 objects, the first of them Node/worker: ")
    assert mismatch.actual.endswith("no such key (.? and [?…] read what may be absent)")


def test_a_cluster_as_a_whole_can_be_diagnosed(tmp_path: Path) -> None:
    small = document("forEach: Cluster\nwhen: cluster.nodes.size() < 3\nreason: Small", "small")
    broken = document("forEach: Cluster\nwhen: cluster.nodes[9].metadata.name == 'x'\nreason: Broken", "broken")
    diagnosis = "{name: a, expect: [{reason: Small, object: Cluster}]}"
    result = cli("test", folder(tmp_path, diagnosis, diagnostics=f"{small}---\n{broken}"))
    assert "not evaluated for 1 object, the first of them Cluster: " in result.stdout


def test_many_mismatches_are_counted(tmp_path: Path) -> None:
    every = document("reason: Every", "every")
    path = folder(tmp_path, "{name: a, expect: []}", diagnostics=every, cluster="{nodes: [{name: node, count: 30}]}")
    (result,) = run_tests([path]).answer.cases
    assert len(result.mismatches) == MAX_DIFFERENCES + 1
    assert result.mismatches[-1].actual == "10 more"


def test_a_failed_diagnosis_is_printed_with_its_findings(tmp_path: Path) -> None:
    result = cli("test", path := folder(tmp_path, "{name: a, expect: []}"))
    assert result.exit_code == 1
    assert result.stdout == (
        f"FAIL  nodes: a  {path}/d.test.yaml:7:14\n"
        "      Cordoned of Node/cordoned\n"
        "        - expected no finding\n"
        "        + actual   'cordoned is cordoned'\n"
        "0 passed, 1 failed\n"
    )


def test_each_format_has_the_findings(tmp_path: Path) -> None:
    path = folder(tmp_path, "{name: a, expect: []}", f"{{name: b, expect: [{FOUND}]}}")
    failed, passed = json.loads(cli("test", path, "--output", "json").stdout)["cases"]
    node = {"kind": "Node", "name": "cordoned", "namespace": ""}
    finding = {"reason": "Cordoned", "object": node, "message": "cordoned is cordoned"}
    assert (failed["passed"], passed["passed"], passed["findings"]) == (False, True, [finding])
    assert passed["mutation"] is None
    suite = ET.fromstring(cli("test", path, "--output", "junit").stdout)
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    explained = suite.findtext(".//failure") or ""
    assert explained.splitlines()[1:3] == ["found:", "Cordoned of Node/cordoned: cordoned is cordoned"]
    assert "title=nodes%3A a::" in cli("test", path, "--output", "github").stdout


def test_an_explanation_without_findings_says_so(tmp_path: Path) -> None:
    path = folder(tmp_path, "{name: a, expect: [{reason: Cordoned, object: Node/x}]}", cluster="{nodes: []}")
    (result,) = run_tests([path]).answer.cases
    assert result.explanation.endswith("found:\nnothing")


def test_diagnoses_are_run_on_each_cluster(tmp_path: Path) -> None:
    several = rule_test(f"{{name: a, expect: [{FOUND}]}}").replace(
        f"  cluster: {CLUSTER}\n", f"  clusters: {{one: {CLUSTER}, two: {{nodes: []}}}}\n"
    )
    result = cli("test", write(tmp_path, {"d.yaml": CORDONED, "d.test.yaml": several}))
    assert [line.split("  ")[:2] for line in result.stdout.splitlines()[:2]] == [
        ["pass", "nodes: a [one]"],
        ["FAIL", "nodes: a [two]"],
    ]


def test_diagnoses_are_selected_by_name(tmp_path: Path) -> None:
    path = folder(tmp_path, f"{{name: first, expect: [{FOUND}]}}", "{name: second, expect: []}")
    result = cli("test", path, "-k", "FIRST")
    assert (result.exit_code, result.stdout) == (0, "pass  nodes: first\n1 passed, 1 deselected\n")


def test_a_reason_that_no_diagnostic_has_is_an_error(tmp_path: Path) -> None:
    unknown = "{name: a, expect: [{reason: Cordonned, object: Node/a}]}"
    listed = "{name: b, reasons: [Nothing, Cordoned], expect: []}"
    missing = "{name: c, reasons: [Cordoned], expect: [{reason: Cordonned, object: Node/a}]}"
    path = folder(tmp_path, unknown, listed, missing, f"{{name: d, expect: [{FOUND}]}}")
    messages = [
        "no Diagnostic has the reason 'Cordonned' (did you mean 'Cordoned'?)",
        "no Diagnostic has the reason 'Nothing'",
        "'Cordonned' is not one of the diagnosis' reasons, so it is not compared",
        "no Diagnostic has the reason 'Cordonned' (did you mean 'Cordoned'?)",
    ]
    assert [problem.message for problem in check_files([path]).answer.problems] == messages
    run = run_tests([path])
    assert [problem.message for problem in run.answer.problems] == messages
    assert [str(case.reason) for case in run.answer.cases_not_run] == ["the expectation has errors"] * 3
    assert [result.passed for result in run.answer.cases] == [True]


def test_a_diagnosis_without_diagnostics_is_an_error(tmp_path: Path) -> None:
    """It could not fail."""
    tests = folder(
        tmp_path, "{name: nothing, expect: []}", diagnostics=ladder("a", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu")
    )
    text = "there is no Diagnostic among the rules, so nothing can be found"
    assert [problem.message for problem in check_files([tests]).answer.problems] == [text]
    run = run_tests([tests])
    assert ([problem.message for problem in run.answer.problems], run.answer.cases) == ([text], ())


@pytest.mark.parametrize("wrong", [CORDONED.replace("unschedulable", "unschedulabel"), CORDONED + "  mode: Off\n"])
def test_diagnoses_of_diagnostics_with_errors_are_not_run_and_cases_are(wrong: str, tmp_path: Path) -> None:
    pod = "{spec: {containers: [{name: main}]}}"
    more = f"  cases: [{{name: case, pod: {pod}, expect: {{allowed: true}}}}]\n"
    text = rule_test(f"{{name: a, expect: [{FOUND}]}}", more=more)
    path = write(tmp_path, {"d.yaml": wrong, "l.yaml": ladder("l", "nvidia.com/gpu"), "d.test.yaml": text})
    for paths in ([path], [path / "d.test.yaml"]):
        run = run_tests(paths)
        assert [str(case.reason) for case in run.answer.cases_not_run] == ["the Diagnostics have errors"]
        assert [result.title for result in run.answer.cases if result.passed] == ["case"]
        assert len(run.answer.problems) == 1
        assert not run.answer.succeeded


def test_errors_of_rules_do_not_stop_diagnoses(tmp_path: Path) -> None:
    wrong = ladder("l", "nvidia.com/gpu").replace("rungs", "rugns")
    text = rule_test(f"{{name: a, expect: [{FOUND}]}}")
    run = run_tests([write(tmp_path, {"d.yaml": CORDONED, "l.yaml": wrong, "d.test.yaml": text})])
    assert [result.passed for result in run.answer.cases] == [True]


def test_a_test_with_errors_does_not_run_its_diagnoses(tmp_path: Path) -> None:
    text = rule_test(f"{{name: a, expect: [{FOUND}]}}", more="  unknown: 1\n")
    run = run_tests([write(tmp_path, {"d.yaml": CORDONED, "d.test.yaml": text})])
    assert [(case.title, str(case.reason)) for case in run.answer.cases_not_run] == [("a", "the test has errors")]


def test_coverage_counts_both_outcomes_of_a_condition(tmp_path: Path) -> None:
    other = document("when: object.metadata.name == 'worker'\nreason: Other", "other")
    path = folder(tmp_path, f"{{name: a, reasons: [Cordoned], expect: [{FOUND}]}}", diagnostics=CORDONED)
    (tmp_path / "rules" / "sub").mkdir()
    (tmp_path / "rules" / "sub" / "o.yaml").write_text(other)
    coverage = run_tests([path], coverage=True).answer.coverage
    assert coverage is not None
    assert coverage.total == 4
    assert [(item.rule, item.event) for item in coverage.uncovered] == [
        ("Diagnostic/other", "true"),
        ("Diagnostic/other", "false"),
    ]


def test_diagnostics_that_no_test_refers_to_are_uncovered(tmp_path: Path) -> None:
    path = folder(tmp_path, f"{{name: a, expect: [{FOUND}]}}")
    for name, text in (("fine", CORDONED.replace("name: cordoned", "name: fine")), ("wrong", "")):
        untested = text or CORDONED.replace("name: cordoned", "name: wrong").replace("unschedulable", "x")
        run = run_tests([path, write(tmp_path, {f"{name}/d.yaml": untested}) / name], coverage=True)
        assert (run.answer.coverage is None, len(run.answer.problems)) == ((True, 1) if name == "wrong" else (False, 0))


def test_check_reports_diagnostics_that_a_test_refers_to(tmp_path: Path) -> None:
    text = rule_test("{name: a, expect: [{reason: Cordoned, object: Node/a}]}", more="  rules: [../rules]\n")
    wrong = CORDONED.replace("unschedulable", "unschedulabel")
    path = write(tmp_path, {"rules/d.yaml": wrong, "tests/d.test.yaml": text}) / "tests"
    assert [problem.code for problem in check_files([path]).answer.problems] == ["cel-field"]
