"""Search for expressions on which generated code, the interpreter and Google's engine disagree.

`make fuzz` searches for a given time, a test in a few examples. Google's engine is cel-expr-python from PyPI, on which
the project does not depend: without it, generated code and the interpreter are compared.
"""

import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from rules_engine.language.cel import Budget, CelProblems, Duration, EvaluationError, Optional, Timestamp
from rules_engine.language.cel.program import Program
from rules_engine.language.cel.values.runtime_values import INT_MAX, INT_MIN, KeyedMap, Uint
from tests.language.cel.conformance import program, same
from tests.language.cel.expressions import ENVIRONMENT, activations, expressions

BATCH = 100
"""Examples between two checks of the time."""

DEVIATIONS = re.compile(r"string\(.*duration\(|timestamp\(.* - .*timestamp\(|\.lastIndexOf\(")
"""Expressions on which Google's engine for C++ differs from cel-go, which this engine follows: it writes -1.500s for
-1.5s, and its lastIndexOf differs."""

Google = Callable[[str, Mapping[str, Any]], tuple[bool, Any]]
"""(True, an expression's value with these variables), or (False, None) without a value that Python can represent."""


def run(seconds: float, seed: int) -> list[str]:
    """Search for about `seconds` and return the shrunk cases."""
    end = time.monotonic() + seconds
    failures: list[str] = []
    while time.monotonic() < end:
        failure = search(BATCH, seed)
        if failure is not None and failure not in failures:
            failures.append(failure)
        seed += 1
    return failures


def search(examples: int, seed: int, disagrees: Callable[[str, Any], str | None] | None = None) -> str | None:
    """Return the smallest case that Hypothesis finds in so many examples, or None."""
    judge = disagrees or disagreement
    found: list[str] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(expressions(), activations())
    def agree(expression: str, activation: Any) -> None:
        case = judge(expression, activation)
        if case is not None:
            found.append(case)
            raise AssertionError(case)

    try:
        agree()
    except AssertionError:
        # The last failure is the shrunk one, which Hypothesis runs once more.
        return found[-1]
    return None


def disagreement(expression: str, activation: Mapping[str, Any]) -> str | None:
    """Describe a case in which generated code or Google's engine disagrees with the interpreter, or return None."""
    try:
        compiled = program(expression, ENVIRONMENT)
    except CelProblems:
        return None
    failure: EvaluationError | None = None
    value: Any = None
    try:
        value = compiled.interpret(activation, Budget())
    except EvaluationError as error:
        failure = error
    case = f"{expression}\n  with {activation!r}\n  interpreter: {failure or repr(value)}"
    found, generated = _generated(compiled, activation)
    if found and (failure is not None or not same(generated, value)):
        return f"{case}\n  generated: {generated!r}"
    engine = google()
    if failure is None and engine is not None and not DEVIATIONS.search(expression):
        known, plain = _plain(value)
        found, other = engine(expression, activation) if known else (False, None)
        if found and not _alike(plain, other):
            return f"{case}\n  Google's engine: {other!r}"
    return None


def _generated(compiled: Program, activation: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return (True, the value of generated code), or (False, None) if it leaves the case to the interpreter."""
    if compiled.generated is None:
        return False, None
    try:
        return True, compiled.generated.run(activation, Budget())
    except Exception:
        return False, None


@cache
def google(*names: str) -> Google | None:
    """Return Google's engine with the variables of ENVIRONMENT and some more, or None if it is not installed."""
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings
    except ImportError:
        return None
    environment = cel.NewEnv(
        variables=dict.fromkeys((*ENVIRONMENT.variables, *names), cel.Type.DYN),
        extensions=[
            ext_bindings.ExtBindings(),
            ext_encoders.ExtEncoders(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
        ],
    )

    def evaluate(expression: str, activation: Mapping[str, Any]) -> tuple[bool, Any]:
        if not _passable(activation):
            return False, None
        try:
            found = environment.compile(expression).eval(data=activation)
            return (False, None) if found.type() == cel.Type.ERROR else (True, found.plain_value())
        except (RuntimeError, TypeError, ValueError, OverflowError):
            # Expressions that do not compile there, and values that it cannot convert, such as optionals.
            return False, None

    return evaluate


def _passable(value: Any) -> bool:
    """Return whether Google's engine accepts a value: its ints have 64 bits."""
    if isinstance(value, Mapping):
        return all(map(_passable, value.values()))
    if isinstance(value, list):
        return all(map(_passable, value))
    return not isinstance(value, int) or INT_MIN <= value <= INT_MAX


def _plain(value: Any) -> tuple[bool, Any]:
    """Return (True, the value as Google's engine converts it), or False if the conversion is not exact."""
    if isinstance(value, list):
        parts = [_plain(item) for item in value]
        return all(known for known, _ in parts), [part for _, part in parts]
    if isinstance(value, KeyedMap | Optional):
        return False, None
    if isinstance(value, Mapping):
        entries = {key: _plain(item) for key, item in value.items()}
        return all(known for known, _ in entries.values()), {key: part for key, (_, part) in entries.items()}
    if isinstance(value, Timestamp):
        exact = value.nanos % 1000 == 0
        return exact, datetime.fromtimestamp(0, UTC) + timedelta(microseconds=value.nanos // 1000)
    if isinstance(value, Duration):
        return value.nanos % 1000 == 0, timedelta(microseconds=value.nanos // 1000)
    return value is None or isinstance(value, bool | int | Uint | float | str | bytes), value


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, list):
        return isinstance(two, list) and len(one) == len(two) and all(map(_alike, one, two))
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(_alike(one[key], two[key]) for key in one)
    if isinstance(one, float) and isinstance(two, float):
        return one == two or (math.isnan(one) and math.isnan(two))
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    return bool(one == two) and (type(one) in (int, Uint)) == (type(two) is int)
