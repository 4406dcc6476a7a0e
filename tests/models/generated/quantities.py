"""Texts for the model of quantities, and the comparison of its results with the engine's and with CEL."""

from fractions import Fraction
from functools import cache
from typing import Any

from hypothesis import strategies as st

from rules_engine.language.cel import Program
from rules_engine.model.kubernetes.quantity import Format, Quantity, QuantityError
from tests.language.cel.conformance import program
from tests.language.cel.evaluating import both, environment
from tests.models.quantities import BINARY, DECIMAL, Amount, in_64_bits, is_integer, read, total, towards_zero, write

FAMILIES = {Format.DECIMAL_SI: "decimal", Format.BINARY_SI: "binary", Format.DECIMAL_EXPONENT: "exponent"}

LARGEST = 10**25
"""Products of larger amounts may be out of range: an amount is at most 1e51."""


def cases() -> st.SearchStrategy[Any]:
    """Return a strategy of two texts, mostly quantities, and a count."""
    return st.tuples(_texts(), _texts(), st.integers(-5, 5) | st.integers(-(10**9), 10**9))


def check(case: tuple[str, str, int]) -> None:
    """Compare the engine's results with the model's."""
    left, right, count = case
    a, b = read(left), read(right)
    if any(found is not None and abs(found.value) > LARGEST for found in (a, b)):
        return
    ours = [_parsed(text) for text in (left, right)]
    assert [found is None for found in ours] == [a is None, b is None]
    assert _cel("isQuantity(a)", left, right, count) == (a is not None)
    if a is None or b is None:
        return
    first, second = ours
    assert first is not None
    assert second is not None
    for found, expected in (
        (first, a),
        (first + second, total(a, b)),
        (first - second, total(a, Amount(-b.value, b.family))),
        (first * count, Amount(a.value * count, a.family)),
        (first.times(second), Amount(towards_zero(a.value * b.value), a.family)),
    ):
        assert (_value(found), str(found)) == (expected.value, write(expected.value, expected.family))
        assert FAMILIES[found.format] == expected.family or not expected.value
    assert (first < second, first == second) == (a.value < b.value, a.value == b.value)
    assert (first.is_whole, bool(first)) == (a.value.denominator == 1, a.value != 0)
    integers = is_integer(left), is_integer(right)
    assert _cel("quantity(a).isInteger()", left, right, count) == integers[0]
    assert _cel("quantity(a).asInteger()", left, right, count) == (int(a.value) if integers[0] else None)
    if all(integers):
        both_fit = in_64_bits(a.value + b.value)
        assert _cel("quantity(a).add(quantity(b)).isInteger()", left, right, count) == both_fit
    for expression, value in _expressions(a, b, count).items():
        assert _cel(expression, left, right, count) == value, expression


def _expressions(a: Amount, b: Amount, count: int) -> dict[str, Any]:
    """Return expressions and the model's value of each; None is an error."""
    order = (a.value > b.value) - (a.value < b.value)
    return {
        "quantity(a).compareTo(quantity(b))": order,
        "quantity(a).isLessThan(quantity(b))": order < 0,
        "quantity(a).isGreaterThan(quantity(b))": order > 0,
        "quantity(a) == quantity(b)": order == 0,
        "sign(quantity(a))": (a.value > 0) - (a.value < 0),
        "quantity(a).asApproximateFloat()": float(a.value),
        "quantity(a).add(quantity(b))": a.value + b.value,
        "quantity(a).sub(quantity(b))": a.value - b.value,
        "quantity(a).add(n)": a.value + count,
        "quantity(a).sub(n)": a.value - count,
        "quantity(a).mul(n)": a.value * count,
        "quantity(a).div(n)": towards_zero(a.value / count) if count else None,
        "quantity(a).mul(quantity(b))": towards_zero(a.value * b.value),
        "quantity(a).div(quantity(b))": towards_zero(a.value / b.value) if b.value else None,
    }


def _cel(expression: str, left: str, right: str, count: int) -> Any:
    found, value = both(_program(expression), {"a": left, "b": right, "n": count})
    if found == "error":
        return None
    return _value(value) if isinstance(value, Quantity) else value


@cache
def _program(expression: str) -> Program:
    return program(expression, environment(a="", b="", n=0))


def _value(quantity: Quantity) -> Fraction:
    return Fraction(quantity.nanos, 10**9)


def _parsed(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except QuantityError:
        return None


def _texts() -> st.SearchStrategy[str]:
    """Return a strategy of quantities up to 10³⁶ in all notations, and of texts that may be invalid."""
    digits = st.integers(0, 9999).map(str) | st.sampled_from(
        ["1024", "1000", "0", "00", "9" * 15, "1048576", str(2**53)]
    )
    numbers = digits | st.builds("{}.{}".format, digits, digits) | digits.map(".{}".format) | digits.map("{}.".format)
    exponents = st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-20, 15) | st.sampled_from(["+3", "-0"]))
    suffixes = st.sampled_from(["", *DECIMAL, *BINARY]) | exponents
    written = st.builds("{}{}{}".format, st.sampled_from(["", "", "", "+", "-"]), numbers, suffixes)
    return written | written | written | st.text("0123456789+-.eEinumkKMGTP \n", max_size=6)
