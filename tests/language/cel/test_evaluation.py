"""Errors, lookups and bounds of evaluation."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rules_engine.language.cel import (
    Budget,
    CostExceeded,
    Environment,
    EvaluationError,
    Optional,
    compile_expression,
    types,
)
from rules_engine.language.cel.budget import MAX_RESULT_CHARACTERS, MAX_RESULT_ITEMS, REQUEST_COST
from rules_engine.language.cel.values.runtime_values import KeyedMap, Uint, make_map
from rules_engine.model.problems.source import SourceText
from tests.language.cel.conformance import program
from tests.language.cel.evaluating import both, environment, evaluate, failure, unchecked
from tests.support.budgets import units_spent


def test_an_error_names_the_sub_expression_and_types_but_no_value() -> None:
    secret = {"metadata": {"labels": {"team": "s3cr3t"}}}
    assert failure("object.metadata.labels.team + object.metadata.labels", object=secret) == (
        "1:1: object.metadata.labels.team + object.metadata.labels: no such overload: + applied to (string, map)"
    )
    assert failure("int(object.metadata.labels.team)", object=secret) == (
        "1:1: int(object.metadata.labels.team): the string is not an int"
    )
    for expression in ("object.metadata.labels[object.metadata.labels.team]", "quantity(object.metadata.labels.team)"):
        assert "s3cr3t" not in failure(expression, object=secret)


def test_a_long_sub_expression_is_truncated() -> None:
    expression = "1 / (0 * size('" + "x" * 100 + "'))"
    assert failure(expression) == "1:1: 1 / (0 * size('" + "x" * 44 + "…: division by zero"


def test_an_error_has_its_location_in_the_yaml_file() -> None:
    source = SourceText("true &&\nobject.spec.missing", "rules/a.yaml", ((0, 14, 23), (8, 15, 9)))
    compiled = compile_expression(source, Environment({"object": types.DYN}))
    with pytest.raises(EvaluationError) as caught:
        compiled.evaluate({"object": {"spec": {}}}, Budget())
    assert (
        str(caught.value)
        == "rules/a.yaml:15:21: object.spec.missing: no such key (.? and [?…] read what may be absent)"
    )
    assert caught.value.message == "object.spec.missing: no such key (.? and [?…] read what may be absent)"
    assert str(EvaluationError("somewhere")) == "somewhere"


class Lazy(Mapping[str, object]):
    """Lazy variables. `lookups`: the names that were looked up."""

    def __init__(self, **values: object) -> None:
        self.lookups: list[str] = []
        self._values = values

    def __getitem__(self, name: str) -> object:
        self.lookups.append(name)
        value = self._values[name]
        if isinstance(value, Exception):
            raise value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def test_a_variable_is_looked_up_only_if_needed() -> None:
    compiled = program("flag || namespaceObject.a", environment(flag=True, namespaceObject=0))
    activation = Lazy(flag=True, namespaceObject=EvaluationError("no cluster"))
    assert compiled.evaluate(activation, Budget()) is True
    assert activation.lookups == ["flag"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("cel.bind(p, object.priority, !has(object.priority) || p > 0)", True),
        ("cel.bind(p, object.priority, has(object.priority) ? p : 7)", 7),
        ("cel.bind(p, object.priority, object.?missing.orValue([]).map(x, p))", []),
        ("cel.bind(p, object.priority, cel.bind(q, p + 1, [1, 2].exists(x, q > x) || true))", True),
        ("cel.bind(p, object.priority, cel.bind(p, 1, p + p))", 2),
        ("cel.bind(p, object.a, cel.bind(q, p + 1, [p, q].map(p, p + q)))", [3, 4]),
        ("cel.bind(p, {'b': object.priority}, 5)", 5),
        ("cel.bind(p, object.a, object.a > 1 ? p.b : p + 1)", 2),
        ("cel.bind(p, object.a == 1 ? [1].map(x, object.a + x) : [2], object.a != 2 || p == [2])", True),
    ],
)
def test_a_bind_value_is_evaluated_only_if_its_name_is_used(expression: str, value: Any) -> None:
    assert evaluate(expression, object={"a": 1}) == value


def test_generated_code_gives_up_on_use_of_a_failed_bind_value() -> None:
    generated = program("cel.bind(p, object.priority, object.a == 1 || p > 0)", environment(object={})).generated
    assert generated is not None
    assert generated.run({"object": {"a": 1}}, Budget()) is True
    with pytest.raises(EvaluationError, match="left to the interpreter"):
        generated.run({"object": {"a": 2}}, Budget())


def test_the_error_of_a_bind_value_has_its_own_location() -> None:
    expression = "cel.bind(p, object.priority, object.a == 2 || [1, 2].all(x, p > x))"
    assert (
        failure(expression, object={"a": 1})
        == "1:20: object.priority: no such key (.? and [?…] read what may be absent)"
    )


def test_a_bind_value_costs_once_and_only_if_evaluated() -> None:
    expression = "cel.bind(p, lists.range(number), flag && p.size() + p.size() > 0)"
    compiled = program(expression, environment(number=1, flag=1))

    def cost(flag: bool, number: int) -> int:
        budget = Budget()
        compiled.interpret({"number": number, "flag": flag}, budget)
        return units_spent(budget)

    assert cost(False, 50_000) == cost(False, 1) < 10
    assert 50_000 < cost(True, 50_000) < 50_020


def test_an_expensive_bind_value_is_free_if_not_evaluated() -> None:
    ranges = "lists.range(99999).map(x, lists.range(99999).size()).size()"
    assert evaluate(f"cel.bind(p, {ranges}, flag || p > 0)", flag=True) is True
    assert "the cost limit" in failure(f"cel.bind(p, {ranges}, flag || p > 0)", flag=False)


def test_an_error_of_the_activation_is_located_and_absorbed() -> None:
    names = {"flag": True, "lost": EvaluationError("no cluster knowledge")}
    assert program("lost || flag", environment(**names)).evaluate(Lazy(**names), Budget()) is True
    with pytest.raises(EvaluationError, match=r"^<expression>:1:9: lost: no cluster knowledge$"):
        program("flag && lost", environment(**names)).evaluate(Lazy(**names), Budget())


def test_variables_may_be_any_mapping() -> None:
    variables = Lazy(team="a", bad=EvaluationError("broken"))
    declared = environment(variables=0)
    assert program("variables.team == 'a'", declared).evaluate({"variables": variables}, Budget()) is True
    assert program("type(variables) == map", declared).evaluate({"variables": variables}, Budget()) is True
    assert program("variables.map(k, k).size()", declared).evaluate({"variables": variables}, Budget()) == 2
    with pytest.raises(EvaluationError, match=r"1:11: variables\.bad: broken"):
        program("variables.bad", declared).evaluate({"variables": variables}, Budget())


def test_a_variable_without_a_value_is_an_error() -> None:
    with pytest.raises(EvaluationError, match=r"^<expression>:1:1: x: 'x' has no value$"):
        program("x", environment(x=0)).evaluate({}, Budget())
    assert program("x || true", environment(x=0)).evaluate({}, Budget()) is True


class HalfKnownCluster:
    """A cluster whose free resources are unknown."""

    def allocatable(self, resource: str) -> int:
        return 8

    def available(self, resource: str) -> int:
        raise EvaluationError("the cluster is not known")

    def total(self, resource: str) -> int:
        return 2**63 if resource == "too much" else 16


def test_cluster_methods_call_the_cluster() -> None:
    cluster = HalfKnownCluster()
    declared = Environment({"cluster": types.CLUSTER})
    assert both(program("cluster.allocatable('a') + cluster.total('a')", declared), {"cluster": cluster})[1] == 24
    assert both(program("cluster.available('a') > 0", declared), {"cluster": cluster}) == (
        "error",
        "<expression>:1:9: cluster.available('a'): the cluster is not known",
    )
    kind, message = both(program("cluster.total('too much') > 0", declared), {"cluster": cluster})
    assert (kind, message.split(": ")[-1]) == ("error", "integer out of range")
    assert both(program("type(cluster) == type(cluster)", declared), {"cluster": cluster})[1] is True
    assert both(program("type(dyn(cluster))", declared), {"cluster": object()})[1] == types.DYN


def test_integers_beyond_64_bits_are_errors_when_read() -> None:
    for expression in (
        "n > 1",
        "n == 1",
        "n + 1",
        "-n",
        "string(n)",
        "1 < n",
        "dyn(n) == 1",
        "quantity('1').add(n) == quantity('1')",
        "'%d'.format([n])",
    ):
        assert "integer out of range" in failure(expression, n=2**63), expression
    assert evaluate("n == 'a'", n=2**63) is False


def test_an_unchecked_mistake_fails_at_run_time() -> None:
    assert "undeclared reference to 'x'" in unchecked("x")
    assert "no such overload: f() applied to (int)" in unchecked("f(1)")
    assert unchecked("x || true") is True
    assert "size() applied to (int)" in unchecked("size(1)")


def test_errors_are_absorbed_on_either_side() -> None:
    for expression in (
        "1 / 0 > 0 || true",
        "true || 1 / 0 > 0",
        "[0, 1].exists(x, 1 / x == 1)",
        "!([0, 1].all(x, 1 / x > 1))",
    ):
        assert evaluate(expression) is True
    assert "1:1: 1 / 0" in failure("1 / 0 > 0 || 2 / 0 > 0 || false")
    assert "1:9: dyn(1)" in failure("true && dyn(1)")


def test_true_and_one_are_different_keys() -> None:
    mixed = evaluate("{1: 'a', true: 'b', 2u: 'c'}")
    assert isinstance(mixed, KeyedMap)
    assert (mixed[1], mixed[True], mixed[Uint(2)], len(mixed)) == ("a", "b", "c", 3)
    assert list(mixed) == [1, True, 2]
    assert repr(Uint(2)) == "2u"
    with pytest.raises(EvaluationError, match="the same key twice"):
        make_map([(1, 0), (Uint(1), 0)])


def test_results_are_plain_values() -> None:
    assert evaluate("[1, 'a', null, 1.5, {'a': [true]}]") == [1, "a", None, 1.5, {"a": [True]}]
    assert evaluate("optional.of(1)") == Optional(True, 1)


def test_a_part_of_the_activation_is_returned_unchanged() -> None:
    pod = {"spec": {"containers": [{"name": "a"}] * 1000}}
    whole = program("object.?spec.value()", environment(object=0))
    budget = Budget(10)
    assert whole.evaluate({"object": pod}, budget) is pod["spec"]
    assert units_spent(budget) <= 5
    variables = Lazy(a=EvaluationError("not needed"))
    assert program("variables", environment(variables=0)).evaluate({"variables": variables}, Budget()) is variables


# Bounds


def _exceeds(expression: str, budget: Budget, **variables: Any) -> str:
    started = time.process_time()
    compiled = program(expression, environment(**variables))
    with pytest.raises(CostExceeded) as caught:
        compiled.evaluate(variables, budget)
    # Not a measurement: without the bound this would take minutes or never end.
    assert time.process_time() - started < 30
    return caught.value.message.split(": ")[-1]


LIMIT = REQUEST_COST // 10
"""A tenth of a request's limit, so that these tests take a tenth of the time."""

USED_UP = f"the cost limit of {LIMIT} for one request is used up"
TOO_LONG = f"a string result has more than {MAX_RESULT_CHARACTERS} characters"
TOO_MANY = f"a list result has more than {MAX_RESULT_ITEMS} elements"


def _doubling(start: str, step: str, times: int) -> str:
    expression = f"size(x{times})"
    for place in range(times, 0, -1):
        expression = f"cel.bind(x{place}, {step.replace('x', f'x{place - 1}')}, {expression})"
    return f"cel.bind(x0, {start}, {expression})"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, c >= 0)))", USED_UP),
        ("lists.range(100000).map(a, lists.range(100000)).size()", USED_UP),
        (_doubling("'ab'", "x + x", 25), TOO_LONG),
        (_doubling("[1]", "x + x", 25), TOO_MANY),
        (_doubling("[1]", "[x, x]", 25).replace("size(x25)", "x25 == x25"), USED_UP),
        (_doubling("[1]", "[x, x]", 25).replace("size(x25)", "'%s'.format([x25])"), USED_UP),
        (_doubling("['a']", "[x, x]", 25).replace("size(x25)", "x25.flatten(50)"), USED_UP),
        ("lists.range(100001)", TOO_MANY),
        ("'a'.replace('', text)", TOO_LONG),
        ("[text, text].join(text)", TOO_LONG),
        ("'%s%s'.format([text, text])", TOO_LONG),
        ("text.split('')", TOO_MANY),
        ("text.findAll('x')", USED_UP),
        ("lists.range(1000).all(x, text.contains('y') || true)", USED_UP),
        ("lists.range(10000).all(x, text.matches('((x?)*)*y') || true)", USED_UP),
        ("lists.range(10000).all(x, text == text + '')", USED_UP),
        ("lists.range(1000).all(x, 'a'.matches(string(x)) || true)", USED_UP),
        ("lists.range(3000).map(x, [x]).distinct().size()", USED_UP),
        ("lists.range(2000).all(x, sets.contains(lists.range(1000), [x]) || true)", USED_UP),
        ("lists.range(1000).all(x, x in lists.range(1000))", USED_UP),
    ],
)
def test_an_endless_evaluation_exceeds_its_bounds(expression: str, message: str) -> None:
    budget = Budget(LIMIT) if message == USED_UP else Budget()
    assert _exceeds(expression, budget, text="x" * 600_000) == message


@pytest.mark.parametrize("expression", ["items.map(x, x)", "items.filter(x, true)", "items.transformList(i, x, i)"])
def test_a_list_made_of_a_long_one_is_bounded(expression: str) -> None:
    assert _exceeds(expression, Budget(), items=[1] * (MAX_RESULT_ITEMS + 1)) == TOO_MANY


@pytest.mark.parametrize(
    "expression", ["string(text)", "text.lowerAscii()", "text.contains('y')", "text.startsWith(text)"]
)
def test_reading_a_long_text_is_charged(expression: str) -> None:
    budget = Budget()
    program(expression, environment(text="")).evaluate({"text": "x" * 10_000}, budget)
    assert 1000 <= units_spent(budget) <= 3000


def test_a_budget_is_shared_by_all_expressions_of_a_request() -> None:
    compiled = program("lists.range(100).all(x, x >= 0)", Environment({}))
    budget = Budget(1500)
    assert compiled.evaluate({}, budget) is True
    assert 0 < units_spent(budget) <= 1500
    assert compiled.evaluate({}, budget) is True
    with pytest.raises(CostExceeded, match="the cost limit of 1500 for one request is used up"):
        compiled.evaluate({}, budget)


def test_a_count_in_advance_beyond_the_limit_is_refunded() -> None:
    compiled = program("lists.range(100).exists(x, x > 10)", Environment({}))
    budget = Budget(200)
    # Counted in advance it exceeds the limit, counted exactly it does not.
    assert compiled.evaluate({}, budget) is True
    precise = Budget()
    assert compiled.interpret({}, precise) is True
    assert units_spent(budget) == units_spent(precise) <= 200


class Sliced(Budget):
    """A budget that grants a hundred units at a time. `grants`: the number of grants."""

    __slots__ = ("grants",)

    def __init__(self, limit: int = REQUEST_COST) -> None:
        super().__init__(limit)
        self.grants = 0
        self.rewind(limit)

    def more(self) -> None:
        super().more()
        self.grants += 1
        granted = self.left
        self.left = min(granted, 100)
        self.withheld = granted - self.left


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(10000).all(x, x >= 0)",
        "lists.range(10000).map(x, x).size() > 0",
        "lists.range(10000).exists(i, x, x < 0) || true",
        "lists.range(10000).filter(x, x < 0) == []",
        "lists.range(2000).map(x, 10000 - x).sort()[0] == 8001",
        "lists.range(100).all(x, lists.range(100).all(y, y >= 0))",
        f"[{'1,' * 5000}].all(x, x > 0)",
    ],
)
def test_a_long_loop_is_counted_as_it_runs(expression: str) -> None:
    compiled = program(expression, Environment({}))
    whole, sliced = Budget(), Sliced()
    assert compiled.evaluate({}, whole) is compiled.evaluate({}, sliced) is True
    assert units_spent(sliced) == units_spent(whole)
    # A loop is granted its cost in parts, between which a deadline can be checked.
    assert sliced.grants > 20_000 // 1000


def test_a_budget_granted_in_parts_has_the_same_limit() -> None:
    budget = Sliced(250)
    budget.spend(250)
    assert units_spent(budget) == 250
    for _ in range(2):
        with pytest.raises(CostExceeded, match="the cost limit of 250 for one request is used up"):
            budget.spend(1)


def test_reading_lists_of_other_expressions_is_charged() -> None:
    twice, budget = program("[x, x]", environment(x=0)), Budget(LIMIT)
    made: Any = [1]
    for _ in range(40):
        made = twice.evaluate({"x": made}, budget)
    assert units_spent(budget) < 1000
    for expression in ("x == x", "'%s'.format([x])", "x in [x]", "x.flatten(50) == []"):
        assert _exceeds(expression, Budget(LIMIT), x=made) == USED_UP


def test_a_used_up_budget_is_not_absorbed() -> None:
    for expression in ("lists.range(100001) == [] || true", "[100001, 1].exists(x, lists.range(x) != [])"):
        assert _exceeds(expression, Budget()) == TOO_MANY
    compiled = program("lists.range(100).all(x, x < 0) || true", Environment({}))
    with pytest.raises(CostExceeded):
        compiled.evaluate({}, Budget(50))
    exists = program("lists.range(100).exists(x, lists.range(100).all(y, y >= 0))", Environment({}))
    with pytest.raises(CostExceeded):
        exists.interpret({}, Budget(200))


@pytest.mark.parametrize(
    ("head", "tail", "levels"),
    [("[1].all(x, ", ")", 98), ("!(false || ", ")", 49), ("[1].map(x, ", ")[0]", 49), ("(true ? ", " : false)", 99)],
)
def test_an_expression_of_the_deepest_nesting_evaluates(head: str, tail: str, levels: int) -> None:
    """Each level takes several of Python's thousand frames."""
    compiled = program(head * levels + "true" + tail * levels, Environment({}))
    assert compiled.evaluate({}, Budget()) is compiled.interpret({}, Budget())


def test_a_value_nested_too_deeply_is_an_error() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    compiled = program("a == b", environment(a=0, b=0))
    other: list[Any] = []
    for _ in range(5000):
        other = [other]
    with pytest.raises(EvaluationError, match=r"^<expression>:1:1: a value is nested too deeply$"):
        compiled.evaluate({"a": deep, "b": other}, Budget())
