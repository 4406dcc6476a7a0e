"""Numbers to and from text, as in Go's strconv and fmt."""

import math
import re

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.values.runtime_values import INT_MAX, INT_MIN, UINT_MAX, Uint

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_INT = re.compile(r"[+-]?[0-9]{1,40}")
_UINT = re.compile(r"[0-9]{1,40}")
# Possessive, for linear time: digits without a point may be divided between [0-9]+ and [0-9]* in many ways.
_DOUBLE = re.compile(r"(?i)[+-]?(?:(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)")


def parse_bool(text: str) -> bool:
    """Parse a bool as strconv.ParseBool. Raises EvaluationError."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise EvaluationError("the string is not a bool")


def parse_int(text: str) -> int:
    """Parse an int as strconv.ParseInt with base 10, without spaces and underscores. Raises EvaluationError."""
    # The fast path for most texts; int() alone accepts spaces, underscores and digits of other scripts.
    if len(text) < 19 and text.isdecimal() and text.isascii():
        return int(text)
    if _INT.fullmatch(text) and INT_MIN <= (value := int(text)) <= INT_MAX:
        return value
    raise EvaluationError("the string is not an int")


def parse_uint(text: str) -> Uint:
    """Parse a uint as strconv.ParseUint with base 10. Raises EvaluationError."""
    if _UINT.fullmatch(text) and (value := int(text)) <= UINT_MAX:
        return Uint(value)
    raise EvaluationError("the string is not a uint")


def parse_double(text: str) -> float:
    """Parse a double as strconv.ParseFloat, except for hexadecimal ones. Raises EvaluationError."""
    if _DOUBLE.fullmatch(text):
        return float(text)
    raise EvaluationError("the string is not a double")


def to_int(value: float) -> int:
    """Convert a double, rounded towards zero, or a uint. Raises EvaluationError."""
    if type(value) is float:
        # The ends are refused, since larger numbers are rounded to them as doubles (cel-go, doubleToInt64Checked).
        if INT_MIN < value < INT_MAX:
            return int(value)
    elif value <= INT_MAX:
        return int(value)
    raise EvaluationError("integer out of range")


def to_uint(value: float) -> Uint:
    """Convert a double, rounded towards zero, or an int. Raises EvaluationError."""
    if 0 <= value < UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer out of range")


def double_text(value: float) -> str:
    """Return fmt's %g: the shortest digits that parse as the same double, with an exponent below 1e-4 and from 1e6."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    # repr() has the same shortest digits; the value is 0.DIGITS × 10^point.
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    sign = "-" if value < 0 else ""
    if point < -3 or point > 6:
        decimals = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{decimals}e{'-' if point < 1 else '+'}{abs(point - 1):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    text = f"{digits[:point].ljust(point, '0')}.{digits[point:]}".removesuffix(".")
    return f"{sign}{text}"
