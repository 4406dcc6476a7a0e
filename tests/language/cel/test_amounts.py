"""Amounts are strings in CEL: problems and warnings of expressions that use them as numbers, and their remedies."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from rules_engine.language.cel import CelProblems, Environment, Program, compile_expression, types
from rules_engine.model.problems.problem import Problem, Severity
from rules_engine.model.problems.source import SourceText
from tests.language.cel.evaluating import both, outcome
from tests.language.cel.test_checker import POLICY

INSIDE = POLICY.with_variables(
    c=types.shape_type("Container"),
    limit=types.AMOUNT,
    several=types.list_of(types.AMOUNT),
    most=types.INT,
    count=types.UINT,
    asked=types.optional_of(types.AMOUNT),
    variables=types.object_of("variables", {"limit": types.AMOUNT}),
)
GPUS = "c.resources.limits['nvidia.com/gpu']"
ASKED = "c.?resources.limits[?'nvidia.com/gpu']"
LIMIT = f"quantity({ASKED}.orValue('0'))"
"""The limit of any container, 0 where it has none."""


def problems_of(expression: str, environment: Environment = INSIDE) -> tuple[Problem, ...]:
    """Return the problems of an expression, or else its warnings."""
    try:
        return compile_expression(SourceText.inline(expression), environment).warnings
    except CelProblems as error:
        return error.problems


def apply_remedy(expression: str, problem: Problem) -> str:
    """Return the expression with the remedy in the message in place of the reported part."""
    start = problem.location.column - 1
    return expression[:start] + read_remedy(problem) + expression[start + problem.length :]


def read_remedy(problem: Problem) -> str:
    remedy = re.search(r"write (.*)\)$", problem.message)
    assert remedy
    return remedy[1]


@cache
def compiled(expression: str) -> Program:
    return compile_expression(SourceText.inline(expression), INSIDE)


def value_of(expression: str, **variables: object) -> object:
    """Return the value of an expression without problems, apart from functions that are newer than Kubernetes'."""
    program = compiled(expression)
    assert {warning.code for warning in program.warnings} <= {"cel-newer"}
    kind, value = both(program, variables)
    assert kind == "value", value
    return value


# Operators, with the remedy for the whole expression.
OPERATORS = [
    (f"{GPUS} <= 4", f"!{LIMIT}.isGreaterThan(quantity('4'))"),
    (f"{GPUS} < 4", f"{LIMIT}.isLessThan(quantity('4'))"),
    (f"{GPUS} > 4", f"{LIMIT}.isGreaterThan(quantity('4'))"),
    (f"4 >= {GPUS}", f"!quantity('4').isLessThan({LIMIT})"),
    (f"{GPUS} == 4", f"{LIMIT} == quantity('4')"),
    (f"{GPUS} != 4u", f"{LIMIT} != quantity(string(4u))"),
    (f"-1 < {GPUS}", f"quantity('-1').isLessThan({LIMIT})"),
    (f"{GPUS} < 1.5", f"{LIMIT}.isLessThan(quantity('1.5'))"),
    (f"{GPUS} > quantity('4')", f"{LIMIT}.isGreaterThan(quantity('4'))"),
    (f"quantity({GPUS}) > quantity('4')", f"{LIMIT}.isGreaterThan(quantity('4'))"),
    (f"quantity({GPUS}) >= 4", f"!{LIMIT}.isLessThan(quantity('4'))"),
    (f"quantity({GPUS}) == '4'", f"{LIMIT} == quantity('4')"),
    (f"{GPUS} <= most", f"!{LIMIT}.isGreaterThan(quantity(string(most)))"),
    (f"{GPUS} <= cluster.total('a')", f"!{LIMIT}.isGreaterThan(quantity(string(cluster.total('a'))))"),
    (f"{ASKED} > 4", f"{LIMIT}.isGreaterThan(quantity('4'))"),
    ("c.resources.?limits.cpu > 4", "quantity(c.?resources.?limits.cpu.orValue('0')).isGreaterThan(quantity('4'))"),
    (f"{GPUS} + 1", f"{LIMIT}.add(quantity('1'))"),
    (f"{GPUS} - 1", f"{LIMIT}.sub(quantity('1'))"),
    (f"{GPUS} * 2", f"{LIMIT}.mul(quantity('2'))"),
    (f"{GPUS} in [1, 2, 4]", f"{LIMIT} in [1, 2, 4].map(n, quantity(string(n)))"),
    (
        'c.resources.limits["cpu"] > 4',
        'quantity(c.?resources.limits[?"cpu"].orValue("0")).isGreaterThan(quantity("4"))',
    ),
    ("c.resources\n  .limits.cpu > 4", "quantity(c.?resources.limits.cpu.orValue('0')).isGreaterThan(quantity('4'))"),
    ("limit > 4", "quantity(limit).isGreaterThan(quantity('4'))"),
    ("variables.limit > 4", "quantity(variables.limit).isGreaterThan(quantity('4'))"),
    ("asked > 4", "quantity(asked.orValue('0')).isGreaterThan(quantity('4'))"),
    ("object.spec.overhead.cpu > 1", "quantity(object.spec.?overhead.cpu.orValue('0')).isGreaterThan(quantity('1'))"),
    (
        "object.spec.containers[0].resources.limits.cpu > 1",
        "quantity(object.spec.containers[?0].resources.limits.cpu.orValue('0')).isGreaterThan(quantity('1'))",
    ),
    ("object.spec.volumes[0].emptyDir.sizeLimit > 1", None),
    ("object.spec.resources.requests.cpu > 1", None),
    ("object.spec.initContainers[0].resources.requests.cpu > 1", None),
    ("object.spec.ephemeralContainers[0].resources.requests.cpu > 1", None),
    ("oldObject.spec.containers[0].resources.requests.cpu > 1", None),
    ("node.status.allocatable.cpu > 1", None),
]


@pytest.mark.parametrize(("expression", "remedy"), OPERATORS)
def test_an_operator_on_an_amount_is_an_error_with_its_remedy(expression: str, remedy: str | None) -> None:
    [problem] = problems_of(expression)
    assert (problem.code, problem.severity, problem.location.column) == ("cel-type", Severity.ERROR, 1)
    assert problem.length == len(expression)
    assert problem.message.startswith("operator ")
    assert apply_remedy(expression, problem) == remedy or remedy is None
    assert {warning.code for warning in problems_of(apply_remedy(expression, problem))} <= {"cel-newer"}


def test_the_message_has_the_reason() -> None:
    assert [problem.message for problem in problems_of("limit <= 4")] == [
        (
            "operator <= cannot be applied to string and int (amounts are strings: write"
            " !quantity(limit).isGreaterThan(quantity('4')))"
        )
    ]
    assert [problem.message for problem in problems_of("quantity(limit) > quantity('4')")] == [
        (
            "operator > cannot be applied to kubernetes.Quantity and kubernetes.Quantity"
            " (write quantity(limit).isGreaterThan(quantity('4')))"
        )
    ]


# The part that is reported, and its remedy, in expressions where it is not the whole expression.
PARTS = [
    ("object.spec.containers.all(d, d.resources.limits.cpu < 4)", "quantity(d.?resources.limits.cpu.orValue('0'))"),
    ("c.resources.limits.exists(k, v, v > 4)", "quantity(v)"),
    ("c.resources.limits.exists(k, c.resources.limits[k] > 4)", "quantity(c.?resources.limits[?k].orValue('0'))"),
    ("cel.bind(n, limit, n > 4)", "quantity(n)"),
    ("several.exists(one, one > 4)", "quantity(one)"),
    ("asked.optMap(one, one > 4).orValue(false)", "quantity(one)"),
    ("(limit) > 4 && !(4 > limit)", "quantity((limit))"),
    (
        "[c.resources.limits, c.resources.requests].exists(amounts, amounts.cpu > 4)",
        "quantity(amounts.?cpu.orValue('0'))",
    ),
    ("c.?resources.limits.orValue({}).exists(k, v, v > 4)", "quantity(v)"),
]


@pytest.mark.parametrize(("expression", "remedy"), PARTS)
def test_amounts_are_known_in_macros_and_through_optionals(expression: str, remedy: str) -> None:
    first, *_ = problems_of(expression)
    assert first.code == "cel-type"
    while problems := problems_of(expression):
        assert remedy in apply_remedy(expression, first)
        expression = apply_remedy(expression, problems[0])


CALLS = [
    ("limit.isGreaterThan(quantity('4'))", "quantity(limit).isGreaterThan(quantity('4'))"),
    ("limit.isLessThan(4)", "quantity(limit).isLessThan(quantity('4'))"),
    ("quantity(limit).isGreaterThan(4)", "quantity(limit).isGreaterThan(quantity('4'))"),
    ("asked.compareTo(quantity('4'))", "quantity(asked.orValue('0')).compareTo(quantity('4'))"),
    ("sign(limit)", "sign(quantity(limit))"),
    ("quantity(4)", "quantity('4')"),
    ("quantity(most)", "quantity(string(most))"),
    ("quantity(asked)", "quantity(asked.orValue('0'))"),
    ("quantity(quantity(limit))", "quantity(limit)"),
    ("asked.orValue(8)", "quantity(asked.orValue('8'))"),
    ("asked.orValue(most)", "quantity(asked.orValue('0'))"),
    (f"{GPUS}.isGreaterThan(quantity('4'))", f"{LIMIT}.isGreaterThan(quantity('4'))"),
    ("c.resources.limits[?'nvidia.com/gpu'].orValue(0)", LIMIT),
    *(
        (f"object.spec.containers.map(c, {body}).sum()", f"object.spec.containers.map(c, {LIMIT}.asInteger()).sum()")
        for body in (GPUS, f"quantity({GPUS})", LIMIT, ASKED)
    ),
    (
        "object.spec.containers.map(d, d.resources.limits.cpu).sum()",
        ("object.spec.containers.map(d, quantity(d.?resources.limits.cpu.orValue('0')).asApproximateFloat()).sum()"),
    ),
]


@pytest.mark.parametrize(("expression", "remedy"), CALLS)
def test_a_call_has_the_remedy(expression: str, remedy: str) -> None:
    [problem] = problems_of(expression)
    assert problem.code == "cel-type"
    assert problem.message.endswith(f"write {remedy})")
    assert problems_of(remedy) == ()


Json = Mapping[str, Any]

ABSENT: Sequence[Json] = (
    {"name": "main"},
    {"name": "main", "resources": {}},
    {"name": "main", "resources": {"limits": {}}},
    {"name": "main", "resources": {"limits": {"cpu": "500m"}}},
)
"""Containers without GPUs."""

CONTAINERS = (*((0, container) for container in ABSENT), (3, {"resources": {"limits": {"nvidia.com/gpu": "3"}}}))
"""The number of GPUs of each container, and the container."""

COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@pytest.mark.parametrize("amount", [GPUS, ASKED, f"quantity({GPUS})", "c.?resources.limits['nvidia.com/gpu']"])
@pytest.mark.parametrize("compared", COMPARISONS)
def test_the_remedy_compares_the_amount_of_any_container(compared: str, amount: str) -> None:
    for number in (0, 3, 4):
        written, reverse = f"{amount} {compared} {number}", f"{number} {compared} {amount}"
        remedy, other = (apply_remedy(expression, problems_of(expression)[0]) for expression in (written, reverse))
        for gpus, container in CONTAINERS:
            assert value_of(remedy, c=container) is COMPARISONS[compared](gpus, number)
            assert value_of(other, c=container) is COMPARISONS[compared](number, gpus)


@pytest.mark.parametrize(("gpus", "container"), CONTAINERS)
@pytest.mark.parametrize(
    ("written", "more", "expected"),
    [
        (f"{GPUS} + 1", "== quantity('1')", lambda gpus: gpus == 0),
        (f"1 + {GPUS}", "== quantity('1')", lambda gpus: gpus == 0),
        (f"{GPUS} - 1", "== quantity('2')", lambda gpus: gpus == 3),
        (f"1 - {GPUS}", "== quantity('-2')", lambda gpus: gpus == 3),
        (f"{GPUS} * 2", "== quantity('6')", lambda gpus: gpus == 3),
        (f"2 * {GPUS}", "== quantity('6')", lambda gpus: gpus == 3),
        (f"{GPUS} in [1, 3]", "", lambda gpus: gpus == 3),
        (f"{GPUS} in [most]", "", lambda gpus: gpus == 3),
        (f"!({GPUS} in [1, 3])", "", lambda gpus: gpus == 0),
        ("c.resources.limits.cpu in [1, 2]", "", lambda gpus: False),
        (f"{GPUS}.isLessThan(1)", "", lambda gpus: gpus == 0),
        (f"{ASKED}.orValue(8)", "== quantity('8')", lambda gpus: gpus == 0),
        ("c.resources.limits[?'nvidia.com/gpu'].orValue(8)", "== quantity('8')", lambda gpus: gpus == 0),
        (f"!({GPUS} == 3)", "", lambda gpus: gpus == 0),
        (f"{GPUS} < '1'", "", lambda gpus: gpus == 0),
        (f"'1' > {GPUS}", "", lambda gpus: gpus == 0),
        (f"{GPUS} > {GPUS}", "", lambda gpus: False),
        (f"{GPUS} + {GPUS}", "== quantity('6')", lambda gpus: gpus == 3),
        (f"{GPUS} == '3000m'", "", lambda gpus: gpus == 3),
    ],
)
def test_a_remedy_works_on_any_container(
    written: str, more: str, expected: Callable[[int], bool], gpus: int, container: Json
) -> None:
    [problem] = problems_of(written)
    # The remedy of a call is the whole of it, though only its name is marked.
    remedy = read_remedy(problem) if problem.message.startswith("there is no") else apply_remedy(written, problem)
    assert value_of(f"({remedy}) {more}", c=container, most=3) is expected(gpus)


@pytest.mark.parametrize(("gpus", "container"), CONTAINERS)
@pytest.mark.parametrize("amount", [GPUS, ASKED, f"quantity({GPUS})", LIMIT])
def test_the_remedy_of_a_sum_adds_the_amounts_of_any_containers(amount: str, gpus: int, container: Json) -> None:
    [problem] = problems_of(f"object.spec.containers.map(c, {amount}).sum()")
    remedy = read_remedy(problem)
    pod = {"spec": {"containers": [container, CONTAINERS[-1][1]]}}
    assert value_of(remedy, object=pod) == gpus + 3


@pytest.mark.parametrize(
    ("amount", "spec", "expected"),
    [
        ("overhead.cpu", {}, True),
        ("overhead.cpu", {"overhead": {"cpu": "2"}}, False),
        ("containers[0].resources.limits.cpu", {"containers": []}, True),
        ("containers[0].resources.limits.cpu", {"containers": [{}]}, True),
        ("containers[0].resources.limits.cpu", {"containers": [{"resources": {"limits": {"cpu": "1500m"}}}]}, False),
    ],
)
def test_a_remedy_works_on_any_pod(amount: str, spec: Json, expected: bool) -> None:
    written = f"object.spec.{amount} <= 1"
    assert value_of(apply_remedy(written, problems_of(written)[0]), object={"spec": spec}) is expected


@pytest.mark.parametrize("container", ABSENT)
def test_the_remedy_of_a_conversion_works_on_any_container(container: Json) -> None:
    for written in (f"int({GPUS})", f"double({GPUS})"):
        remedies = re.findall(
            r"write (.*)\.isGreaterThan\(…\) to compare, (.*) for the number", str(problems_of(written))
        )
        assert [value_of(f"{amount} == quantity('0')", c=container) for amount, _ in remedies] == [True]
        assert [value_of(number, c=container) for _, number in remedies] == [0]


WARNINGS = [
    ("limit < '4'", "amounts are compared as text, '10' before '9' (write quantity(limit).isLessThan(quantity('4')))"),
    (
        "c.resources.requests.cpu > c.resources.limits.cpu",
        (
            "amounts are compared as text, '10' before '9'"
            " (write quantity(c.?resources.requests.cpu.orValue('0'))"
            ".isGreaterThan(quantity(c.?resources.limits.cpu.orValue('0'))))"
        ),
    ),
    ("limit + limit", "amounts are joined as text, '1' and '2' as '12' (write quantity(limit).add(quantity(limit)))"),
    ("limit == '1000m'", "the API server writes '1000m' as '1' (write quantity(limit) == quantity('1000m'))"),
    ("'0.5' != limit", "the API server writes '0.5' as '500m' (write quantity('0.5') != quantity(limit))"),
    (
        "int(limit)",
        (
            "int() fails for amounts such as '500m'"
            " (write quantity(limit).isGreaterThan(…) to compare, quantity(limit).asInteger() for the number)"
        ),
    ),
    (
        "double(limit)",
        (
            "double() fails for amounts such as '500m'"
            " (write quantity(limit).isGreaterThan(…) to compare, quantity(limit).asApproximateFloat() for the number)"
        ),
    ),
]


@pytest.mark.parametrize(("expression", "message"), WARNINGS)
def test_what_kubernetes_accepts_is_a_warning(expression: str, message: str) -> None:
    [problem] = problems_of(expression)
    assert (problem.code, problem.severity, problem.message) == ("cel-amount", Severity.WARNING, message)
    assert (problem.location.column, problem.length) == (1, len(expression))


@pytest.mark.parametrize(
    "expression",
    [
        "limit == '4'",
        "limit in ['1', '2']",
        "limit == ''",
        "'limit ' + limit + ', ' + limit",
        "limit.endsWith('Gi')",
        "limit <= anything",
        "string(limit)",
        "quantity(string(limit))",
        "type(limit) == string",
        "asked.orValue('0') == '0'",
        "'cpu' in c.resources.limits",
        "has(c.resources.limits.cpu)",
        "'a' < 'b'",
        "int(object.metadata.labels.gpus) > 4",
        "quantity(limit).add(1) == quantity('2')",
        "several.max() == '4'",
    ],
)
def test_an_amount_is_a_string_like_any_other(expression: str) -> None:
    assert problems_of(expression) == ()


@pytest.mark.parametrize(
    "expression",
    [
        "4 / limit",
        "limit / 2",
        "limit < duration('1s')",
        "limit % 4 == 0",
        "has(c.resources) ? limit : 0",
        "limit && true",
        "object.metadata.name < 4",
        "object.spec.containers.map(d, d.name).sum()",
        "several.sum()",
        "limit.join('')",
        "quantity('4') in [quantity('4').isInteger()]",
        "asked.orValue([])",
        "limit.contains(1)",
        "duration('1s').isGreaterThan(limit)",
        "sets.contains(limit, limit)",
        "math.abs(limit)",
    ],
)
def test_a_mistake_without_a_known_remedy_has_none(expression: str) -> None:
    assert ["write" in problem.message for problem in problems_of(expression)] == [False]


def test_a_long_remedy_is_omitted() -> None:
    expression = f"c.resources.limits['{'a' * 100}.com/{'b' * 50}'] > 4"
    [problem] = problems_of(expression)
    assert problem.message == "operator > cannot be applied to string and int"


def test_the_remedy_has_the_value_that_its_author_means() -> None:
    for written, expected in (("4", True), ("4k", False), ("3500m", True), ("16", False)):
        expression = "limit <= 4"
        program = compile_expression(SourceText.inline(apply_remedy(expression, problems_of(expression)[0])), INSIDE)
        assert outcome(program.evaluate, {"limit": written}) == ("value", expected)


@pytest.mark.parametrize(
    ("mistake", "value"),
    [
        ("object.metadata.labels.team != null", False),
        ("object.metadata.labels['team'] == null", True),
        ("object.spec.nodeSelector.zone == null", True),
        ("object.metadata.labels.contains('team')", False),
        ("object.spec.containers.exists(c, has(c.resources.limits['nvidia.com/gpu']))", False),
        ("true && has(object.metadata.labels.a/b)", False),
        ("object.spec.containers.exists(c, c.args.contains('a'))", False),
    ],
)
def test_a_remedy_for_a_value_that_may_be_absent_can_be_evaluated_without_it(mistake: str, value: bool) -> None:
    [problem] = problems_of(mistake)
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main"}]}}
    assert value_of(apply_remedy(mistake, problem), object=pod) is value
