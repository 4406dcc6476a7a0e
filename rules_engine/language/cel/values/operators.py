"""Arithmetic and comparison of run-time values, with CEL's ranges (CEL specification, "Numeric Values")."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from rules_engine.language.cel.budget import (
    CHARACTERS_PER_UNIT,
    MAX_RESULT_CHARACTERS,
    MAX_RESULT_ITEMS,
    Budget,
    CostExceeded,
    EvaluationError,
)
from rules_engine.language.cel.values.functions import Overload, no_overload
from rules_engine.language.cel.values.runtime_values import (
    INT_MAX,
    INT_MIN,
    NUMBER_CLASSES,
    UINT_MAX,
    DefaultMap,
    Duration,
    Timestamp,
    Uint,
    charge_key,
    check_int,
    compare_numbers,
    equals,
    is_map,
)
from rules_engine.language.cel.values.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
)

# 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999999999Z (CEL specification, "Timestamp")
TIMESTAMP_MIN = -62_135_596_800 * 10**9
TIMESTAMP_MAX = 253_402_300_800 * 10**9 - 1


def int_result(value: int) -> int:
    """Return an int result. Raises EvaluationError on overflow."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def uint_result(value: int) -> Uint:
    """Return a uint result. Raises EvaluationError on overflow."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def timestamp_result(nanos: int) -> Timestamp:
    """Return a timestamp result. Raises EvaluationError outside of the years 1 to 9999."""
    if TIMESTAMP_MIN <= nanos <= TIMESTAMP_MAX:
        return Timestamp(nanos)
    raise EvaluationError("timestamp out of range")


def duration_result(nanos: int) -> Duration:
    """Return a duration result. Raises EvaluationError beyond 64 bits of nanoseconds, 292 years, as in cel-go."""
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise EvaluationError("duration out of range")


def charge_text(budget: Budget, length: int) -> None:
    """Count the characters of a string before it is made. Raises CostExceeded if there are too many."""
    budget.spend(length // CHARACTERS_PER_UNIT)
    if length > MAX_RESULT_CHARACTERS:
        raise CostExceeded(f"a string result has more than {MAX_RESULT_CHARACTERS} characters")


def add(left: Any, right: Any, budget: Budget) -> object:
    kind, other = type(left), type(right)
    if kind is other:
        if kind is str or kind is bytes:
            charge_text(budget, len(left) + len(right))
            return left + right
        if kind is list:
            length = len(left) + len(right)
            budget.spend(length)
            if length > MAX_RESULT_ITEMS:
                raise CostExceeded(f"a list result has more than {MAX_RESULT_ITEMS} elements")
            return left + right
        if kind is int:
            return int_result(check_int(left) + check_int(right))
        if kind is Uint:
            return uint_result(int(left) + int(right))
        if kind is float:
            return left + right
        if kind is Duration:
            return duration_result(left.nanos + right.nanos)
    elif {kind, other} == {Timestamp, Duration}:
        return timestamp_result(left.nanos + right.nanos)
    raise no_overload("+", left, right)


def subtract(left: Any, right: Any, _budget: Budget) -> object:
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return int_result(check_int(left) - check_int(right))
        if kind is Uint:
            return uint_result(int(left) - int(right))
        if kind is float:
            return left - right
        if kind is Duration or kind is Timestamp:
            return duration_result(left.nanos - right.nanos)
    elif kind is Timestamp and other is Duration:
        return timestamp_result(left.nanos - right.nanos)
    raise no_overload("-", left, right)


def multiply(left: Any, right: Any, _budget: Budget) -> object:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return int_result(check_int(left) * check_int(right))
        if kind is Uint:
            return uint_result(int(left) * int(right))
        if kind is float:
            return left * right
    raise no_overload("*", left, right)


def divide(left: Any, right: Any, _budget: Budget) -> object:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return int_result(integer_quotient(check_int(left), check_int(right)))
        if kind is Uint:
            return uint_result(integer_quotient(left, right))
        if kind is float:
            return _divide_doubles(left, right)
    raise no_overload("/", left, right)


def integer_quotient(left: int, right: int) -> int:
    """Return the quotient rounded towards zero, unlike Python's. Raises EvaluationError."""
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide_doubles(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Any, right: Any, _budget: Budget) -> object:
    kind = type(left)
    if kind is type(right) and (kind is int or kind is Uint):
        if right == 0:
            raise EvaluationError("modulus by zero")
        if kind is int:
            # For the smallest int and -1 the quotient overflows, and in cel-go the remainder does, too.
            int_result(integer_quotient(check_int(left), check_int(right)))
        remainder = abs(int(left)) % abs(int(right))
        return Uint(remainder) if kind is Uint else check_int(-remainder if left < 0 else remainder)
    raise no_overload("%", left, right)


def negate(value: Any) -> object:
    if type(value) is int:
        return int_result(-check_int(value))
    if type(value) is float:
        return -value
    raise no_overload("-", value)


_ORDERED = frozenset({str, bytes, bool, Timestamp, Duration})


def _compare_values(operator: str, left: Any, right: Any, budget: Budget) -> int:
    kind, other = type(left), type(right)
    if kind in NUMBER_CLASSES and other in NUMBER_CLASSES:
        order = compare_numbers(left, right)
        if order is None:
            raise EvaluationError("NaN cannot be ordered")
        return order
    if kind is other and kind in _ORDERED:
        if kind is str or kind is bytes:
            budget.spend(min(len(left), len(right)) // CHARACTERS_PER_UNIT)
        return int(left > right) - int(left < right)
    raise no_overload(operator, left, right)


def less(left: Any, right: Any, budget: Budget) -> bool:
    return _compare_values("<", left, right, budget) < 0


def less_equal(left: Any, right: Any, budget: Budget) -> bool:
    return _compare_values("<=", left, right, budget) <= 0


def greater(left: Any, right: Any, budget: Budget) -> bool:
    return _compare_values(">", left, right, budget) > 0


def greater_equal(left: Any, right: Any, budget: Budget) -> bool:
    return _compare_values(">=", left, right, budget) >= 0


def unequal(left: object, right: object, budget: Budget) -> bool:
    return not equals(left, right, budget)


def is_in(element: Any, container: Any, budget: Budget) -> bool:
    """Return the value of the operator `in`: an element of a list, or a key of a map."""
    if type(container) is list:
        budget.spend(len(container))
        return any(equals(element, item, budget) for item in container)
    if is_map(container):
        charge_key(element, budget)
        if type(container) is DefaultMap:
            return type(element) is str and element in container
        exists, _ = find_key(container, element)
        return exists
    raise no_overload("in", element, container)


def find_key(mapping: Any, key: Any) -> tuple[bool, Any]:
    """Find a key of a map. A double finds the int or uint that it equals; keys of other types find nothing."""
    kind = type(key)
    if kind is str or kind is bool or kind in NUMBER_CLASSES:
        if kind is float and not key.is_integer():
            return False, None
        try:
            return True, mapping[key]
        except KeyError:
            return False, None
    return False, None


BINARY: dict[str, Callable[[Any, Any, Budget], object]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": modulo,
    "<": less,
    "<=": less_equal,
    ">": greater,
    ">=": greater_equal,
    "==": equals,
    "!=": unequal,
    "in": is_in,
}


def _operator_signatures() -> Mapping[str, tuple[Overload, ...]]:
    def overload(operator: str, left: Type, right: Type, gives: Type) -> Overload:
        return Overload(
            name=operator, method=False, parameters=(left, right), result=gives, implementation=BINARY[operator]
        )

    operands = {
        "+": (INT, UINT, DOUBLE, STRING, BYTES, list_of(A), DURATION),
        "-": (INT, UINT, DOUBLE, DURATION),
        "*": (INT, UINT, DOUBLE),
        "/": (INT, UINT, DOUBLE),
        "%": (INT, UINT),
    }
    signatures = {
        operator: [overload(operator, kind, kind, kind) for kind in kinds] for operator, kinds in operands.items()
    }
    signatures["+"] += [overload("+", TIMESTAMP, DURATION, TIMESTAMP), overload("+", DURATION, TIMESTAMP, TIMESTAMP)]
    signatures["-"] += [overload("-", TIMESTAMP, DURATION, TIMESTAMP), overload("-", TIMESTAMP, TIMESTAMP, DURATION)]
    numbers = [(left, right) for left in (INT, UINT, DOUBLE) for right in (INT, UINT, DOUBLE)]
    ordered = [*numbers, *((kind, kind) for kind in (STRING, BYTES, BOOL, TIMESTAMP, DURATION))]
    for operator in ("<", "<=", ">", ">="):
        signatures[operator] = [overload(operator, left, right, BOOL) for left, right in ordered]
    for operator in ("==", "!="):
        signatures[operator] = [overload(operator, A, A, BOOL)]
    signatures["in"] = [overload("in", A, list_of(A), BOOL), overload("in", A, map_of(A, B), BOOL)]
    return {operator: tuple(overloads) for operator, overloads in signatures.items()}


SIGNATURES = _operator_signatures()
"""Overloads of the operators, for the checker."""
