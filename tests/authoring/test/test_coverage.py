"""`gpu-rules test --coverage`: what no case covers, and the formats of results."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rules_engine.authoring.test.coverage import Coverage, CoverageItem, CoverageRecorder
from rules_engine.authoring.test.file_watch import read_signatures, wait_for_change
from rules_engine.authoring.test.junit import junit_xml
from rules_engine.authoring.test.rule_tests import run_tests
from rules_engine.model.problems.source import Location
from rules_engine.rules.evaluation import compile_rules
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.sources.load import load_files, rule_kind
from tests.rules import toy
from tests.support.authoring import cli, completed, injection, ladder, validation, write
from tests.support.evaluation import GPU, asks, cluster, request
from tests.support.programs import command, environment

MIG = "nvidia.com/mig-2g.20gb"
SMALL = "nvidia.com/mig-1g.10gb"
CONDITION = "[{name: named, expression: has(object.metadata.name)}]"
LADDER = ladder("mig", MIG, f"{{resource: {SMALL}, when: 'object.metadata.name == \"small\"'}}", GPU)
INJECTION = injection(
    "v100", gpuType="V100", namespaces="{ml: {coefficients: {cpu: 2}}, none: {}}", matchConditions=CONDITION
)
VALIDATION = validation("no-host", '"!object.spec.?hostNetwork.orValue(false)"')
DENIAL = "Validation/no-host: failed expression: !object.spec.?hostNetwork.orValue(false)"
RULES = f"{LADDER}---\n{INJECTION}---\n{VALIDATION}"
NODES = "{nodes: [{name: a, allocatable: {nvidia.com/gpu: 4, nvidia.com/mig-1g.10gb: 4}}]}"


def case(*, resource: str = MIG, name: str = "p", namespace: str = "", v100: bool = False, host: bool = False) -> str:
    metadata = [f"name: {name}"] if name else []
    metadata += [f"namespace: {namespace}"] if namespace else []
    metadata += ["annotations: {task.bkbcs.tencent.com/gpu-type: V100}"] if v100 else []
    network = "hostNetwork: true, " if host else ""
    limits = f"resources: {{limits: {{{resource}: 1}}}}"
    pod = f"{{metadata: {{{', '.join(metadata)}}}, spec: {{{network}containers: [{{name: c, {limits}}}]}}}}"
    return f"    - {{name: case, pod: {pod}, expect: {{allowed: {str(not host).lower()}}}}}\n"


def rule_test(*cases: str) -> str:
    numbered = "".join(one.replace("name: case", f"name: case {number}", 1) for number, one in enumerate(cases))
    head = "apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {name: t}\n"
    return f"{head}spec:\n  cluster: {NODES}\n  cases:\n{numbered}"


def uncovered(folder: Path) -> list[str]:
    coverage = run_tests([folder], coverage=True).answer.coverage
    assert coverage is not None
    return [f"{item.location.line} {item.name} never {item.event}" for item in coverage.uncovered]


def test_everything_is_uncovered_without_a_case_that_reaches_it(tmp_path: Path) -> None:
    write(tmp_path, {"rules.yaml": RULES, "t.yaml": rule_test(case(resource="example.com/x", name=""))})
    assert uncovered(tmp_path) == [
        "3 FallbackLadder/mig never applied",
        f"6 {MIG} never requested",
        f"6 {MIG} never given",
        f"7 {SMALL} never requested",
        f"7 {SMALL} never given",
        '7 object.metadata.name == "small" never true',
        '7 object.metadata.name == "small" never false',
        f"8 {GPU} never requested",
        f"8 {GPU} never given",
        "12 ResourceInjection/v100 never applied",
        "14 default never used",
        "16 namespaces.ml never used",
        "16 namespaces.none never used",
        "17 has(object.metadata.name) never true",
        "25 !object.spec.?hostNetwork.orValue(false) never false",
    ]


def test_each_case_covers_what_it_reaches(tmp_path: Path) -> None:
    write(tmp_path, {"rules.yaml": RULES, "t.yaml": rule_test(case())})
    before = uncovered(tmp_path)
    gained = []
    for second_case in (
        case(name="small"),
        case(resource=SMALL),
        case(resource=GPU, v100=True),
        case(resource=GPU, v100=True, namespace="ml"),
        case(resource=GPU, v100=True, namespace="none"),
        case(host=True),
    ):
        write(tmp_path, {"t.yaml": rule_test(case(), second_case)})
        after = uncovered(tmp_path)
        assert set(after) <= set(before)
        gained.append([text.partition(" ")[2] for text in before if text not in after])
    assert gained == [
        [f"{SMALL} never given", 'object.metadata.name == "small" never true'],
        [f"{SMALL} never requested", f"{SMALL} never given"],
        [f"{GPU} never requested", "ResourceInjection/v100 never applied", "default never used"],
        [f"{GPU} never requested", "ResourceInjection/v100 never applied", "namespaces.ml never used"],
        [f"{GPU} never requested", "ResourceInjection/v100 never applied", "namespaces.none never used"],
        ["!object.spec.?hostNetwork.orValue(false) never false"],
    ]


def test_a_rung_that_cannot_be_served_is_requested_and_not_given(tmp_path: Path) -> None:
    write(tmp_path, {"rules.yaml": ladder("mig", "a.b/c"), "t.yaml": rule_test(case(resource="a.b/c"))})
    assert uncovered(tmp_path) == ["6 a.b/c never given"]


def test_a_pod_that_the_ladder_leaves_undecided_requests_no_rung(tmp_path: Path) -> None:
    write(
        tmp_path, {"rules.yaml": ladder("mig", GPU), "t.yaml": rule_test(case(resource=GPU).replace(": 1}", ": 500m}"))}
    )
    assert uncovered(tmp_path) == [f"6 {GPU} never requested", f"6 {GPU} never given"]


def test_an_error_is_neither_outcome_of_a_condition(tmp_path: Path) -> None:
    rule = validation("v", "object.metadata.labels.a == 'b'", failurePolicy="Ignore")
    write(tmp_path, {"rules.yaml": rule, "t.yaml": rule_test(case())})
    assert uncovered(tmp_path) == [
        "3 Validation/v never applied",
        "6 object.metadata.labels.a == 'b' never true",
        "6 object.metadata.labels.a == 'b' never false",
    ]


def test_a_value_that_is_not_bool_is_neither_outcome(tmp_path: Path) -> None:
    rule = validation("v", "dyn(object.metadata.name)", failurePolicy="Ignore")
    write(tmp_path, {"rules.yaml": rule, "t.yaml": rule_test(case())})
    assert [line.split(" never ")[1] for line in uncovered(tmp_path)] == ["applied", "true", "false"]


def test_a_default_value_is_not_a_part(tmp_path: Path) -> None:
    rule = injection("v", gpuResource=MIG, coefficients="{}", namespaces="{ml: {coefficients: {cpu: 2}}}")
    write(tmp_path, {"rules.yaml": rule, "t.yaml": rule_test(case(namespace="ml"))})
    assert uncovered(tmp_path) == []
    assert cli("test", tmp_path, "--coverage").stdout == "pass  t: case 0\n1 passed\ncoverage 100 %: 2 of 2\n"


def test_rules_in_audit_mode_are_counted_and_rules_that_are_off_are_not(tmp_path: Path) -> None:
    off, audit = ladder("idle", MIG, mode="Off"), validation("audit", "1 < object.spec.containers.size()", mode="Audit")
    write(tmp_path, {"rules.yaml": f"{off}---\n{audit}", "t.yaml": rule_test(case())})
    assert uncovered(tmp_path) == ["14 1 < object.spec.containers.size() never true"]


def test_rules_that_no_test_refers_to_are_uncovered(tmp_path: Path) -> None:
    tested = rule_test(case()).replace("spec:\n", "spec:\n  rules: [tested.yaml]\n", 1)
    other = validation("b", "1 < object.spec.containers.size()")
    write(tmp_path, {"tested.yaml": ladder("a", "a.b/c"), "other.yaml": other, "t.yaml": tested})
    assert [line for line in uncovered(tmp_path) if "Validation" in line] == ["3 Validation/b never applied"]
    write(tmp_path, {"other.yaml": validation("b", "objct.spec")})
    run = run_tests([tmp_path], coverage=True)
    assert [problem.code for problem in run.answer.problems] == ["cel-undeclared"]


def test_a_rule_that_tests_refer_to_by_two_paths_is_counted_once(tmp_path: Path) -> None:
    rules = ladder("a", MIG, GPU)
    first = rule_test(case()).replace("spec:\n", "spec:\n  rules: [rules.yaml]\n", 1)
    second = rule_test(case(resource=GPU)).replace("spec:\n", "spec:\n  rules: [../x/rules.yaml]\n", 1)
    folder = write(
        tmp_path / "x", {"rules.yaml": rules, "a.yaml": first, "b.yaml": second.replace("{name: t}", "{name: u}")}
    )
    assert uncovered(folder) == [f"6 {MIG} never given"]


def test_a_kind_without_parts_has_its_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(f"apiVersion: gpurules.io/v1\nkind: Mark\nmetadata: {{name: m}}\nspec: {{resource: {GPU}}}\n")
    kinds = (*KINDS, toy.KIND)
    recorder = CoverageRecorder(kinds)
    made, problems = compile_rules(load_files([file], [*map(rule_kind, kinds)]).rules, kinds, recorder.compiler_of)
    assert problems == ()
    recorder.add(made)
    recorder.observe(made.mutate(request(asks({GPU: 1})), cluster({GPU: 4})).trace, "default")
    assert (recorder.coverage.covered, recorder.coverage.total) == (1, 1)


def test_a_share_is_rounded_down_and_compared_exactly() -> None:
    item = CoverageItem(rule="K/a", location=Location("a.yaml", 1, 1), name="x", event="used")
    most = Coverage.of([*[(item, 1)] * 2999, (item, 0)])
    assert (most.percent, most.reaches(100), most.reaches(99.96)) == (99.9, False, True)
    assert (Coverage.of([]).percent, Coverage.of([]).reaches(100)) == (100.0, True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a denial, a passing case, and rungs that are not covered."""
    failing = case(host=True).replace("allowed: false", "allowed: true")
    return write(tmp_path, {"rules.yaml": RULES, "t.yaml": rule_test(case(), failing)})


def test_the_table_has_places_and_the_total(folder: Path) -> None:
    result = cli("test", folder / "t.yaml", "-k", "case 0", "--coverage")
    assert result.exit_code == 0
    table = result.stdout.splitlines()[2:]
    assert table[0].split() == ["PLACE", "NOT", "COVERED", "EVENT"]
    assert table[1] == f"{folder}/rules.yaml:6:18   nvidia.com/mig-2g.20gb                    never given"
    assert table[-2] == f"{folder}/rules.yaml:25:20  !object.spec.?hostNetwork.orValue(false)  never false"
    assert table[-1] == "coverage 38.8 %: 7 of 18"


def test_a_minimum_decides_about_the_exit_code(folder: Path) -> None:
    for minimum, code, last in (
        ("38.88", 0, "coverage 38.8 %: 7 of 18"),
        ("38.9", 1, "coverage 38.8 %: 7 of 18, less than 38.9 %"),
    ):
        result = cli("test", folder, "-k", "case 0", "--coverage-min", minimum)
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (code, last)
    assert cli("test", folder, "--coverage-min", "101").exit_code == 2


def test_an_error_is_reported_without_coverage(folder: Path) -> None:
    (folder / "wrong.test.yaml").write_text(
        "apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {name: w}\nspec: {}\n"
    )
    result = cli("test", folder, "--coverage-min", "1")
    assert result.exit_code == 2
    assert "missing-field" in result.stdout
    assert "coverage" not in result.stdout


def test_too_little_coverage_is_reported_beside_another_format(folder: Path) -> None:
    result = cli("test", folder, "-k", "case 0", "--coverage-min", "100", "--output", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["succeeded"]
    assert result.stderr == "coverage 38.8 %: 7 of 18, less than 100 %\n"


def test_results_are_whole_in_an_encoding_without_their_characters(folder: Path) -> None:
    write(folder, {"t.yaml": rule_test(case()).replace("name: case 0", "name: Größe → ✓")})
    names = []
    for form in ("json", "junit"):
        line, variables = command("test", folder, "--output", form), environment(PYTHONIOENCODING="ascii")
        text = subprocess.run(line, env=variables, capture_output=True, check=True).stdout.decode("ascii")
        names.append(json.loads(text)["cases"][0]["case"] if form == "json" else ET.fromstring(text)[0][0].get("name"))
    assert names == ["Größe → ✓"] * 2


def test_quiet_prints_failures_only(folder: Path) -> None:
    assert cli("test", folder, "-q", "-k", "case 0").stdout == ""
    assert cli("test", folder, "-q", "-k", "case 0", "--coverage-min", "38").stdout == ""
    assert cli("test", folder, "-q", "-k", "case 0", "--coverage-min", "100").stdout.startswith("PLACE ")
    output = cli("test", folder, "-q").stdout
    assert output.startswith("FAIL  t: case 1")
    assert output.endswith("\n1 passed, 1 failed\n")


def test_several_formats_are_written_in_one_run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("out")
    files = {"json": "r.json", "junit": "r.xml"}
    outputs = [text for form, name in files.items() for text in ("--output", f"{form}={out / name}")]
    result = cli("test", folder, *outputs)
    assert result.exit_code == 1
    assert result.stdout.endswith("1 passed, 1 failed\n")
    assert json.loads((out / "r.json").read_text())["succeeded"] is False
    assert ET.parse(out / "r.xml").getroot().get("failures") == "1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "json", "--output", "junit"], "only one format can go to standard output: write json=FILE"),
        (["--output", "json=a", "--output", "junit=a"], "only one format can go to a: write json=FILE"),
        (["--output", "json=a", "--output", "junit=./b/../a"], "only one format can go to a: write json=FILE"),
        (["--output", "xml"], "'xml' is not one of text, json, junit, github"),
        (["--output", "junit="], "'junit=' names no file"),
    ],
)
def test_an_impossible_output_is_a_usage_error(folder: Path, arguments: list[str], message: str) -> None:
    result = cli("test", folder, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_formats_are_completed() -> None:
    assert completed("test", "--output", "j") == ["json", "junit"]


EXPLANATION = [
    f"allowed: expected true, actual false ({DENIAL})",
    "why:",
    f"FallbackLadder/mig: change ({MIG} → nvidia.com/gpu)",
    "ResourceInjection/v100: skip (the pod is not annotated task.bkbcs.tencent.com/gpu-type: V100)",
    "Validation/no-host: deny (failed expression: !object.spec.?hostNetwork.orValue(false))",
]


def test_junit_has_a_suite_for_each_test_and_one_for_errors(folder: Path) -> None:
    other = (
        rule_test(case())
        .replace("{name: t}", "{name: u}")
        .replace("allowed: true", "decidedBy: [{rule: Validation/x}]")
    )
    write(folder, {"u.yaml": other})
    run = run_tests([folder])
    root = ET.fromstring(junit_xml(run.answer))
    assert (root.tag, root.attrib) == (
        "testsuites",
        {"name": "gpu-rules", "tests": "4", "failures": "1", "errors": "2"},
    )
    assert [(suite.tag, suite.attrib) for suite in root] == [
        ("testsuite", {"name": "t", "tests": "2", "failures": "1", "errors": "0"}),
        ("testsuite", {"name": "u", "tests": "1", "failures": "0", "errors": "1"}),
        ("testsuite", {"name": "problems", "tests": "1", "failures": "0", "errors": "1"}),
    ]
    passed, failed = root[0]
    assert (passed.tag, passed.attrib, len(passed)) == (
        "testcase",
        {"classname": "t", "name": "case 0", "file": f"{folder}/t.yaml", "line": "7"},
        0,
    )
    (failure,) = failed
    message = f"allowed: expected true, actual false ({DENIAL})"
    assert (failure.tag, failure.attrib) == ("failure", {"message": message, "type": "mismatch"})
    assert (failure.text or "").splitlines() == [*EXPLANATION, f"{folder}/t.yaml:8:14"]
    assert [error.get("type") for error in root.iter("error")] == ["not-run", "unknown-rule"]


def test_the_reasons_of_a_failure_name_a_refusal_and_rules_that_were_not_evaluated(tmp_path: Path) -> None:
    malformed = case(name="p").replace(f"{MIG}: 1", f"{MIG}: two")
    off = ladder("mig", MIG, "nvidia.com/gpu", mode="Off")
    refused, unread = run_tests(
        [write(tmp_path, {"a.yaml": off, "t.yaml": rule_test(malformed, case(host=True))})]
    ).answer.cases
    _, why, reason = refused.explanation.splitlines()
    assert (why, reason.startswith("refused: the pod is malformed: /spec/containers/0/")) == ("why:", True)
    assert unread.explanation.splitlines() == ["allowed: expected false, actual true", "why:", "no rule was evaluated"]


def test_junit_escapes_characters_that_xml_forbids(folder: Path) -> None:
    write(folder, {"t.yaml": rule_test(case()).replace("name: case 0", r'name: "a\e[31m & <b>"')})
    root = ET.fromstring(junit_xml(run_tests([folder]).answer))
    assert root[0][0].get("name") == r"a\x1b[31m & <b>"


def test_github_shows_failures_and_uncovered_items_at_their_lines(folder: Path) -> None:
    lines = cli("test", folder, "--output", "github", "--coverage").stdout.splitlines()
    assert lines[0] == (
        f"::error file={folder}/t.yaml,line=8,col=14,endColumn=20,title=t%3A case 1::{'%0A'.join(EXPLANATION)}"
    )
    assert len([line for line in lines if line.startswith("::error ")]) == 1
    assert lines[1] == (
        f"::warning file={folder}/rules.yaml,line=6,col=18,endColumn=40,title=not covered::{MIG} is never given"
    )


def test_a_change_of_any_file_ends_the_wait(tmp_path: Path) -> None:
    other = write(tmp_path / "b", {"pod.json": "{}"}) / "pod.json"
    folder = write(tmp_path / "a", {"a.yaml": "1"})

    def rewrite() -> None:
        (folder / "a.yaml").write_text("12")

    for change in (rewrite, (folder / "b.yaml").touch, (folder / "b.yaml").unlink, other.unlink, other.touch):
        signatures = read_signatures([folder], [str(other)])
        assert read_signatures([folder], signatures) == signatures
        changes = iter([change])
        wait_for_change(signatures, [folder], lambda _seconds, left=changes: next(left)())  # type: ignore[misc]


def test_files_that_the_command_writes_are_not_watched(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.yaml": "1", "results.json": "{}"})
    assert set(read_signatures([folder], written=[folder / "results.json"])) == {f"{folder}/a.yaml"}


@contextmanager
def watch(folder: Path) -> Iterator[Iterator[str]]:
    """Run `test --watch`, yield its lines, and interrupt it."""
    line, pipe = command("test", folder, "--watch"), subprocess.PIPE
    with subprocess.Popen(line, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout.readline, "")
        finally:
            process.send_signal(signal.SIGINT)
        assert (process.wait(), process.stdout.read()) == (130, "")


def test_watch_runs_again_until_it_is_interrupted(folder: Path) -> None:
    with watch(folder) as runs:
        assert list(runs_until(runs, "watching"))[-2:] == ["1 passed, 1 failed", "watching 2 files"]
        write(folder, {"t.yaml": rule_test(case())})
        assert list(runs_until(runs, "watching"))[-2:] == ["1 passed", "watching 2 files"]


def test_watch_waits_for_files_that_tests_refer_to(tmp_path: Path) -> None:
    spec = "  rules: [../rules]\n  cases: [{name: case, podFile: ../pod.yaml, expect: {allowed: true}}]\n"
    head = "apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {name: t}\nspec:\n"
    write(tmp_path, {"tests/t.yaml": head + spec, "rules/a.yaml": VALIDATION})
    with watch(tmp_path / "tests") as runs:
        assert list(runs_until(runs, "watching"))[-1:] == ["watching 3 files"]
        write(tmp_path, {"pod.yaml": json.dumps(asks({GPU: 1}))})
        assert list(runs_until(runs, "watching"))[-2:] == ["1 passed", "watching 3 files"]
        write(tmp_path, {"rules/b.yaml": validation("none", '"false"')})
        assert list(runs_until(runs, "watching"))[-2:] == ["0 passed, 1 failed", "watching 4 files"]


def runs_until(lines: Iterator[str], start: str) -> Iterator[str]:
    for line in lines:
        yield line.rstrip("\n")
        if line.startswith(start):
            return


def test_a_control_character_in_a_file_name_is_escaped_on_a_terminal(tmp_path: Path) -> None:
    files = {
        "rules\x1b[31m.yaml": validation("v", "object.metadata.name != ''"),
        "t\x1b[31m.yaml": rule_test(case().replace("true", "false")),
    }
    out = cli("test", write(tmp_path, files)).stdout
    assert "\x1b" not in out
    assert out.count("\\x1b[31m.yaml:") == 2


@pytest.mark.parametrize(("form", "name"), [("json", "/\\udcff.yaml"), ("github", "/?.yaml")])
def test_a_file_name_that_is_not_utf_8_is_written_to_files(tmp_path: Path, form: str, name: str) -> None:
    write(tmp_path, {os.fsdecode(b"\xff.yaml"): validation("v", "object.metadata.name != ''")})
    found = tmp_path / "found"
    result = cli("test", tmp_path, "--coverage", "--output", f"{form}={found}")
    assert result.exit_code == 2
    assert name in found.read_text(encoding="utf-8")
