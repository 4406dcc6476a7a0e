"""Total cost of the expressions of a request, whether interpreted, generated or cached."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.cel import Budget, CostExceeded, EvaluationError, Program
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.decision import Decision
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.rule_set.rule_set import KindRules
from rules_engine.rules.validation.evaluation import CompiledValidation
from rules_engine.rules.validation.value import Check
from tests.support.budgets import units_spent
from tests.support.evaluation import GPU, asks, check, cluster, compiled, request, validation

LOOP = "lists.range({}).all(x, x >= 0)"
FAILS = "dyn(object).missing == 1"


class Metered(Budget):
    """Budget that counts all work, whether its cost is refunded or not."""

    __slots__ = ("_left", "_spent", "done")

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._spent = 0
        self.done = 0
        super().__init__(limit)

    @property
    def left(self) -> int:
        return self._left

    @left.setter
    def left(self, left: int) -> None:
        self._spent = max(0, self._left - left)
        self.done += self._spent
        self._left = left

    def more(self) -> None:
        spent = self._spent
        try:
            super().more()
        except CostExceeded:
            self.done -= spent
            raise

    def rewind(self, mark: int) -> None:
        done = self.done
        super().rewind(mark)
        self.done = done


def with_programs(rules: RuleSet, change: Callable[[Program], Program]) -> RuleSet:
    """The validations with each variable's, condition's and check's program changed."""
    (group,) = rules.kinds_at(Endpoint.VALIDATE)
    changed = tuple(
        replace(
            rule,
            variables={path: replace(named, program=change(named.program)) for path, named in rule.variables.items()},
            conditions=tuple(replace(named, program=change(named.program)) for named in rule.conditions),
            checks=tuple(replace(made, expression=change(made.expression)) for made in rule.checks),
        )
        for rule in cast("tuple[CompiledValidation, ...]", group.rules)
    )
    return RuleSet((KindRules(group.kind, changed),))


def interpreted(program: Program) -> Program:
    """The program without generated code."""
    return replace(program, generated=None)


def given_up(program: Program) -> Program:
    """The program with generated code that does all its work and then stops."""
    generated = program.generated
    if generated is None:
        return program

    def run(activation: Mapping[str, object], budget: Budget) -> object:
        generated.run(activation, budget)
        raise EvaluationError("gives up")

    return replace(program, generated=replace(generated, run=run))


def decided(rules: RuleSet, budget: Budget) -> Decision:
    """The decision on some pod, within the budget."""
    return rules.validate(request(asks({GPU: 1})), cluster(), budget=lambda: budget)


@pytest.mark.parametrize(
    ("variables", "expression"),
    [
        ({"a": LOOP}, f"variables.a && {FAILS}"),
        ({"a": LOOP}, f"variables.a && {FAILS} || true"),
        ({"a": f"{LOOP} && {FAILS}"}, "variables.a || true"),
        ({"a": "lists.range({}).map(x, x).map(x, x)[-1] == 1"}, "variables.a || true"),
        ({"a": LOOP, "b": "variables.a", "c": "variables.a && variables.b"}, f"variables.c && {FAILS} || true"),
        ({"a": LOOP, "b": f"variables.a && {FAILS}", "c": "variables.b"}, "variables.c || variables.b || true"),
        ({"a": LOOP}, f"variables.size() == 1 && {FAILS} || true"),
    ],
    ids=["value", "absorbed", "error", "generated-error", "nested", "nested-error", "all-variables"],
)
def test_a_second_evaluation_does_not_refund_variables(variables: dict[str, str], expression: str) -> None:
    """Otherwise each rule could have variables that take the whole limit."""
    written = {name: text.format(10_000) for name, text in variables.items()}
    rules = compiled(*(validation(expression, name=f"v{n}", variables=written) for n in range(2)))
    quick, precise = Budget(), Budget()
    assert decided(rules, quick) == decided(with_programs(rules, interpreted), precise)
    assert units_spent(precise) > 2 * 10_000
    # The generated code counts loops ahead, a little more than the interpreter where an error ends them.
    assert units_spent(precise) <= units_spent(quick) <= 1.1 * units_spent(precise)


def test_variables_of_a_request_share_its_limit() -> None:
    rules = [
        validation(f"variables.a && {FAILS} || true", name=f"v{n}", variables={"a": LOOP.format(60_000)})
        for n in range(8)
    ]
    budget = Budget()
    decision = decided(compiled(*rules), budget)
    reasons = [step.reason for step in decision.trace]
    assert reasons[:3] == ["valid"] * 3
    assert reasons[-3:] == ["evaluation-error"] * 3
    assert budget.limit * 0.9 < units_spent(budget) <= budget.limit


def test_a_variable_that_exceeds_the_limit_is_located() -> None:
    variables = {"a": LOOP.format(60_000), "b": f"variables.a && {LOOP.format(60_000)}"}
    expression = "variables.b || true"
    [step] = decided(compiled(validation(expression, variables=variables)), Budget(300_000)).trace
    found = re.search(r"<expression>:1:(\d+): .*: the cost limit of 300000 for one request is used up", step.message)
    assert found is not None
    assert int(found[1]) > len(expression)


def test_extra_work_of_generated_code_is_bounded_too() -> None:
    """The interpreter fails at the first operand; generated code has evaluated the second one before."""
    rules = [validation(f"dyn(object).missing == {LOOP.format(20_000)} || true", name=f"v{n}") for n in range(8)]
    budget = Metered(100_000)
    decision = decided(compiled(*rules), budget)
    assert decision.trace[0].reason == "valid"
    assert decision.trace[-1].reason == "evaluation-error"
    assert budget.limit < budget.done <= 2 * budget.limit


@st.composite
def validations(draw: st.DrawFn) -> RuleSet:
    """Rules with costly variables that read each other and sometimes fail."""

    def written(names: list[str]) -> str:
        loops = [loop.format(draw(st.integers(0, 300))) for loop in (LOOP, "lists.range({}).exists(x, x == 70)")]
        read = [f"variables.{name}" for name in names]
        parts = draw(st.lists(st.sampled_from([*loops, *read, *read, FAILS, "true"]), min_size=1, max_size=3))
        return f" {draw(st.sampled_from(['&&', '||', '==']))} ".join(f"({part})" for part in parts[:2]) + "".join(
            f" || {part}" for part in parts[2:]
        )

    rules = []
    for place in range(draw(st.integers(1, 3))):
        variables: dict[str, str] = {}
        for name in "abc":
            variables[name] = written(list(variables))
        names = list(variables)
        checks: list[Check | str] = [check(written(names)) for _ in range(draw(st.integers(1, 3)))]
        conditions = {f"m{n}": written(names) for n in range(draw(st.integers(0, 2)))}
        rules.append(validation(*checks, name=f"v{place}", variables=variables, match_conditions=conditions))
    return compiled(*rules)


@given(validations())
def test_generated_code_that_stops_makes_no_request_cheaper(rules: RuleSet) -> None:
    """The interpreter starts again, but for the variables that are already known."""
    quick, precise = Budget(), Budget()
    one = decided(with_programs(rules, given_up), quick)
    assert one == decided(with_programs(rules, interpreted), precise)
    assert units_spent(quick) >= units_spent(precise)


@given(validations(), st.integers(10, 5_000), st.sampled_from([interpreted, given_up, lambda program: program]))
def test_a_request_does_no_more_work_than_for_twice_its_limit(
    rules: RuleSet, limit: int, change: Callable[[Program], Program]
) -> None:
    budget = Metered(limit)
    decided(with_programs(rules, change), budget)
    assert 0 <= units_spent(budget) <= limit
    assert budget.done <= 2 * limit
