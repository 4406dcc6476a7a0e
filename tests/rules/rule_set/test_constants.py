"""Constants of params: problems of expressions that fail for every pod."""

from typing import Any

import pytest

from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Severity
from rules_engine.model.rules.admission import Endpoint
from rules_engine.rules.kinds import compile_rules
from tests.support.evaluation import GPU, MIG2, check, injection, ladder, rung, validation

PARAMS: dict[str, Json] = {
    "max": 4,
    "text": "x",
    "on": True,
    "none": None,
    "ratio": 0.5,
    "limits": {"ml": 4},
    "teams": ["a", {"b": 1}],
    "bad": "(",
}


def problem_texts(expression: str, **fields: Any) -> list[str]:
    """Column, message and code of every problem."""
    problems = compile_rules([validation(expression, params=PARAMS, **fields)])[1]
    return [f"{p.location.column}-{p.location.column + p.length}: {p.message} [{p.code}]" for p in problems]


FAILING = [
    ("params.mx > 1", "8-10: params has no 'mx' (did you mean 'max'?) [cel-params]"),
    ("params['mx'] > 1", "8-12: params has no 'mx' (did you mean 'max'?) [cel-params]"),
    ("1 < params.limits.ab", "19-21: params.limits has no 'ab' [cel-params]"),
    ("object.spec.hostIPC && params.absent", "31-37: params has no 'absent' [cel-params]"),
    ("object.spec.hostIPC ? params.absent : true", "30-36: params has no 'absent' [cel-params]"),
    ("params.on ? params.absent : true", "20-26: params has no 'absent' [cel-params]"),
    ("!params.on ? true : params.absent", "28-34: params has no 'absent' [cel-params]"),
    ("[1].all(params, params > 0) && params.a", "39-40: params has no 'a' [cel-params]"),
    ("object.spec.containers.all(c, c.name != params.tex)", "48-51: params has no 'tex' (did you mean 'text'?)"),
    ("object.metadata.name != params[object.metadata.name] + params.tex", "63-66: params has no 'tex'"),
    ("params.?max.optMap(m, m + params.mx) == optional.of(3)", "34-36: params has no 'mx'"),
    ("optional.of(object.spec.hostIPC).optMap(h, h == params.o).orValue(true)", "56-57: params has no 'o'"),
    ("object.spec.containers.map(c, c.name == 'x', params.o).size() > 1", "53-54: params has no 'o'"),
    ("has(params.limit.a)", "12-17: params has no 'limit' (did you mean 'limits'?)"),
    ("has(params.max.a)", "1-18: with the rule's params this always fails: has(params.max.a): type int has no fields"),
    ("params.max.a > 1", "12-13: with the rule's params this always fails: params.max.a: type int has no fields"),
    ("params.teams[2] == 'a'", "1-16: with the rule's params this always fails: params.teams[2]: index out of range"),
    ("params.teams['a'] == 'a'", "1-18: with the rule's params this always fails: params.teams['a']: a list has no"),
    ("params.max / 0 > 1", "1-15: with the rule's params this always fails: params.max / 0: division by zero"),
    ("params.text.size(1) > 1", "13-17: size() takes 0 arguments, not 1 [cel-arguments]"),
    ("params.max.size() > 1", "12-16: with the rule's params this always fails: params.max.size(): no such overload"),
    ("quantity(params.bad).isInteger()", "1-9: with the rule's params this always fails: quantity(params.bad): the"),
    (
        "['c'].all(k, params[k] == 1)",
        "1-29: with the rule's params this always fails: params[k]: no such key (.? and [?…] read what may be absent)",
    ),
    ("object.spec.containers.size() <= params.text", "1-45: operator <= cannot be applied to int and string"),
    ("params.none < object.spec.containers.size()", "1-44: operator < cannot be applied to null_type and int"),
    ("object.spec.containers.size() * params.ratio > 1.0", "1-45: operator * cannot be applied to int and double"),
    ("params.text && object.spec.hostIPC", "1-12: an operand of && must be bool, not string"),
    ("params.text ? object.spec.hostIPC : true", "1-12: the condition before ? must be bool, not string"),
    ("math.abs(params.text) > 1", "6-9: with the rule's params this always fails: math.abs(params.text): no such"),
    ("1 / 0 == params.max", "1-20: with the rule's params this always fails: 1 / 0: division by zero [cel-params]"),
    ("params.text", "1-12: the expression must be bool, not string [cel-result-type]"),
    (
        "object.spec.containers.all(c, c.resources.limits['a/b'] <= params.max)",
        (
            "31-70: operator <= cannot be applied to string and int (amounts are strings: write"
            " !quantity(c.?resources.limits[?'a/b'].orValue('0')).isGreaterThan(quantity(string(params.max))))"
            " [cel-params]"
        ),
    ),
    (
        "object.spec.containers.all(c, c.resources.limits['a/b'] <= params.text)",
        (
            "31-71: amounts are compared as text, '10' before '9' (write"
            " !quantity(c.?resources.limits[?'a/b'].orValue('0')).isGreaterThan(quantity(params.text))) [cel-params]"
        ),
    ),
    ("object.spec.containers.all(c, [1].all(c, c > params.text))", "42-57: operator > cannot be applied to int and"),
    ("cel.bind(m, params.mx, m > 1)", "1-30: with the rule's params this always fails: params.mx: no such key"),
    ("cel.bind(n, 1, n > params.text)", "16-31: operator > cannot be applied to int and string"),
]


@pytest.mark.parametrize(("expression", "text"), FAILING)
def test_a_part_that_fails_for_every_pod_is_reported_once(expression: str, text: str) -> None:
    [problem] = problem_texts(expression)
    assert problem.startswith(text)


FINE = [
    "has(params.least) ? params.least > 1 : true",
    "!has(params.least) || params.least > 1",
    "has(params.least) && params.least > object.spec.containers.size()",
    "'least' in params ? params.least > 1 : true",
    "['least'].all(k, k in params) ? params.least > 1 : true",
    "params.?least.orValue(1) > 0",
    "params[?'least'].orValue('') == ''",
    "params.?limits.absent.orValue('') == ''",
    "params.?least.hasValue() && params.least > 1",
    "type(params.max) == string ? params.max.size() > 1 : params.max > 1",
    "!params.on && params.absent == object.metadata.name",
    "params.on ? true : params.absent",
    "params.on ? object.spec.hostIPC : params.absent",
    "params.max == '' || object.spec.hostIPC",
    "object.metadata.name in params.teams",
    "params.?max.orValue(object.metadata.name) == 'x'",
    "[params.max, object.metadata.name].size() == 2",
    "params[object.metadata.name] == 1",
    "object.spec.containers.size() <= params.max",
    "object.spec.containers.all(c, c.name.startsWith(params.text))",
    "object.spec.containers.all(c, has(c.name) ? c.name > params.text : params.on)",
    "object.spec.containers.all(c, [1].all(c, c < params.max) && c.name + string([1].all(c, c > 0)) > params.text)",
    "params.teams.all(t, type(t) == string || t.b == 1)",
    "math.greatest(object.spec.containers.size(), params.max) > 1",
    "params.on && object.spec.hostIPC",
    "params.on",
    "size(params) == 8",
    "1 / 0 == 1 || object.spec.hostIPC",
    "cel.bind(least, params.least, has(params.least) && object.spec.containers.size() > least)",
    "lists.range(params.max * 100000).all(i, lists.range(i).all(j, params.on))",
]


@pytest.mark.parametrize("expression", FINE)
def test_an_expression_that_may_hold_for_some_pod_is_valid(expression: str) -> None:
    assert problem_texts(expression) == []


def test_a_broken_variable_of_params_is_reported_once() -> None:
    variables = {"strict": "has(params.strict)", "limit": "params.max", "broken": "params.mx"}
    assert problem_texts("variables.strict ? params.strict : true", variables=variables) == [
        "8-10: params has no 'mx' (did you mean 'max'?) [cel-params]"
    ]
    [problem] = problem_texts("variables.limit.size() > 1", variables={"limit": "params.max"})
    assert problem.startswith("17-21: with the rule's params this always fails: variables.limit.size(): no such")
    assert problem_texts("variables.own > params.max", variables={"own": "object.spec.containers.size()"}) == []


def test_every_expression_of_a_rule_is_checked() -> None:
    for rule in (
        ladder(MIG2, rung(GPU, when="params.no")),
        ladder(MIG2, match_conditions={"a": "params.no"}),
        injection(variables={"a": "params.no"}),
    ):
        rule_set, problems = compile_rules([rule])
        assert [problem.code for problem in problems] == ["cel-params"]
        assert rule_set.rules_at(Endpoint.MUTATE) == ()


def test_a_failing_message_expression_is_a_warning() -> None:
    rule_set, problems = compile_rules([validation(check("true", message_expression="params.no"))])
    assert [(problem.code, problem.severity) for problem in problems] == [("cel-params", Severity.WARNING)]
    assert len(rule_set.rules_at(Endpoint.VALIDATE)) == 1


def test_a_warning_beside_a_param_is_no_error() -> None:
    expression = "params.on && object.spec.containers.all(c, '4' < c.?resources.limits.cpu.orValue('0'))"
    rule_set, problems = compile_rules([validation(expression, params=PARAMS)])
    assert [(problem.code, problem.severity) for problem in problems] == [("cel-amount", Severity.WARNING)]
    assert len(rule_set.rules_at(Endpoint.VALIDATE)) == 1


def test_a_long_operand_is_shortened() -> None:
    [problem] = problem_texts(f"{{'{'a' * 90}': params}}.b == 1")
    assert "has no 'b'" in problem
    assert "…" in problem
