"""Problems between rules: each warning at its line, and none that depends on the pod."""

from pathlib import Path

import pytest

from rules_engine.authoring.check.check import check_files
from rules_engine.model.problems.problem import render_problem
from tests.support.authoring import injection as inject
from tests.support.authoring import ladder, validation, write
from tests.support.loading import rule

ABOVE = "nvidia.com/mig-2g.20gb"
BELOW = "nvidia.com/mig-1g.10gb"
GPU = "{resource: nvidia.com/gpu, assume: true}"


def found(tmp_path: Path, *documents: str) -> list[str]:
    """Code, line and column of each problem."""
    write(tmp_path, {"rules.yaml": "---\n".join(documents)})
    problems = check_files([tmp_path]).answer.problems
    return [f"{problem.code} {problem.location.line}:{problem.location.column}" for problem in problems]


def test_a_resource_of_an_earlier_ladder_is_a_warning_at_the_rung(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": ladder("a", ABOVE, BELOW, GPU), "b.yaml": ladder("b", ABOVE, BELOW, GPU)})
    checked = check_files([tmp_path])
    assert [f"{problem.location.line} {problem.code}" for problem in checked.answer.problems] == [
        "6 unreachable-rung",
        "7 unreachable-rung",
    ]
    assert render_problem(checked.answer.problems[0], checked.sources) == (
        f"{tmp_path}/b.yaml:6:18: warning: requests for nvidia.com/mig-2g.20gb are decided by "
        f"FallbackLadder/a ({tmp_path}/a.yaml:3:18) instead, which comes first by name [unreachable-rung]\n"
        "    6 |     - {resource: nvidia.com/mig-2g.20gb}\n"
        "      |                  ^~~~~~~~~~~~~~~~~~~~~~"
    )


def test_a_higher_priority_comes_first_whatever_the_names(tmp_path: Path) -> None:
    documents = ladder("a", ABOVE, BELOW), ladder("b", ABOVE, "x.y/z", priority="5")
    assert found(tmp_path, *documents) == ["unreachable-rung 6:18"]
    write(tmp_path, {"rules.yaml": "---\n".join(documents)})
    assert "which comes first by priority" in check_files([tmp_path]).answer.problems[0].message


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"mode": "Audit"}, {}),
        ({"mode": "'Off'"}, {}),
        ({}, {"mode": "'Off'"}),
        ({"matchConditions": "[{name: c, expression: 'object.spec.enableServiceLinks'}]"}, {}),
        ({"match": "{namespaces: [ml]}"}, {}),
        ({"match": "{namespaces: [ml]}"}, {"match": "{namespaces: ['ml*']}"}),
        ({"match": "{excludeNamespaces: [ml]}"}, {}),
        ({"match": "{excludeNamespaces: [ml]}"}, {"match": "{namespaces: [ml, x]}"}),
        ({"match": "{objectSelector: {matchLabels: {a: b}}}"}, {}),
        (
            {"match": "{namespaceSelector: {matchLabels: {a: b}}}"},
            {"match": "{namespaceSelector: {matchLabels: {a: c}}}"},
        ),
        ({}, {"optOut": "Forbidden"}),
    ],
)
def test_there_is_no_warning_if_the_later_ladder_gets_some_pods(
    tmp_path: Path, earlier: dict[str, str], later: dict[str, str]
) -> None:
    assert found(tmp_path, ladder("a", ABOVE, BELOW, **earlier), ladder("b", ABOVE, BELOW, **later)) == []


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({}, {"match": "{namespaces: [ml]}"}),
        ({"match": "{namespaces: ['ml-*', x]}"}, {"match": "{namespaces: [ml-a, x]}"}),
        ({"match": "{excludeNamespaces: [ml]}"}, {"match": "{namespaces: [x]}"}),
        ({"match": "{excludeNamespaces: [ml]}"}, {"match": "{excludeNamespaces: ['m?']}"}),
        (
            {"match": "{objectSelector: {matchLabels: {a: b}}}"},
            {"match": "{objectSelector: {matchLabels: {a: b, c: d}}}"},
        ),
        ({"optOut": "Forbidden"}, {"optOut": "Forbidden"}),
        ({}, {"mode": "Audit"}),
    ],
)
def test_there_is_a_warning_if_the_later_ladder_gets_no_pod(
    tmp_path: Path, earlier: dict[str, str], later: dict[str, str]
) -> None:
    documents = ladder("a", ABOVE, BELOW, **earlier), ladder("b", ABOVE, "x.y/z", **later)
    assert [text.split()[0] for text in found(tmp_path, *documents)] == ["unreachable-rung"]


def test_a_rung_that_could_not_move_anyway_may_end_several_ladders(tmp_path: Path) -> None:
    assert found(tmp_path, ladder("a", ABOVE, GPU), ladder("b", BELOW, GPU)) == []
    assert found(tmp_path, ladder("a", ABOVE, "x.y/z"), ladder("b", BELOW, "x.y/z")) == []
    up = {"direction": "Up"}
    assert found(tmp_path, ladder("a", ABOVE, BELOW, **up), ladder("b", ABOVE, "x.y/z", **up)) == []
    both = {"direction": "DownThenUp"}
    assert found(tmp_path, ladder("a", ABOVE, "x.y/z"), ladder("b", BELOW, "x.y/z", **both)) == [
        "unreachable-rung 15:18"
    ]


def test_a_ladder_of_one_rung_moves_nothing_unless_it_denies(tmp_path: Path) -> None:
    assert found(tmp_path, ladder("a", ABOVE)) == ["single-rung 6:18"]
    assert found(tmp_path, ladder("a", ABOVE, whenExhausted="Deny")) == []


def test_a_ladder_of_one_rung_may_place_pods(tmp_path: Path) -> None:
    placed = "{resource: nvidia.com/gpu, name: A100, pool: {card: a100}, place: {runtimeClassName: nvidia}}"
    assert found(tmp_path, ladder("a", placed)) == ["single-rung 6:18"]
    assert found(tmp_path, ladder("a", placed, unplaced="First")) == []


def test_a_condition_of_an_unreachable_rung_is_a_warning(tmp_path: Path) -> None:
    rungs = f"{{resource: {ABOVE}, when: 'true'}}", f"{{resource: {BELOW}, when: 'true'}}"
    assert found(tmp_path, ladder("a", *rungs)) == ["unused-when 6:49"]
    assert found(tmp_path, ladder("a", *rungs, direction="Up")) == ["unused-when 7:49"]
    assert found(tmp_path, ladder("a", *rungs, direction="DownThenUp")) == []


def test_a_rule_that_matches_no_namespace_is_a_warning(tmp_path: Path) -> None:
    for match in ("{excludeNamespaces: ['*']}", "{namespaces: [a, b1], excludeNamespaces: ['b?', a]}"):
        assert found(tmp_path, inject("v", match=match)) == ["matches-nothing 3:18"]
    assert found(tmp_path, inject("v", match="{namespaces: ['a*'], excludeNamespaces: [ab]}")) == []


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ({"gpuType": "V100"}, {"gpuType": "V100"}, True),
        ({}, {"gpuType": "V100"}, True),
        ({}, {}, True),
        ({"gpuType": "V100"}, {}, False),
        ({"gpuType": "V100"}, {"gpuType": "T4"}, False),
        ({"gpuType": "V100"}, {"gpuType": "V100", "gpuTypeAnnotation": "x/y"}, False),
        ({"gpuType": "V100"}, {"gpuType": "V100", "gpuResource": "x.y/gpu"}, False),
        ({"gpuType": "V100", "mode": "Audit"}, {"gpuType": "V100"}, False),
        ({"gpuType": "V100", "match": "{namespaces: [a]}"}, {"gpuType": "V100"}, False),
        ({"gpuType": "V100"}, {"gpuType": "V100", "optOut": "Forbidden"}, False),
    ],
)
def test_an_unreachable_injection_is_a_warning(
    tmp_path: Path, earlier: dict[str, str], later: dict[str, str], expected: bool
) -> None:
    first, second = inject("a", **earlier), inject("b", **later)
    line = first.count("\n") + 4
    assert found(tmp_path, first, second) == ([f"unreachable-injection {line}:18"] if expected else [])


def test_an_unreachable_injection_is_reported_once(tmp_path: Path) -> None:
    assert [text.split()[0] for text in found(tmp_path, inject("a"), inject("b"), inject("c"))] == [
        "unreachable-injection",
        "unreachable-injection",
    ]


def test_an_entry_for_an_unmatched_namespace_is_a_warning(tmp_path: Path) -> None:
    entries = "{ml: {}, ops: {}}"
    assert found(tmp_path, inject("v", match="{excludeNamespaces: [o*]}", namespaces=entries)) == ["unused-entry 7:24"]
    assert found(tmp_path, inject("v", match="{namespaces: [ops, x]}", namespaces=entries)) == ["unused-entry 7:16"]
    assert found(tmp_path, inject("v", namespaces=entries)) == []


CORE = "{gpu.x/core: 2}"
COUNTS_CORE = {"gpuResource": "gpu.x/core", "coefficients": "{cpu: 100m}"}


def test_injecting_the_gpu_resource_of_another_injection_is_a_warning(tmp_path: Path) -> None:
    documents = inject("a", gpuType="V100", coefficients=CORE), inject("b", gpuType="V100", **COUNTS_CORE)
    assert found(tmp_path, *documents) == ["injection-conflict 5:18"]
    assert (
        "is denied for different GPU resources when it is admitted again"
        in check_files([tmp_path]).answer.problems[0].message
    )


def test_the_warning_is_at_the_namespace_entry_that_injects(tmp_path: Path) -> None:
    entries = "{ml: {coefficients: {gpu.x/core: 2}}}"
    documents = inject("a", namespaces=entries), inject("b", **COUNTS_CORE)
    assert found(tmp_path, *documents) == ["injection-conflict 6:36"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"coefficients": "{gpu.x/core: 0}"}, COUNTS_CORE),
        ({"coefficients": CORE}, {"gpuResource": "gpu.x/core", "coefficients": "{}"}),
        ({"coefficients": CORE, "mode": "Audit"}, COUNTS_CORE),
        ({"coefficients": CORE}, {**COUNTS_CORE, "mode": "'Off'"}),
        ({"coefficients": CORE, "gpuType": "V100"}, {**COUNTS_CORE, "gpuType": "T4"}),
        ({"coefficients": CORE}, {**COUNTS_CORE, "gpuType": "T4"}),
        ({"coefficients": CORE, "match": "{namespaces: [a]}"}, {**COUNTS_CORE, "match": "{namespaces: [b]}"}),
        ({"coefficients": CORE}, {**COUNTS_CORE, "matchConditions": "[{name: c, expression: 'object.spec.hostPID'}]"}),
        # Where the one gives, the other's entry is empty, and the other way round.
        (
            {"coefficients": "{}", "namespaces": "{ml: {coefficients: {gpu.x/core: 2}}}"},
            {**COUNTS_CORE, "namespaces": "{ml: {}}"},
        ),
        # The default is never used: every namespace that is matched has its entry.
        (
            {"coefficients": CORE, "namespaces": "{ml: {}}", "match": "{namespaces: [ml]}"},
            {**COUNTS_CORE, "match": "{namespaces: [ml]}"},
        ),
    ],
)
def test_injections_that_never_meet_are_no_conflict(tmp_path: Path, one: dict[str, str], other: dict[str, str]) -> None:
    codes = [text.split()[0] for text in found(tmp_path, inject("a", **one), inject("b", **other))]
    assert "injection-conflict" not in codes


TEST = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: t}
spec:
  cases:
    - name: c
      pod: {spec: {containers: [{name: main}]}}
      expect:
        decidedBy:
          - {rule: RULE}
"""


@pytest.mark.parametrize(
    ("decider", "expected", "message"),
    [
        ("FallbackLadder/lader", "unknown-rule 10:20", "did you mean 'FallbackLadder/ladder'?"),
        ("Validation/x", "unknown-rule 10:20", "rule 'Validation/x' not found"),
        (f"FallbackLadder/ladder, rung: {BELOW}x", "unknown-rung 10:20", f"did you mean '{BELOW}'?"),
        ("ResourceInjection/v, rung: a/b", "unknown-rung 10:20", "has no rungs"),
        ("ResourceInjection/audited", "idle-rule 10:20", "is in mode Audit: it never decides"),
    ],
)
def test_an_impossible_expectation_is_reported(tmp_path: Path, decider: str, expected: str, message: str) -> None:
    write(tmp_path, {"rules.yaml": RULES, "t.test.yaml": TEST.replace("RULE", decider)})
    (problem,) = check_files([tmp_path]).answer.problems
    assert f"{problem.code} {problem.location.line}:{problem.location.column}" == expected
    assert message in problem.message


RULES = "---\n".join(
    [ladder("ladder", ABOVE, BELOW), inject("v"), inject("audited", mode="Audit", gpuResource="gpu.x/core")]
)


def test_a_possible_expectation_is_not_reported(tmp_path: Path) -> None:
    decider = f"FallbackLadder/ladder, rung: {BELOW}"
    write(tmp_path, {"rules.yaml": RULES, "t.test.yaml": TEST.replace("RULE", decider)})
    assert check_files([tmp_path]).answer.problems == ()


CLAIMS = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: claims}
spec:
  cases:
    - name: devices by claims
      pod:
        spec:
          resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
          containers: [{name: main, resources: {claims: [{name: gpu}]}}]
      expect: {allowed: true}
"""


def test_resource_claims_that_no_rule_reads_are_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"claims.test.yaml": CLAIMS})
    rules = [ladder("a", ABOVE, f"{{resource: {BELOW}, when: 'object.spec.enableServiceLinks'}}"), inject("b")]
    assert found(tmp_path, *rules) == ["unseen-claims 6:13"]


@pytest.mark.parametrize(
    "rule",
    [
        validation("v", "object.spec.?resourceClaims == optional.none()", match="{resources: ['*']}"),
        ladder("l", ABOVE, f"{{resource: {BELOW}, when: '!has(object.spec.resourceClaims)'}}"),
        ladder("l", ABOVE, BELOW, matchConditions="[{name: c, expression: '!has(object.spec.resourceClaims)'}]"),
    ],
)
def test_resource_claims_that_a_rule_reads_are_not_reported(tmp_path: Path, rule: str) -> None:
    write(tmp_path, {"claims.test.yaml": CLAIMS})
    assert found(tmp_path, rule) == []


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({}, ["every-pod"]),
        ({"matchConditions": "[{name: c, expression: 'object.spec.enableServiceLinks'}]"}, ["every-pod"]),
        ({"match": "{resources: []}"}, ["every-pod"]),
        ({"match": "{resources: [nvidia.com/*]}"}, []),
        ({"match": "{namespaces: [ml]}"}, []),
        ({"match": "{excludeNamespaces: [ml]}"}, []),
        ({"match": "{objectSelector: {matchLabels: {a: b}}}"}, []),
        ({"mode": "Off"}, []),
    ],
)
def test_a_validation_about_every_pod_is_a_warning(tmp_path: Path, fields: dict[str, str], codes: list[str]) -> None:
    assert [
        text.split()[0] for text in found(tmp_path, validation("v", "object.spec.enableServiceLinks", **fields))
    ] == codes


LIMITS = "object.spec.containers.exists(c, c.?resources.limits.hasValue())"
A, B_READS_A = f"{{name: a, expression: '{LIMITS}'}}", "{name: b, expression: variables.a}"


@pytest.mark.parametrize(
    ("condition", "variables", "warned"),
    [
        (LIMITS, "[]", True),
        ("object.spec.containers.exists(c, has(c.resources) && 'x' in c.resources['requests'])", "[]", True),
        ("variables.b", f"[{A}, {B_READS_A}]", True),
        ("size(variables) > 0", f"[{A}]", True),
        ("variables.b", f"[{A}, {{name: b, expression: '1 == 1'}}]", False),
        ("object.spec.containers.exists(c, c.image == 'x')", "[]", False),
    ],
)
def test_a_ladder_condition_that_reads_amounts_is_a_warning(
    tmp_path: Path, condition: str, variables: str, *, warned: bool
) -> None:
    conditions = f'[{{name: c, expression: "{condition}"}}]'
    rule = ladder("l", ABOVE, BELOW, matchConditions=conditions, variables=variables)
    codes = [text.split()[0] for text in found(tmp_path, rule)]
    assert ("condition-reads-amounts" in codes) is warned


@pytest.mark.parametrize(("first", "warned"), [("size('limits')", True), ("size('others')", False)])
def test_each_variable_is_searched_once(tmp_path: Path, first: str, *, warned: bool) -> None:
    """More than 100 million paths lead from the last variable to the first."""
    expressions = [first, *(f"size(variables) == {n}" for n in range(1, 28))]
    variables = ", ".join(f'{{name: v{n}, expression: "{text}"}}' for n, text in enumerate(expressions))
    conditions = "[{name: c, expression: variables.v27 == false}]"
    codes = found(tmp_path, ladder("l", ABOVE, BELOW, matchConditions=conditions, variables=f"[{variables}]"))
    assert [text.split()[0] for text in codes] == ["condition-reads-amounts"] * warned


def test_expectations_on_a_cluster_and_of_audits_are_analysed_too(tmp_path: Path) -> None:
    pod = "{spec: {containers: [{name: main}]}}"
    expect = "{mig: {decidedBy: [{rule: FallbackLadder/x}], audited: [{rule: FallbackLadder/a, rung: b.c/d}]}}"
    cases = f"[{{name: a, pod: {pod}, expectOn: {expect}}}]"
    test = rule("RuleTest", f"{{clusters: {{mig: {{nodes: []}}}}, cases: {cases}}}")
    problems = check_files(
        [write(tmp_path, {"a.yaml": ladder("a", "nvidia.com/gpu", "a.b/c"), "t.yaml": test})]
    ).answer.problems
    assert [(problem.code, problem.message) for problem in problems] == [
        ("unknown-rule", "rule 'FallbackLadder/x' not found (did you mean 'FallbackLadder/a'?)"),
        ("idle-rule", "FallbackLadder/a is in mode Enforce: only rules in mode Audit are audited"),
        ("unknown-rung", "FallbackLadder/a has no rung 'b.c/d'"),
    ]
