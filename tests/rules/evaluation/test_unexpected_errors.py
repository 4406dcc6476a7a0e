"""Unexpected errors: the rule fails, not the request."""

import re

import pytest

from rules_engine.language.cel.scope import MAX_LEVELS
from rules_engine.model.kubernetes.quantity import MAX_NANOS, Format, Quantity, QuantityError
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import FailurePolicy
from rules_engine.rules.injection import evaluation as injections
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.ladder.counts import DeviceCounts
from rules_engine.rules.rule_set import context
from tests.support.evaluation import (
    GPU,
    MIG3,
    asks,
    check,
    cluster,
    container,
    injection,
    ladder,
    mutated,
    pod,
    validated,
    validation,
)


def broken(*_arguments: object) -> None:
    """Raise an unexpected error; its message stands for content of a pod."""
    raise ZeroDivisionError("secret")


POLICIES = [(FailurePolicy.FAIL, Action.DENY, False), (FailurePolicy.IGNORE, Action.IGNORE, True)]
MESSAGE = r"unexpected ZeroDivisionError at test_unexpected_errors.py:\d+$"


@pytest.mark.parametrize(("policy", "action", "allowed"), POLICIES)
def test_the_failure_policy_decides_where_a_ladder_breaks(
    policy: FailurePolicy, action: Action, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceCounts, "read", broken)
    decision = mutated(asks({MIG3: 1}), ladder(MIG3, GPU, failure_policy=policy), on=cluster({GPU: 1}))
    assert decision.allowed is allowed
    [step] = decision.trace
    assert step.action is action
    assert re.search(MESSAGE, step.message)
    assert decision.patch == ()


@pytest.mark.parametrize(("policy", "action", "allowed"), POLICIES)
def test_the_failure_policy_decides_where_an_injection_breaks(
    policy: FailurePolicy, action: Action, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injections._Calculation, "outcome", broken)
    rule = injection({"cpu": 1}, gpu_type=None, failure_policy=policy)
    decision = mutated(asks({GPU: 1}), rule)
    assert decision.allowed is allowed
    assert [step.action for step in decision.trace] == [action]
    assert "secret" not in decision.trace[0].message


@pytest.mark.parametrize(("policy", "action", "allowed"), POLICIES)
def test_the_failure_policy_decides_where_a_validation_breaks(
    policy: FailurePolicy, action: Action, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context.ExpressionScope, "holds", broken)
    decision = validated(asks({GPU: 1}), validation("true", failure_policy=policy))
    assert decision.allowed is allowed
    assert [step.action for step in decision.trace] == [action]
    assert "unexpected ZeroDivisionError" in decision.trace[0].message


@pytest.mark.parametrize(("policy", "action", "allowed"), POLICIES)
def test_the_failure_policy_decides_where_matching_breaks(
    policy: FailurePolicy, action: Action, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context.ExpressionScope, "holds", broken)
    rule = validation("true", failure_policy=policy, match_conditions={"any": "true"})
    decision = validated(asks({GPU: 1}), rule)
    assert decision.allowed is allowed
    assert [step.action for step in decision.trace] == [action]


def test_the_message_stands_in_for_a_message_expression_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context.ExpressionScope, "value", broken)
    decision = validated(asks({GPU: 1}), validation(check("false", "no", "'never'")))
    assert [step.message for step in decision.trace] == ["no"]


def chained(count: int) -> dict[str, str]:
    """Variables each of which reads the one before it."""
    return {"v0": "1"} | {f"v{place}": f"variables.v{place - 1} + 1" for place in range(1, count)}


def test_what_check_passes_evaluates_however_long_the_chain() -> None:
    """The longest chain that compiles, with an expression that needs the interpreter at every level."""
    passed = 0
    for count in range(1, MAX_LEVELS):
        rule = validation(f"variables.v{count - 1} == {count}", variables=chained(count))
        _, problems = compile_rules([rule])
        if problems:
            break
        passed = count
    assert 30 < passed < 100
    decision = validated(asks({GPU: 1}), validation(f"variables.v{passed - 1} == {passed}", variables=chained(passed)))
    assert decision.allowed, decision.trace
    nested = f"[1].map(e, {'[1].map(e, ' * 40}e / (variables.v{passed // 3} - variables.v{passed // 3}){')' * 40})"
    rule = validation(f"{nested} == [] || true", variables=chained(passed // 3 + 1))
    decision = validated(asks({GPU: 1}), rule)
    assert decision.allowed, decision.trace


def bound(levels: int, before: str) -> str:
    """A cel.bind nested `levels` deep, whose value is as deep again."""
    deep = "".join(f"[1].all(x{n}, " for n in range(levels)) + before + ")" * levels
    use = "".join(f"[1].exists(y{n}, " for n in range(levels)) + "a" + ")" * levels
    return f"cel.bind(a, {deep}, object.metadata.name == 'none' || {use})"


@pytest.mark.parametrize("levels", [15, 24, 40])
def test_what_check_passes_evaluates_where_binds_are_nested(levels: int) -> None:
    """A bind's value is evaluated at its name: the levels of both count for expressions that read the variable."""
    variables: dict[str, str] = {}
    last, passed = "(dyn(object.spec).none == 1 || true)", 0
    for count in range(10):
        variables[f"v{count}"], last = bound(levels, last), f"variables.v{count}"
        rule = validation(last, variables=variables)
        _, problems = compile_rules([rule])
        if problems:
            assert {problem.code for problem in problems} == {"cel-too-deep"}
            break
        passed += 1
        decision = validated(asks({GPU: 1}), rule)
        assert decision.allowed, decision.trace
    assert 1 <= passed < 10


def test_a_chain_of_300_variables_is_rejected_at_load() -> None:
    _, problems = compile_rules([validation("variables.v299 == 300", variables=chained(300))])
    assert problems
    assert {problem.code for problem in problems} == {"cel-too-deep"}
    message = f"with the variables that it reads the expression is nested more than {MAX_LEVELS} levels deep"
    assert problems[0].message == message


def test_all_variables_at_once_are_as_deep_as_the_deepest() -> None:
    """`variables` as a whole stands for all of them."""
    _, problems = compile_rules([validation("variables == {}", variables=chained(48))])
    assert {problem.code for problem in problems} == {"cel-too-deep"}


@pytest.mark.parametrize("expression", ["variables.v299 == 300", "variables == {}"])
def test_a_chain_of_variables_is_too_deep_once(expression: str) -> None:
    _, problems = compile_rules([validation(expression, variables=chained(300) | {"other": "1 + ''"})])
    assert [problem.code for problem in problems] == ["cel-too-deep", "cel-type"]


HUGE = "9" * 63 + "E"


def test_amounts_that_are_too_large_are_a_malformed_pod() -> None:
    decision = mutated(asks({GPU: 1, "memory": HUGE}))
    assert not decision.allowed
    assert decision.refusal is not None
    assert decision.refusal.code == 422
    assert "/spec/containers/0/resources/requests/memory" in decision.refusal.message


def test_amounts_that_add_up_to_too_much_are_a_malformed_pod() -> None:
    most = "9" * 50
    both = pod(container("a", {GPU: 1, MIG3: most}), container("b", {GPU: 1, MIG3: f"9{most}"}))
    decision = mutated(both, ladder(MIG3, GPU), on=cluster({GPU: 1}))
    assert decision.refusal is not None
    assert (decision.refusal.code, decision.allowed) == (422, False)
    assert decision.refusal.message == "the pod is malformed: the sum of the amounts exceeds 1e51"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("nanos", [MAX_NANOS, MAX_NANOS - 1, MAX_NANOS - 10**9, MAX_NANOS // 1024 * 1024, 2**199])
def test_any_written_quantity_can_be_read(nanos: int, form: Format, sign: int) -> None:
    amount = Quantity(sign * nanos, form)
    assert Quantity.parse(str(amount)) == amount


def test_larger_quantities_are_neither_read_nor_written() -> None:
    with pytest.raises(QuantityError, match="the sum of the amounts exceeds 1e51"):
        str(Quantity(MAX_NANOS + 1))
    with pytest.raises(QuantityError, match="too large: an amount is at most 1e51"):
        Quantity.parse("1.1e51")
    assert Quantity.parse("1e51") == Quantity(MAX_NANOS)
