"""Kubernetes' quantities (k8s.io/apiserver/pkg/cel/library/quantity.go).

mul, div and divInt follow kubernetes/kubernetes#135995; mul and div by a quantity are extensions of this project.
"""

import operator

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.values.functions import Library, parse_test
from rules_engine.language.cel.values.runtime_values import INT_MAX, INT_MIN
from rules_engine.language.cel.values.types import BOOL, DOUBLE, INT, QUANTITY, STRING
from rules_engine.model.kubernetes.quantity import MAX_NANOS, NANOS, Quantity, QuantityError

LIBRARY = Library()


@LIBRARY.function("quantity", STRING, gives=QUANTITY)
def parse_quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError:
        raise EvaluationError("the string is not a quantity") from None


LIBRARY.function("isQuantity", STRING, gives=BOOL)(parse_test(parse_quantity))


@LIBRARY.method("isInteger", QUANTITY, gives=BOOL, constant=True)
def is_integer(value: Quantity) -> bool:
    """Return True for an amount that Kubernetes stores as an integer (amount.go, AsInt64): not 1.0, nor 1000m."""
    return value.scale is not None and value.scale >= 0 and INT_MIN <= value.whole <= INT_MAX


@LIBRARY.method("asInteger", QUANTITY, gives=INT, constant=True)
def as_integer(value: Quantity) -> int:
    if is_integer(value):
        return value.whole
    raise EvaluationError("the quantity is not stored as an integer of 64 bits")


LIBRARY.method("asApproximateFloat", QUANTITY, gives=DOUBLE, constant=True)(lambda value: value.nanos / NANOS)
LIBRARY.function("sign", QUANTITY, gives=INT, constant=True)(lambda value: (value.nanos > 0) - (value.nanos < 0))


@LIBRARY.method("compareTo", QUANTITY, QUANTITY, gives=INT, constant=True)
def compare_to(left: Quantity, right: Quantity) -> int:
    return (left > right) - (left < right)


LIBRARY.method("isLessThan", QUANTITY, QUANTITY, gives=BOOL, constant=True)(operator.lt)
LIBRARY.method("isGreaterThan", QUANTITY, QUANTITY, gives=BOOL, constant=True)(operator.gt)


def _as_quantity(value: Quantity | int) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(value * NANOS, scale=0)


def _result(value: Quantity, scale: int | None) -> Quantity:
    """Return a result within the range of parsed quantities, so that repeated multiplication stays cheap."""
    if abs(value.nanos) > MAX_NANOS:
        raise EvaluationError("quantity out of range")
    return Quantity(value.nanos, value.format, scale)


def _sum(left: Quantity, right: Quantity, total: Quantity) -> Quantity:
    """Return a sum or difference with the scale at which Kubernetes stores it (quantity.go, amount.go: Add)."""
    if left.scale is None or right.scale is None:
        return _result(total, None)
    scale = min(left.scale, right.scale)
    if not left.nanos or not right.nanos:
        scale = right.scale if right.nanos else left.scale
    unit = 10 ** (9 + scale)
    is_int64 = all(INT_MIN <= each.nanos // unit <= INT_MAX for each in (left, right, total))
    return _result(total, scale if is_int64 else None)


def _product(value: Quantity) -> Quantity:
    """Return a product or quotient, which is an integer if it is whole."""
    return _result(value, 0 if value.is_whole else None)


@LIBRARY.method("add", QUANTITY, QUANTITY, gives=QUANTITY, constant=True)
@LIBRARY.method("add", QUANTITY, INT, gives=QUANTITY, constant=True)
def add(left: Quantity, right: Quantity | int) -> Quantity:
    right = _as_quantity(right)
    return _sum(left, right, left + right)


@LIBRARY.method("sub", QUANTITY, QUANTITY, gives=QUANTITY, constant=True)
@LIBRARY.method("sub", QUANTITY, INT, gives=QUANTITY, constant=True)
def sub(left: Quantity, right: Quantity | int) -> Quantity:
    right = _as_quantity(right)
    return _sum(left, right, left - right)


@LIBRARY.method("mul", QUANTITY, QUANTITY, gives=QUANTITY, constant=True, newer=True)
@LIBRARY.method("mul", QUANTITY, INT, gives=QUANTITY, constant=True, newer=True)
def mul(left: Quantity, right: Quantity | int) -> Quantity:
    return _product(left.times(_as_quantity(right)))


@LIBRARY.method("div", QUANTITY, QUANTITY, gives=QUANTITY, constant=True, newer=True)
@LIBRARY.method("div", QUANTITY, INT, gives=QUANTITY, constant=True, newer=True)
def div(left: Quantity, right: Quantity | int) -> Quantity:
    try:
        return _product(left.divided_by(_as_quantity(right)))
    except QuantityError:
        raise EvaluationError("division by zero") from None


MAX_DIGITS = 10
"""Largest number of digits after the point for div(). Quantities have nine."""


@LIBRARY.method("div", QUANTITY, INT, INT, gives=QUANTITY, constant=True, newer=True)
def div_rounded(left: Quantity, right: int, digits: int) -> Quantity:
    """Return the quotient, rounded half away from zero to a number of digits after the point."""
    if right == 0:
        raise EvaluationError("division by zero")
    if not 0 <= digits <= MAX_DIGITS:
        raise EvaluationError(f"the digits of a quotient are 0 to {MAX_DIGITS}")
    unit = 10 ** max(0, 9 - digits)
    divisor = abs(right) * unit
    nanos = (2 * abs(left.nanos) + divisor) // (2 * divisor) * unit
    return _product(Quantity(nanos if (left.nanos < 0) == (right < 0) else -nanos, left.format))


@LIBRARY.method("divInt", QUANTITY, INT, gives=QUANTITY, constant=True, newer=True)
def div_int(left: Quantity, right: int) -> Quantity:
    """Return the integer part of the quotient."""
    if right == 0:
        raise EvaluationError("division by zero")
    whole = abs(left.nanos) // (abs(right) * NANOS)
    return _product(Quantity.of(whole if (left.nanos < 0) == (right < 0) else -whole, left.format))
