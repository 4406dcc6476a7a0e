"""Evaluation of an expression by both evaluators, for tests."""

from typing import Any

from rules_engine.language.cel import (
    Budget,
    CelProblems,
    Environment,
    EvaluationError,
    Program,
    compile_expression,
    types,
)
from rules_engine.model.problems.source import SourceText
from tests.language.cel.conformance import program, same


def environment(**variables: Any) -> Environment:
    """Return an environment in which these variables are dyn."""
    return Environment(dict.fromkeys(variables, types.DYN))


def outcome(run: Any, variables: dict[str, Any], budget: Budget | None = None) -> tuple[str, Any]:
    """Return "value" and the value, or "error" and the error with its location."""
    try:
        return "value", run(variables, budget or Budget())
    except EvaluationError as error:
        return "error", str(error)


def both(compiled: Program, variables: dict[str, Any]) -> tuple[str, Any]:
    """Return the outcome of evaluate() and interpret(), which must be the same."""
    quick, precise = outcome(compiled.evaluate, variables), outcome(compiled.interpret, variables)
    assert quick[0] == precise[0]
    assert same(quick[1], precise[1])
    return quick


def evaluate(expression: str, **variables: Any) -> Any:
    """Return the value of a checked expression."""
    result, value = both(program(expression, environment(**variables)), variables)
    assert result == "value", value
    return value


def failure(expression: str, **variables: Any) -> str:
    """Return the error of a checked expression, as line:column: message."""
    result, value = both(program(expression, environment(**variables)), variables)
    assert result == "error", value
    return str(value).removeprefix("<expression>:")


def unchecked(expression: str, **variables: Any) -> Any:
    """Return the value or the error of an unchecked expression."""
    return both(program(expression, environment(**variables), checked=False), variables)[1]


def problems(expression: str, env: Environment) -> list[str]:
    """Return the problems of an expression, each as line:column: message [code]."""
    try:
        compile_expression(SourceText.inline(expression), env)
    except CelProblems as error:
        return [str(problem).removeprefix("<expression>:").replace(" error:", "") for problem in error.problems]
    return []
