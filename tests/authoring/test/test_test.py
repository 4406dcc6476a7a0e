"""`gpu-rules test`: cases at both endpoints, and the output of failed ones."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.authoring import cli, injection, ladder, place, validation, write

MIG = "nvidia.com/mig-2g.20gb"
NO_HOST = validation("no-host", '"!object.spec.?hostNetwork.orValue(false)"', message="no host network")
RULES = "---\n".join(
    [
        ladder("mig", MIG, "{resource: nvidia.com/gpu, assume: true}"),
        injection("v100", gpuType="V100", coefficients="{cpu: 4, memory: 8Gi}", annotations="{net: eni}"),
        NO_HOST,
        validation("named", "has(object.metadata.name)", validationActions="[Warn]"),
    ]
)
POD = "{metadata: {name: p}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}]}}"


def case(expect: str, *, pod: str = POD, name: str = "a case", request: str = "{}") -> str:
    return f"    - name: {name}\n      pod: {pod}\n      request: {request}\n      expect: {expect}\n"


def rule_test(
    *cases: str, name: str = "t", cluster: str = "{nodes: [{name: node, allocatable: {nvidia.com/gpu: 4}}]}"
) -> str:
    head = f"apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {{name: {name}}}\n"
    return f"{head}spec:\n  cluster: {cluster}\n  cases:\n{''.join(cases)}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, {"rules.yaml": RULES})


def run(folder: Path, *cases: str) -> tuple[int, str]:
    write(folder, {"t.test.yaml": rule_test(*cases)})
    result = cli("test", folder)
    assert result.stderr == ""
    return result.exit_code, result.stdout


FULFILLED = [
    "{allowed: true}",
    "{containers: {main: {nvidia.com/gpu: 1, nvidia.com/mig-2g.20gb: 0}}}",
    "{containers: {main: {nvidia.com/gpu: 1000m}}}",
    "{annotations: {gpurules.io/fallback: 2g.20gb->gpu, other: null}}",
    "{warnings: []}",
    "{limits: {main: {nvidia.com/gpu: 1}}, requests: {main: {nvidia.com/gpu: 0}}}",
    "{audited: []}",
    "{decidedBy: [{rule: FallbackLadder/mig}]}",
    "{decidedBy: [{rule: FallbackLadder/mig, rung: nvidia.com/gpu}]}",
]


@pytest.mark.parametrize("expect", FULFILLED)
def test_a_case_with_the_expected_result_passes(folder: Path, expect: str) -> None:
    assert run(folder, case(expect)) == (0, "pass  t: a case\n1 passed\n")


@pytest.mark.parametrize(
    ("expect", "what", "expected", "actual"),
    [
        ("{allowed: false}", "allowed", "false", "true"),
        ("{message: nope}", "message", "a text with 'nope'", "none"),
        ("{warnings: [careful]}", "warnings", "one with 'careful'", "none"),
        ("{containers: {main: {nvidia.com/gpu: 2}}}", "containers.main.nvidia.com/gpu", "2", "1"),
        ("{containers: {main: {nvidia.com/gpu: 0}}}", "containers.main.nvidia.com/gpu", "0", "1"),
        ("{containers: {main: {cpu: 4}}}", "containers.main.cpu", "4", "none (it requests nvidia.com/gpu: 1)"),
        ("{containers: {mian: {cpu: 4}}}", "containers.mian", "a container", "the pod has main"),
        ("{annotations: {net: eni}}", "annotations.net", "'eni'", "none"),
        ("{annotations: {gpurules.io/fallback: null}}", "annotations.gpurules.io/fallback", "none", "'2g.20gb->gpu'"),
        (
            f"{{decidedBy: [{{rule: FallbackLadder/mig, rung: {MIG}}}]}}",
            "decidedBy.FallbackLadder/mig.rung",
            MIG,
            "nvidia.com/gpu",
        ),
        ("{decidedBy: []}", "decidedBy.FallbackLadder/mig", "no decision", f"change ({MIG} → nvidia.com/gpu)"),
        (
            "{decidedBy: [{rule: FallbackLadder/mig}, {rule: ResourceInjection/v100}]}",
            "decidedBy.ResourceInjection/v100",
            "a decision",
            "skip (the pod is not annotated task.bkbcs.tencent.com/gpu-type: V100)",
        ),
        (
            "{requests: {main: {nvidia.com/gpu: 1}}}",
            "requests.main.nvidia.com/gpu",
            "1",
            "none (it requests nvidia.com/gpu: 1)",
        ),
        ("{limits: {main: {nvidia.com/gpu: 2}}}", "limits.main.nvidia.com/gpu", "2", "1"),
        ("{requests: {side: {cpu: 1}}}", "requests.side", "a container", "the pod has main"),
    ],
)
def test_a_failed_case_has_expected_and_actual_values_and_reasons(
    folder: Path, expect: str, what: str, expected: str, actual: str
) -> None:
    code, out = run(folder, case(expect))
    assert code == 1
    assert out.startswith(
        f"FAIL  t: a case  {folder}/t.test.yaml:7:13\n"
        f"      {what}\n"
        f"        - expected {expected}\n"
        f"        + actual   {actual}\n"
        "      why\n"
        "      ├── mutate\n"
        "      │   ├── FallbackLadder/mig  changed: nvidia.com/mig-2g.20gb → nvidia.com/gpu  "
    )
    assert out.endswith("\n0 passed, 1 failed\n")


def test_requests_and_limits_are_compared_separately(folder: Path) -> None:
    pod = "{spec: {containers: [{name: main, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]}}"
    both = "{requests: {main: {cpu: 1}}, limits: {main: {cpu: 2}}, containers: {main: {cpu: 2}}}"
    assert run(folder, case(both, pod=pod))[0] == 0
    code, out = run(folder, case(both.replace("cpu: 1", "cpu: 3").replace("cpu: 2", "cpu: 1"), pod=pod))
    assert (code, differences(out)) == (
        1,
        [("containers.main.cpu", "1", "2"), ("requests.main.cpu", "3", "1"), ("limits.main.cpu", "1", "2")],
    )


def test_every_mismatch_of_a_case_is_reported(folder: Path) -> None:
    _, out = run(folder, case("{allowed: false, containers: {main: {cpu: 1, memory: 1Gi}}}"))
    assert out.count("- expected") == 3


HOST = "{metadata: {name: p}, spec: {hostNetwork: true, containers: [{name: main}]}}"
V100 = (
    "{metadata: {annotations: {task.bkbcs.tencent.com/gpu-type: V100}}, spec: {containers: "
    "[{name: main, resources: {limits: {nvidia.com/mig-2g.20gb: 2}}}]}}"
)


def test_a_case_goes_through_ladders_injections_and_validations(folder: Path) -> None:
    expect = (
        "{allowed: true, containers: {main: {nvidia.com/gpu: 2, cpu: 8, memory: 16384Mi}}, annotations: {net: eni}, "
        "warnings: ['Validation/named'], decidedBy: [{rule: FallbackLadder/mig}, {rule: ResourceInjection/v100}, "
        "{rule: Validation/named}]}"
    )
    assert run(folder, case(expect, pod=V100))[0] == 0


def test_no_warnings_can_be_expected(folder: Path) -> None:
    code, out = run(folder, case("{warnings: []}", pod=V100))
    assert code == 1
    assert (
        "- expected none\n        + actual   'Validation/named: failed expression: has(object.metadata.name)'\n" in out
    )


def test_a_denial_can_be_expected_with_its_message(folder: Path) -> None:
    good = case("{allowed: false, message: no host network, decidedBy: [{rule: Validation/no-host}]}", pod=HOST)
    assert run(folder, good)[0] == 0
    code, out = run(folder, case("{allowed: true}", pod=HOST))
    assert code == 1
    assert "+ actual   false (Validation/no-host: no host network)" in out


def test_a_pod_that_the_mutation_denies_is_not_validated(folder: Path) -> None:
    pod = V100.replace("spec: {", "spec: {hostNetwork: true, ").replace(
        "[{name: main", "[{name: side, resources: {requests: {cpu: 100}}}, {name: main"
    )
    code, out = run(folder, case("{allowed: false, message: too large, decidedBy: []}", pod=pod))
    assert code == 1
    assert [line.split()[0] for line in out.splitlines() if line.startswith("      decidedBy")] == [
        "decidedBy.FallbackLadder/mig",
        "decidedBy.ResourceInjection/v100",
    ]
    assert "validate: skipped, since the pod is already denied" in out


def test_a_malformed_pod_fails_with_its_location(folder: Path) -> None:
    pod = POD.replace(": 1}", ": two}")
    assert run(folder, case("{allowed: false, message: /spec/containers/0/resources/limits}", pod=pod))[0] == 0
    code, out = run(folder, case("{containers: {main: {cpu: 1}}}", pod=pod))
    assert code == 1
    assert "- expected a well-formed pod" in out
    assert "refused: the pod is malformed" in out


def test_the_request_has_namespace_labels_operation_and_dry_run(folder: Path) -> None:
    selected = ladder("mig", MIG, "nvidia.com/gpu", match="{namespaceSelector: {matchLabels: {team: ml}}}")
    update = validation("update", "oldObject.metadata.name == 'old' && request.dryRun", match="{operations: [UPDATE]}")
    write(folder, {"rules.yaml": f"{selected}---\n{update}"})
    moved = "{containers: {main: {nvidia.com/gpu: 1}}}"
    kept = f"{{containers: {{main: {{{MIG}: 1}}}}}}"
    old = case("{allowed: true, decidedBy: []}", name="update", request="{operation: UPDATE, dryRun: true}")
    old = old.replace("      request:", "      oldPod: {metadata: {name: old}, spec: {containers: []}}\n      request:")
    code, out = run(
        folder,
        case(moved, name="labels", request="{namespace: a, namespaceLabels: {team: ml}}"),
        case(kept, name="none", request="{namespace: a}"),
        case(kept, name="another's", request="{namespace: a, namespaceLabels: {team: x}}"),
        old,
        old.replace("name: update", "name: update in earnest").replace("dryRun: true", "dryRun: false"),
    )
    assert [line[:4] for line in out.splitlines() if "t: " in line] == ["pass"] * 4 + ["FAIL"]
    assert code == 1


def test_the_request_may_be_a_resize(folder: Path) -> None:
    grown = "object.spec.containers[0].resources.requests.cpu == oldObject.spec.containers[0].resources.requests.cpu"
    condition = "[{name: resize, expression: \"request.?subResource.orValue('') == 'resize'\"}]"
    write(
        folder,
        {"rules.yaml": validation("not-grown", grown, match="{operations: [UPDATE]}", matchConditions=condition)},
    )
    pod = "{metadata: {name: a}, spec: {containers: [{name: main, resources: {requests: {cpu: %s}}}]}}"

    def update(name: str, expect: str, request: str) -> str:
        made = case(expect, name=name, request=request, pod=pod % 2)
        return made.replace("      request:", f"      oldPod: {pod % 1}\n      request:")

    code, out = run(
        folder,
        update("resize", "{allowed: false}", "{operation: UPDATE, subResource: resize}"),
        update("update", "{allowed: true}", "{operation: UPDATE}"),
    )
    assert (code, out.count("pass ")) == (0, 2), out


def test_labels_of_a_case_are_added_to_labels_of_the_cluster(folder: Path) -> None:
    both = "{namespaceSelector: {matchLabels: {team: ml, tier: gold}}}"
    write(folder, {"rules.yaml": ladder("mig", MIG, "nvidia.com/gpu", match=both)})
    cluster = "{nodes: [{name: node, allocatable: {nvidia.com/gpu: 4}}], namespaces: {a: {team: ml}}}"
    text = rule_test(
        case("{decidedBy: [{rule: FallbackLadder/mig}]}", request="{namespace: a, namespaceLabels: {tier: gold}}"),
        case("{decidedBy: []}", name="alone", request="{namespace: a}"),
        cluster=cluster,
    )
    write(folder, {"t.test.yaml": text})
    assert cli("test", folder).exit_code == 0


def test_a_rule_that_does_not_exist_is_an_error_and_never_a_pass(folder: Path) -> None:
    code, out = run(
        folder, case("{decidedBy: [{rule: FallbackLadder/mgi}]}", name="wrong"), case("{allowed: true}", name="right")
    )
    assert code == 2
    assert "error: rule 'FallbackLadder/mgi' not found (did you mean 'FallbackLadder/mig'?) [unknown-rule]" in out
    assert out.endswith("pass  t: right\n1 passed, 1 not run, 1 error\n")


def test_rules_with_errors_are_reported_and_their_cases_not_run(folder: Path) -> None:
    write(folder, {"rules.yaml": RULES.replace("rungs:", "rugns:")})
    code, out = run(folder, case("{decidedBy: [{rule: FallbackLadder/mig}]}"))
    assert code == 2
    assert out.count("[unknown-field]") == 1
    assert "unknown-rule" not in out
    assert out.endswith("\n0 passed, 1 not run, 1 error\n")


BROKEN = rule_test(case("{alowed: true}"), case("{allowed: true}", name="second"), name="broken")
UNCLOSED = "apiVersion: gpurules.io/v1\nkind: RuleTest\nmetadata: {name: [unclosed}\nspec: {cases: []}\n"
UNREAD_CLUSTER = "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: c}\nspec: {node: []}\n"


def test_errors_of_a_test_do_not_stop_other_tests_of_its_folder(folder: Path) -> None:
    write(folder, {"broken.test.yaml": BROKEN})
    code, out = run(folder, case("{containers: {main: {nvidia.com/gpu: 1}}}"))
    assert code == 2
    assert "(did you mean 'allowed'?) [unknown-field]" in out
    assert out.endswith(
        f"\nnot run  broken: 2 cases, since the test has errors  {folder}/broken.test.yaml:7:13\n"
        "pass  t: a case\n1 passed, 2 not run, 1 error\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        UNCLOSED,
        f"---\n{UNCLOSED}---\n{UNCLOSED}",
        UNREAD_CLUSTER,
        UNREAD_CLUSTER.replace("{node: []}", "{nodes: [}"),
        BROKEN.replace("cluster: {nodes", "cluster: {file: absent.yaml, nodes"),
        rule_test(case("{allowed: true}").replace(f"pod: {POD}", "podFile: pod.txt"), name="broken"),
        rule_test(case("{allowed: true}"), name="broken", cluster="{file: cluster.txt}"),
        rule_test("    - name: nothing is expected\n      pod: {}\n", name="broken"),
    ],
)
def test_errors_of_files_that_tests_need_do_not_stop_other_tests(folder: Path, text: str) -> None:
    write(folder, {"a.yaml": text, "pod.txt": "kind: Pod\nspec: [\n", "cluster.txt": UNREAD_CLUSTER})
    code, out = run(folder, case("{containers: {main: {nvidia.com/gpu: 1}}}"))
    assert (code, "\npass  t: a case\n1 passed, " in out) == (2, True), out


@pytest.mark.parametrize(
    "text",
    [
        RULES.replace("rungs:", "rungs: ["),
        RULES.replace("kind: FallbackLadder", "kind: FallbackLader"),
        UNCLOSED.replace("kind: RuleTest", "kind: FallbackLadder"),
        UNCLOSED.replace("kind: RuleTest\n", ""),
        UNCLOSED.replace("kind: RuleTest", "kind: FallbackLadder\nkind: RuleTest"),
        "",
    ],
)
def test_no_case_is_run_without_a_document_that_may_be_a_rule(folder: Path, text: str) -> None:
    write(folder, {"a.yaml": text})
    code, out = run(folder, case("{allowed: true}"))
    assert (code, out.count("not run  t: a case, since the rules have errors")) == (2, 1), out
    assert "\n0 passed, 1 not run, " in out


def test_only_errors_of_rules_count_in_a_folder_that_a_test_refers_to(folder: Path, tmp_path: Path) -> None:
    named = rule_test(case("{containers: {main: {nvidia.com/gpu: 1}}}")).replace(
        "  cluster:", "  rules: [..]\n  cluster:"
    )
    write(tmp_path, {"broken.test.yaml": BROKEN, "tests/t.test.yaml": named})
    result = cli("test", folder / "tests")
    assert (result.exit_code, result.stdout) == (0, "pass  t: a case\n1 passed\n")


def test_a_case_not_run_is_selected_by_its_name_as_well(folder: Path) -> None:
    write(folder, {"broken.test.yaml": BROKEN})
    out = cli("test", folder, "-k", "second").stdout
    assert "not run  broken: second, since the test has errors" in out
    assert out.endswith("0 passed, 1 not run, 1 deselected, 1 error\n")


def test_each_format_has_the_cases_not_run_with_the_reason(folder: Path) -> None:
    impossible = "{decidedBy: [{rule: FallbackLadder/mgi}]}"
    write(folder, {"broken.test.yaml": BROKEN, "t.test.yaml": rule_test(case(impossible, name="wrong"))})
    broken, wrong = f"{folder}/broken.test.yaml:7:13", f"{folder}/t.test.yaml:7:13"

    assert f"not run  t: wrong, since the expectation has errors  {wrong}\n" in cli("test", folder, "-q").stdout
    not_run = json.loads(cli("test", folder, "--output", "json").stdout)["casesNotRun"]
    assert [(one["case"], one["reason"]) for one in not_run] == [
        ("a case", "the test has errors"),
        ("second", "the test has errors"),
        ("wrong", "the expectation has errors"),
    ]
    assert (not_run[0]["source"], not_run[2]["source"]) == (place(broken), place(wrong))
    lines = cli("test", folder, "--output", "github").stdout.splitlines()
    assert f"::error file={folder}/broken.test.yaml,line=7,col=13,endColumn=19,title=broken" in lines[2]
    assert lines[2].endswith("::2 cases not run, since the test has errors")
    assert lines[3].endswith("title=t%3A wrong::not run, since the expectation has errors")
    errors = ET.fromstring(cli("test", folder, "--output", "junit").stdout).findall(".//error[@type='not-run']")
    assert [error.get("message") for error in errors] == [
        "not run: the test has errors",
        "not run: the test has errors",
        "not run: the expectation has errors",
    ]


def test_misspelt_fields_of_a_case_are_warnings(folder: Path) -> None:
    code, out = run(folder, case("{allowed: true}", pod=POD.replace("resources", "resource")))
    assert code == 0
    assert "warning: Container has no field 'resource' (did you mean 'resources'?): Kubernetes drops it" in out
    assert out.endswith("\npass  t: a case\n1 passed\n")


def test_warnings_of_rules_do_not_fail_a_test(folder: Path) -> None:
    write(folder, {"rules.yaml": RULES.replace("memory: 8Gi", "memory: 8")})
    assert run(folder, case("{allowed: true}")) == (0, "pass  t: a case\n1 passed\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "no RuleTest in "), (["-k", "nothing like it"], "no case with 'nothing like it' in its name in ")],
)
def test_no_case_at_all_is_an_error(folder: Path, arguments: list[str], message: str) -> None:
    if arguments:
        write(folder, {"t.test.yaml": rule_test(case("{allowed: true}"))})
    result = cli("test", folder, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(message)


@pytest.mark.parametrize(
    ("keyword", "cases"), [("FIRST", ["a: first"]), ("a", ["a: first", "a: second"]), ("b Se", ["b: second"])]
)
def test_only_cases_whose_name_contains_the_keyword_are_run(folder: Path, keyword: str, cases: list[str]) -> None:
    two = case("{allowed: true}", name="first"), case("{allowed: true}", name="second")
    write(folder, {"a.yaml": rule_test(*two, name="a"), "b.yaml": rule_test(two[1], name="b")})
    result = cli("test", folder, "-k", keyword)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        *(f"pass  {name}" for name in cases),
        f"{len(cases)} passed, {3 - len(cases)} deselected",
    ]


def test_rules_of_the_folder_are_used_unless_a_test_refers_to_others(folder: Path) -> None:
    text = rule_test(case("{decidedBy: []}")).replace("spec:\n", "spec:\n  rules: [empty.yaml]\n", 1)
    write(folder, {"t.test.yaml": text, "empty.yaml": validation("fine", "1 < 2")})
    assert cli("test", folder).exit_code == 0


def test_a_rule_in_audit_mode_does_not_decide(folder: Path) -> None:
    write(folder, {"rules.yaml": ladder("mig", MIG, "nvidia.com/gpu", mode="Audit")})
    assert run(folder, case(f"{{decidedBy: [], containers: {{main: {{{MIG}: 1}}}}}}"))[0] == 0
    code, out = run(folder, case("{decidedBy: [{rule: FallbackLadder/mig}]}"))
    assert code == 1
    assert "warning: FallbackLadder/mig is in mode Audit: it never decides [idle-rule]" in out
    assert "changed (audit mode): " in out


PATCHED = (
    "{metadata: {name: p, annotations: {gpurules.io/fallback: 2g.20gb->gpu}}, "
    "spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
)


def differences(out: str) -> list[tuple[str, str, str]]:
    """Return the mismatches of an output: what, expected and actual."""
    lines = [line.strip() for line in out.splitlines()]
    return [
        (lines[index - 1], line.removeprefix("- expected "), lines[index + 1].removeprefix("+ actual   "))
        for index, line in enumerate(lines)
        if line.startswith("- expected ")
    ]


def test_the_whole_patched_pod_can_be_expected(folder: Path) -> None:
    assert run(folder, case(f"{{pod: {PATCHED}}}"))[0] == 0
    assert run(folder, case(f"{{pod: {PATCHED.replace('gpu: 1', 'gpu: 1000m')}}}"))[0] == 0
    file = f"kind: Pod\nmetadata: {{name: p, annotations: {{gpurules.io/fallback: 2g.20gb->gpu}}}}\n{SPEC}"
    write(folder, {"pods/patched.yaml": file})
    assert run(folder, case("{podFile: pods/patched.yaml}"))[0] == 0


SPEC = "spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}\n"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("gpu: 1", "gpu: 2", ('pod.spec.containers[main].resources.limits["nvidia.com/gpu"]', '"2"', '"1"')),
        ("gpu: 1", "gpu: x", ('pod.spec.containers[main].resources.limits["nvidia.com/gpu"]', '"x"', '"1"')),
        (
            "[{name: main",
            "[{name: main, image: cuda",
            ("pod.spec.containers[main].image", '"cuda"', "none"),
        ),
        (
            "2g.20gb->gpu",
            "other",
            ('pod.metadata.annotations["gpurules.io/fallback"]', '"other"', '"2g.20gb->gpu"'),
        ),
        ("}}}]}}", "}}}, {name: side}]}}", ("pod.spec.containers[side]", '{"name": "side"}', "none")),
        ("{name: p", "{finalizers: [a.b/c], name: p", ("pod.metadata.finalizers", '["a.b/c"]', "none")),
        ("{name: p", f"{{name: {'q' * 200}", ("pod.metadata.name", f'"{"q" * 99}…', '"p"')),
    ],
)  # fmt: skip
def test_a_mismatch_of_a_whole_pod_has_the_path_that_differs(
    folder: Path, old: str, new: str, found: tuple[str, str, str]
) -> None:
    code, out = run(folder, case(f"{{pod: {PATCHED.replace(old, new)}}}"))
    assert code == 1
    assert differences(out) == [found]


def test_items_without_names_are_compared_by_position(folder: Path) -> None:
    pod = POD.replace("{name: main,", "{name: main, args: [a, b],")
    expected = PATCHED.replace("{name: main,", "{name: main, args: [a, c],")
    _, out = run(folder, case(f"{{pod: {expected}}}", pod=pod))
    assert differences(out) == [("pod.spec.containers[main].args[1]", '"c"', '"b"')]


def test_many_differences_are_counted(folder: Path) -> None:
    labels = ", ".join(f"l{number}: x" for number in range(30))
    expected = PATCHED.replace("{name: p", f"{{name: p, labels: {{{labels}}}")
    pod = POD.replace("{name: p}", "{name: p, labels: {a: b}}")
    _, out = run(folder, case(f"{{pod: {expected}}}", pod=pod))
    mismatches = differences(out)
    assert len(mismatches) == 21
    assert mismatches[-1] == ("pod", "no other difference", "11 more")


AUDITED = "---\n".join(
    [
        ladder("mig", MIG, "{resource: nvidia.com/gpu, assume: true}", mode="Audit"),
        injection("v100", gpuType="V100", gpuResource=MIG, annotations="{net: eni}", mode="Audit"),
        validation("no-host", '"!object.spec.?hostNetwork.orValue(false)"', mode="Audit"),
    ]
)
ALL = (
    "{audited: [{rule: FallbackLadder/mig, action: change, rung: nvidia.com/gpu, message: →, annotations: "
    "{gpurules.io/fallback: 2g.20gb->gpu}}, {rule: ResourceInjection/v100, containers: {main: {cpu: 8}}, "
    "annotations: {net: eni}}, {rule: Validation/no-host, action: deny, message: failed expression}], decidedBy: []}"
)
HOST_V100 = V100.replace("spec: {", "spec: {hostNetwork: true, ")


def test_the_effect_of_rules_in_audit_mode_can_be_expected(folder: Path) -> None:
    write(folder, {"rules.yaml": AUDITED})
    code, out = run(folder, case(ALL, pod=HOST_V100))
    assert (code, out) == (0, "pass  t: a case\n1 passed\n")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("action: deny", "action: warn", [("audited.Validation/no-host.action", "warn")]),
        ("rung: nvidia.com/gpu", f"rung: {MIG}", [("audited.FallbackLadder/mig.rung", MIG)]),
        ("message: →", "message: nothing", [("audited.FallbackLadder/mig.message", "a text with 'nothing'")]),
        ("{cpu: 8}", "{cpu: 9}", [("audited.ResourceInjection/v100.containers.main.cpu", "9")]),
        ("{cpu: 8}", "{memory: 9}", [("audited.ResourceInjection/v100.containers.main.memory", "9")]),
        ("net: eni}}", "net: other}}", [("audited.ResourceInjection/v100.annotations.net", "'other'")]),
        (
            ", {rule: Validation/no-host, action: deny, message: failed expression}",
            "",
            [("audited.Validation/no-host", "no decision")],
        ),
    ],
)  # fmt: skip
def test_another_effect_of_a_rule_in_audit_mode_is_a_mismatch(
    folder: Path, old: str, new: str, found: list[tuple[str, str]]
) -> None:
    write(folder, {"rules.yaml": AUDITED})
    code, out = run(folder, case(ALL.replace(old, new), pod=HOST_V100))
    assert code == 1
    assert [(what, expected) for what, expected, _ in differences(out)] == found


def test_a_rule_that_is_not_evaluated_is_reported_as_such(folder: Path) -> None:
    pod = V100.replace("[{name: main", "[{name: side, resources: {requests: {cpu: 100}}}, {name: main")
    rules = ("FallbackLadder/mig", "ResourceInjection/v100", "Validation/named")
    _, out = run(folder, case(f"{{decidedBy: [{', '.join(f'{{rule: {rule}}}' for rule in rules)}]}}", pod=pod))
    assert differences(out) == [("decidedBy.Validation/named", "a decision", "not evaluated")]


SITES = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: sites}
spec:
  clusters:
    mig: {nodes: [{name: a, allocatable: {nvidia.com/mig-2g.20gb: 7}}]}
    cards: {nodes: [{name: a, cards: 4}]}
  cases:
    - name: stays or falls
      pod: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}]}}
      request: {namespace: a, namespaceLabels: {team: ml}}
      expect: {allowed: true}
      expectOn:
        mig: {containers: {main: {nvidia.com/mig-2g.20gb: 1}}}
        cards: {containers: {main: {nvidia.com/gpu: 1}}}
    - name: falls
      pod: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}]}}
      expectOn:
        cards: {containers: {main: {nvidia.com/gpu: 1}}}
"""


def test_one_case_is_run_on_several_clusters(folder: Path) -> None:
    write(folder, {"t.test.yaml": SITES})
    result = cli("test", folder)
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "pass  sites: stays or falls [mig]",
            "pass  sites: stays or falls [cards]",
            "pass  sites: falls [cards]",
            "3 passed",
        ],
    )
    write(
        folder,
        {
            "t.test.yaml": SITES.replace(
                "cards: {containers: {main: {nvidia.com/gpu: 1}}}", "cards: {allowed: false}", 1
            )
        },
    )
    result = cli("test", folder, "--output", "json")
    cases = json.loads(result.stdout)["cases"]
    assert [(one["case"], one["cluster"], one["passed"]) for one in cases] == [
        ("stays or falls", "mig", True),
        ("stays or falls", "cards", False),
        ("falls", "cards", True),
    ]


def test_a_rule_in_audit_mode_that_does_not_apply_is_a_mismatch(folder: Path) -> None:
    write(folder, {"rules.yaml": AUDITED})
    _, out = run(folder, case("{audited: [{rule: FallbackLadder/mig}, {rule: Validation/no-host}]}", pod=HOST))
    mismatch = ("audited.FallbackLadder/mig", "a decision", "skip (the pod requests none of its resources)")
    assert differences(out) == [mismatch]
    _, out = run(folder, case("{decidedBy: [{rule: Validation/no-host}]}", pod=HOST))
    assert [actual for _, _, actual in differences(out)] == [
        "deny in audit mode (failed expression: !object.spec.?hostNetwork.orValue(false))"
    ]
