"""Mathematics (cel-go, ext/math.go)."""

import math
import operator
from collections.abc import Callable
from typing import Any

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.values.functions import Library, no_overload
from rules_engine.language.cel.values.operators import int_result, uint_result
from rules_engine.language.cel.values.runtime_values import INT_MIN, NUMBER_CLASSES, UINT_MAX, Uint, compare_numbers
from rules_engine.language.cel.values.types import BOOL, DOUBLE, DYN, INT, UINT

LIBRARY = Library()

MAX_ARGUMENTS = 8
"""Arguments of math.greatest and math.least; a list may have any number of elements."""


def _extreme_number(name: str, wanted: int) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        if len(values) == 1 and type(values[0]) is list:
            values = tuple(values[0])
            if not values:
                raise EvaluationError(f"{name}() of an empty list")
        if any(type(value) not in NUMBER_CLASSES for value in values):
            raise no_overload(f"{name}()", *values)
        best = values[0]
        for value in values[1:]:
            if compare_numbers(value, best) == wanted:
                best = value
        return best

    return extreme


_GREATEST = _extreme_number("math.greatest", 1)
_LEAST = _extreme_number("math.least", -1)
for _count in range(1, MAX_ARGUMENTS + 1):
    LIBRARY.function("math.greatest", *[DYN] * _count, gives=DYN)(_GREATEST)
    LIBRARY.function("math.least", *[DYN] * _count, gives=DYN)(_LEAST)


def _rounding_function(step: Callable[[float], float]) -> Callable[[float], float]:
    """Return the rounding function. It keeps the sign of zero, infinities and NaN."""

    def round_value(value: float) -> float:
        return math.copysign(float(step(value)), value) if math.isfinite(value) else value

    return round_value


def _round_half_away(value: float) -> float:
    """Round halves away from zero, unlike Python's round(), which rounds them to even."""
    whole_part = math.floor(abs(value))
    return whole_part + (abs(value) - whole_part >= 0.5)


LIBRARY.function("math.ceil", DOUBLE, gives=DOUBLE)(_rounding_function(math.ceil))
LIBRARY.function("math.floor", DOUBLE, gives=DOUBLE)(_rounding_function(math.floor))
LIBRARY.function("math.round", DOUBLE, gives=DOUBLE)(_rounding_function(_round_half_away))
LIBRARY.function("math.trunc", DOUBLE, gives=DOUBLE)(_rounding_function(math.trunc))
LIBRARY.function("math.isNaN", DOUBLE, gives=BOOL)(math.isnan)
LIBRARY.function("math.isInf", DOUBLE, gives=BOOL)(math.isinf)
LIBRARY.function("math.isFinite", DOUBLE, gives=BOOL)(math.isfinite)
LIBRARY.function("math.abs", DOUBLE, gives=DOUBLE)(abs)
LIBRARY.function("math.abs", INT, gives=INT)(lambda value: int_result(abs(value)))
LIBRARY.function("math.abs", UINT, gives=UINT)(lambda value: value)
LIBRARY.function("math.sign", INT, gives=INT)(lambda value: (value > 0) - (value < 0))
LIBRARY.function("math.sign", UINT, gives=UINT)(lambda value: Uint(value > 0))


@LIBRARY.function("math.sign", DOUBLE, gives=DOUBLE)
def sign_double(value: float) -> float:
    return value if math.isnan(value) else float((value > 0) - (value < 0))


@LIBRARY.function("math.sqrt", DOUBLE, gives=DOUBLE)
@LIBRARY.function("math.sqrt", INT, gives=DOUBLE)
@LIBRARY.function("math.sqrt", UINT, gives=DOUBLE)
def sqrt(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def _uint_operation(operation: Callable[[int, int], int]) -> Callable[[int, int], Uint]:
    """Return the operation on uints, of which Python's makes an int."""
    return lambda left, right: Uint(operation(left, right))


for _name, _operation in (("bitAnd", operator.and_), ("bitOr", operator.or_), ("bitXor", operator.xor)):
    LIBRARY.function(f"math.{_name}", INT, INT, gives=INT)(_operation)
    LIBRARY.function(f"math.{_name}", UINT, UINT, gives=UINT)(_uint_operation(_operation))
LIBRARY.function("math.bitNot", INT, gives=INT)(operator.invert)
LIBRARY.function("math.bitNot", UINT, gives=UINT)(lambda value: uint_result(UINT_MAX - value))


def _signed_int(bits: int) -> int:
    """Return the int with these 64 bits."""
    bits &= UINT_MAX
    return bits + 2 * INT_MIN if bits > UINT_MAX // 2 else bits


def _shift_amount(amount: int) -> int:
    """Return the amount, at most 64: no bit is left after more. Raises EvaluationError for a negative one."""
    if amount < 0:
        raise EvaluationError("the shift is negative")
    return min(amount, 64)


@LIBRARY.function("math.bitShiftLeft", INT, INT, gives=INT)
def shift_left_int(value: int, amount: int) -> int:
    return _signed_int(value << _shift_amount(amount))


@LIBRARY.function("math.bitShiftLeft", UINT, INT, gives=UINT)
def shift_left_uint(value: Uint, amount: int) -> Uint:
    return Uint(value << _shift_amount(amount) & UINT_MAX)


@LIBRARY.function("math.bitShiftRight", INT, INT, gives=INT)
def shift_right_int(value: int, amount: int) -> int:
    """Shift the bits without sign extension (cel-go, bitShiftRightIntInt)."""
    return _signed_int((value & UINT_MAX) >> _shift_amount(amount))


@LIBRARY.function("math.bitShiftRight", UINT, INT, gives=UINT)
def shift_right_uint(value: Uint, amount: int) -> Uint:
    return Uint(value >> _shift_amount(amount))
