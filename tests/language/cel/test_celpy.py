"""Comparison with cel-python's interpreter, for expressions that both support.

Generated expressions avoid its known deviations: has(x.y.z) is false if y is missing (CEL: an error); values of
different types cannot be compared (CEL: they are unequal); int(" 12 ") is a number; size(null) is 0; the result of + of
strings has no contains().
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.cel import Budget, Environment, EvaluationError, types
from tests.language.cel.conformance import program
from tests.language.cel.expressions import Expressions

VARIABLES: dict[str, Any] = {"object": {"a": "x", "n": 3, "items": [1, 2, 3], "names": ["a", "bb"], "flag": True}}


class Plain(Expressions):
    """Expressions of fitting types only, in the part of the language that cel-python supports."""

    def write(self, kind: str, depth: int, names: tuple[str, ...] = ()) -> str:
        method: Callable[[int, tuple[str, ...]], str] = getattr(self, f"_{kind}")
        return method(depth, names)

    def _bool(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["true", "false", "object.flag", "has(object.a)", "has(object.b)"]
        options += ["({int} == {int})", "({string} != {string})", "({bool} && {bool})", "({bool} || {bool})", "!{bool}"]
        options += ["({int} < {int})", "({int} >= {int})", "({string} <= {string})", "({int} in {list})"]
        options += ["{list}.all(x, {bool:x})", "{list}.exists(x, {bool:x})", "{list}.exists_one(x, {bool:x})"]
        options += ["{string}.startsWith({string})", "object.a.contains({string})", "{string}.endsWith({string})"]
        options += ["({bool} ? {bool} : {bool})", "{string}.matches('^[a-b]+$')", "({list} == {list})"]
        return self._of(options, depth, names)

    def _int(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["0", "1", "7", "-3", "object.n", *names, *names]
        options += ["({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})"]
        options += ["size({list})", "size({string})", "{list}[0]", "({bool} ? {int} : {int})", "int('4')"]
        return self._of(options, depth, names)

    def _string(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["''", "'a'", "'é'", "object.a", "object.names[1]", "({string} + {string})", "string({int})"]
        return self._of(options, depth, names)

    def _list(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["[]", "[1, 2]", "object.items", "[{int}]", "({list} + {list})", "{list}.map(x, {int:x})"]
        options += ["{list}.filter(x, {bool:x})"]
        return self._of(options, depth, names)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Callable[[str], tuple[bool, Any]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import celpy
        from celpy.adapter import json_to_cel
        from celpy.evaluation import CELEvalError

        engine = celpy.Environment()
        activation = {name: json_to_cel(value) for name, value in VARIABLES.items()}

        def evaluate(expression: str) -> tuple[bool, Any]:
            try:
                return True, engine.program(engine.compile(expression)).evaluate(activation)
            except (CELEvalError, IndexError):
                # IndexError is a deviation: an error inside of an error, as in 0 / (0 * [][0]).
                return False, None

        yield evaluate


@st.composite
def plain(draw: st.DrawFn) -> str:
    writer = Plain(lambda options: draw(st.sampled_from(options)))
    return writer.write(draw(st.sampled_from(("bool", "int", "string", "list"))), 3)


@given(expression=plain())
def test_cel_python_agrees(oracle: Callable[[str], tuple[bool, Any]], expression: str) -> None:
    compiled = program(expression, Environment({"object": types.DYN}))
    try:
        value: Any = compiled.evaluate(VARIABLES, Budget())
    except EvaluationError:
        value, fails = None, True
    else:
        fails = False
    has_value, other = oracle(expression)
    if fails:
        # Python's own arithmetic does not overflow at 64 bits.
        assert not has_value or "*" in expression or "+" in expression
    else:
        assert has_value, expression
        assert value == other, expression
