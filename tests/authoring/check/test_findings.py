"""Findings about rules that are valid and yet wrong: constant conditions, names that nothing reads."""

from pathlib import Path

import pytest

from rules_engine.authoring.check.check import check_files
from rules_engine.model.problems.problem import Problem, Severity
from tests.support.authoring import ladder, validation, write

MATCH = "{resources: ['*/*']}"
POD = "object.spec.enableServiceLinks"


def findings(tmp_path: Path, *documents: str) -> tuple[Problem, ...]:
    """Return the problems of documents in one file: all are warnings."""
    problems = check_files([write(tmp_path, {"rules.yaml": "---\n".join(documents)})]).answer.problems
    assert {problem.severity for problem in problems} <= {Severity.WARNING}
    return problems


def marked(problem: Problem, tmp_path: Path) -> str:
    """Return the text that a problem is about."""
    line = (tmp_path / "rules.yaml").read_text(encoding="utf-8").splitlines()[problem.location.line - 1]
    return line[problem.location.column - 1 :][: problem.length]


ALWAYS = [
    ("1 == 1", "1 == 1", "true"),
    (f"{POD} || true", f"{POD} || true", "true"),
    (f"{POD} && false", f"{POD} && false", "false"),
    (f"{POD} && 1 > 2", "1 > 2", "false"),
    (f"!({POD} && 1 > 2)", f"!({POD} && 1 > 2)", "true"),
    (f"{POD} || ({POD} || 'a' < 'b')", "'a' < 'b'", "true"),
    (f"1 < 2 ? 2 < 3 : {POD}", f"1 < 2 ? 2 < 3 : {POD}", "true"),
    (f"1 > 2 ? {POD} : false", f"1 > 2 ? {POD} : false", "false"),
    ("1 == 1 && 2 == 2", "1 == 1 && 2 == 2", "true"),
    ("object.metadata.name == 'a' && object.metadata.name == 'b'", None, "false"),
    ("object.metadata.name != 'a' || 'b' != object.metadata.name", None, "true"),
    ("quantity('1Gi').isGreaterThan(quantity('1Mi'))", None, "true"),
]


@pytest.mark.parametrize(("expression", "part", "word"), ALWAYS)
def test_a_condition_that_is_the_same_for_every_pod_is_reported_at_its_cause(
    tmp_path: Path, expression: str, part: str | None, word: str
) -> None:
    [problem] = findings(tmp_path, validation("v", f'"{expression}"', match=MATCH))
    effect = "every pod passes it" if word == "true" else "every pod fails it"
    assert str(problem).endswith(f"warning: the condition is always {word}: {effect} [constant-condition]")
    assert marked(problem, tmp_path) == (part or expression)


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        (f"{POD} && 1 < 2", "1 < 2"),
        (f"{POD} && !(2 < 1)", "!(2 < 1)"),
        (f"{POD} ? 1 == 1 : true", "1 == 1"),
        (
            f"object.spec.containers.exists(c, {POD} || c.name != 'a' || c.name != 'b')",
            f"{POD} || c.name != 'a' || c.name != 'b'",
        ),
        (
            "object.spec.containers.filter(c, c.name == 'a' && c.name == 'b').size() == 0",
            "c.name == 'a' && c.name == 'b'",
        ),
        ("object.spec.containers.map(c, 1 == 1, c.name).size() == 0", "1 == 1"),
        (f"({POD} ? (1 == 1 ? 'a' : 'b') : 'c') == object.metadata.name", "1 == 1"),
        (f"object.spec.?hostPID.orValue(true) ? {POD} : 1 == 1", "1 == 1"),
    ],
)
def test_a_part_that_is_the_same_for_every_pod_is_reported_too(
    tmp_path: Path, expression: str, part: str | None
) -> None:
    [problem] = findings(tmp_path, validation("v", f'"{expression}"', match=MATCH))
    assert problem.code == "constant-condition"
    assert part is None or "this part of the expression is always " in problem.message
    assert part is None or marked(problem, tmp_path) == part


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "!true",
        "'false'",
        f"{POD} && true",
        f"{POD} || false",
        f"{POD} ? true : false",
        f"{POD} ? true : object.spec.?hostPID.orValue(true)",
        f"{POD} == true",
        "object.metadata.name == 'a' || object.metadata.name == 'b'",
        "object.metadata.name != 'a' && object.metadata.name != 'b'",
        "object.metadata.name == 'a' && object.metadata.name == 'a'",
        "object.spec.containers.all(c, true)",
        "object.spec.?hostIPC.orValue(true)",
        f"!{POD} || object.spec.?hostPID.orValue(true)",
        "object.spec.containers.all(c, c.name == 'a') && object.spec.containers.exists(c, c.name == 'b')",
    ],
)
def test_deliberate_constants_and_near_misses_are_not_reported(tmp_path: Path, expression: str) -> None:
    quoted = f"'{expression}'" if expression in ("true", "!true") else f'"{expression}"'
    if expression == "'false'":
        quoted = expression
    assert findings(tmp_path, validation("v", quoted, match=MATCH)) == ()


PARAMS = "{max: 4, teams: [], strict: true, deep: {strict: false}}"


@pytest.mark.parametrize(
    ("expression", "reported"),
    [
        ("params.max > 3", True),
        ("params.teams.size() == 0", True),
        ("variables.limit > 3", True),
        ("params.max == variables.limit", True),
        ("params.strict", False),
        ("!params.deep.strict", False),
        ("params['strict'] && params.max > 3", False),
        ("variables.strict", False),
        ("params.teams.size() == 0 || object.metadata.name in params.teams", False),
        ("params.max > 3 && object.spec.hostPID", False),
        ("variables.limit < object.spec.containers.size()", False),
    ],
)
def test_params_alone_decide_a_condition_only_as_switches(tmp_path: Path, expression: str, *, reported: bool) -> None:
    variables = "[{name: limit, expression: params.max}, {name: strict, expression: 'true'}]"
    rule = validation("v", f'"{expression}"', match=MATCH, params=PARAMS, variables=variables)
    problems = [problem for problem in findings(tmp_path, rule) if problem.code == "constant-condition"]
    assert bool(problems) is reported
    for problem in problems:
        assert "the condition depends on params and variables alone, and is always true: every pod passes it" in str(
            problem
        )
        assert marked(problem, tmp_path) == expression


def test_each_condition_has_its_effect(tmp_path: Path) -> None:
    rule = ladder(
        "l",
        "nvidia.com/mig-1g.10gb",
        '{resource: nvidia.com/gpu, when: "1 > 2"}',
        matchConditions="[{name: a, expression: '1 > 2'}, {name: b, expression: '1 < 2'}]",
    )
    assert [problem.message for problem in findings(tmp_path, rule)] == [
        "the condition is always false: nothing moves to this rung",
        "the condition is always false: the rule applies to no pod",
        "the condition is always true: it has no effect",
    ]


def test_a_variable_that_nothing_reads_is_reported_at_its_name(tmp_path: Path) -> None:
    variables = f"[{{name: first, expression: {POD}}}, {{name: second, expression: '!variables.first'}}]"
    [problem] = findings(tmp_path, validation("v", POD, match=MATCH, variables=variables))
    assert str(problem) == (
        f"{tmp_path}/rules.yaml:8:81: warning: no expression reads variables.second [unused-variable]"
    )
    assert marked(problem, tmp_path) == "second"


@pytest.mark.parametrize(
    "fields",
    [
        {"matchConditions": "[{name: c, expression: variables.a}]"},
        {
            "variables": "[{name: a, expression: '1'}, {name: b, expression: 'size(variables) > 5'}]",
            "last": "variables.b",
        },
    ],
)
def test_a_variable_that_some_expression_reads_is_not_reported(tmp_path: Path, fields: dict[str, str]) -> None:
    last = fields.pop("last", POD)
    rule = validation("v", last, match=MATCH, **{"variables": f"[{{name: a, expression: {POD}}}]", **fields})
    assert [problem.code for problem in findings(tmp_path, rule) if "unused" in problem.code] == []


def test_a_message_reads_variables_and_params(tmp_path: Path) -> None:
    rule = validation(
        "v",
        f"{POD}\n      messageExpression: variables.a + params.text",
        match=MATCH,
        params="{text: x}",
        variables="[{name: a, expression: object.metadata.name}]",
    )
    assert findings(tmp_path, rule) == ()


@pytest.mark.parametrize(
    ("expression", "unread"),
    [
        ("object.spec.containers.size() < params.one", ["two", "three"]),
        ("object.spec.containers.size() < params['two']", ["one", "three"]),
        ("object.spec.containers.size() < params.?one.orValue(1) + params[?'two'].orValue(2)", ["three"]),
        (f"has(params.three) && {POD}", ["one", "two"]),
        (f"'one' in params && {POD}", ["two", "three"]),
        ("params[object.metadata.name] == 1", []),
        ("object.metadata.name in params", []),
        ("params.exists(name, name == object.metadata.name)", []),
        ("object.spec.containers.all(params, params.name != 'one')", ["one", "two", "three"]),
        (POD, ["one", "two", "three"]),
    ],
)
def test_a_param_that_nothing_reads_is_reported_at_its_key(tmp_path: Path, expression: str, unread: list[str]) -> None:
    rule = validation("v", f'"{expression}"', match=MATCH, params="{one: 1, two: 2, three: 3}")
    problems = findings(tmp_path, rule)
    assert [marked(problem, tmp_path) for problem in problems] == unread
    assert [str(problem).partition("warning: ")[2] for problem in problems] == [
        f"no expression reads params.{name} [unused-param]" for name in unread
    ]


def test_names_are_not_reported_where_an_expression_has_an_error(tmp_path: Path) -> None:
    rule = validation("v", "objct == params.one", match=MATCH, params="{one: 1, two: 2}")
    problems = check_files([write(tmp_path, {"rules.yaml": rule})]).answer.problems
    assert [problem.code for problem in problems] == ["cel-undeclared"]
