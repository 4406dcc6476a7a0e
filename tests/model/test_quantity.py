"""Quantities, exact and in Kubernetes' notation."""

from collections.abc import Callable
from fractions import Fraction
from operator import ge, gt, le, lt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.kubernetes.quantity import (
    MAX_EXPONENT,
    MAX_QUANTITY_TEXT,
    NANOS,
    Format,
    Quantity,
    QuantityError,
)

SUFFIXES = {
    "": Fraction(1),
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("numk", start=-3) if suffix != "k"},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}

numbers = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**12),
    st.sampled_from(["", "."]) | st.builds(".{}".format, st.integers(0, 10**12)),
)
texts = st.builds(
    "{}{}".format, numbers, st.sampled_from([*SUFFIXES]) | st.builds("e{}".format, st.integers(-MAX_EXPONENT, 30))
)
quantities = st.builds(
    Quantity,
    st.integers(-(10**30), 10**30) | st.integers(-5000, 5000).map(lambda n: n * NANOS),
    st.sampled_from(Format),
)


def value(quantity: Quantity) -> Fraction:
    return Fraction(quantity.nanos, NANOS)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("-0", "0"),
        ("00012", "12"),
        ("+5", "5"),
        ("1.5", "1500m"),
        (".5", "500m"),
        ("7.", "7"),
        ("7.G", "7G"),
        ("1000", "1k"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("4000m", "4"),
        ("4500m", "4500m"),
        ("0.1m", "100u"),
        ("100000k", "100M"),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023Ki", "1023Ki"),
        ("-1Ki", "-1Ki"),
        ("-0.5Ki", "-512"),
        ("1000Ki", "1000Ki"),
        ("0.0001Ki", "102400u"),
        ("1.0001Ki", "1024102400u"),
        ("1024Ei", "1024Ei"),
        ("2048Ei", "2048Ei"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1E", "1E"),
        ("1e0", "1"),
        ("12e-1", "1200e-3"),
        ("100e3", "100e3"),
        ("1000e3", "1e6"),
        ("1e+5", "100e3"),
        ("1000E", "1000E"),
        ("1e21", "1e21"),
    ],
)
def test_the_canonical_text(text: str, canonical: str) -> None:
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    ("amount", "count", "product"),
    [("4000m", 2, "8"), ("8Gi", 2, "16Gi"), ("1500m", 3, "4500m"), ("1024Mi", 1, "1Gi"), ("100", 10, "1k")],
)
def test_the_worked_examples_of_the_reference(amount: str, count: int, product: str) -> None:
    assert str(Quantity.parse(amount) * count) == product


@pytest.mark.parametrize("text", ["0.1n", "0.0000000001", "1e-10", "1e-60", "1e-999999999", "0.9n", "1n"])
def test_fractions_of_a_nano_are_rounded_away_from_zero(text: str) -> None:
    assert Quantity.parse(text).nanos == 1
    assert Quantity.parse(f"-{text}").nanos == -1


@pytest.mark.parametrize("text", ["0e-999999999", "0.000e-999999999", "0e60", "0n"])
def test_zero_is_zero_at_any_scale(text: str) -> None:
    assert not Quantity.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", " 1", "1 ", "1\n", "\n", "+", "-", ".", "-.", "+-1", "--1", "1.1.1", "1,5", "1_000", "0x10"),
        *("m", "Gi", "1mi", "1ki", "1K", "1i", "1B", "1GiB", "1Gi1", "1 Gi", "1mm", "1e", "1e1.5", "1e-", "1e5Gi"),
        *("\u0661", "１", "1\u00a0", "½", "∞", "nan", "inf", "NaN", "Infinity", "null", "true"),
        *("1e9999999999", "9" * (MAX_QUANTITY_TEXT + 1), "1e61", "1e999999999", "-1e999999999"),
    ],
)
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


def test_the_error_suggests_the_right_text() -> None:
    with pytest.raises(QuantityError, match=r"'8GB' is not a quantity: write a number, then one of n, u, m, k"):
        Quantity.parse("8GB")


def test_a_long_text_is_refused_without_being_quoted() -> None:
    with pytest.raises(QuantityError, match=r"^a quantity has at most 64 characters$"):
        Quantity.parse("1" * 10**7)


@given(st.text() | st.text(alphabet="0123456789+-.eEinumkKMGTP \n"))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert Quantity.parse(str(quantity)) == quantity


@given(quantities)
def test_parse_is_the_inverse_of_text(quantity: Quantity) -> None:
    if quantity.format is not Format.BINARY_SI or quantity.is_whole:
        assert Quantity.parse(str(quantity)) == quantity


@given(texts)
def test_the_canonical_text_is_a_fixed_point(text: str) -> None:
    canonical = str(Quantity.parse(text))
    assert str(Quantity.parse(canonical)) == canonical


@given(quantities, quantities)
def test_products_and_quotients_agree_with_rounded_fractions(left: Quantity, right: Quantity) -> None:
    def towards_zero(exactly: Fraction) -> int:
        return int(exactly * NANOS)

    assert left.times(right).nanos == towards_zero(value(left) * value(right))
    if right:
        assert left.divided_by(right).nanos == towards_zero(value(left) / value(right))
    else:
        with pytest.raises(QuantityError, match="division by zero"):
            left.divided_by(right)


@given(quantities, quantities)
def test_order_and_equality_compare_values_and_ignore_formats(left: Quantity, right: Quantity) -> None:
    assert (left < right) == (value(left) < value(right))
    assert (left == right) == (value(left) == value(right))
    same = Quantity(left.nanos, right.format)
    assert left == same
    assert hash(left) == hash(same)


@pytest.mark.parametrize("compare", [lt, le, gt, ge])
def test_a_quantity_has_no_order_with_other_types(compare: Callable[[object, object], bool]) -> None:
    for left, right in ((Quantity(1), 1), (1, Quantity(1))):
        with pytest.raises(TypeError, match="not supported between instances"):
            compare(left, right)


@given(quantities, st.integers(1, 99), st.sampled_from(["1", "1m", "1n", "5"]))
def test_shares_are_the_largest_multiples_of_the_unit(quantity: Quantity, parts: int, unit_text: str) -> None:
    unit = Quantity.parse(unit_text)
    share = quantity.share(parts, unit)
    assert share.nanos % unit.nanos == 0
    assert share * parts <= quantity < (share + unit) * parts
    assert quantity.floor_to(unit) == quantity.share(1, unit)


@given(quantities)
def test_whole_is_the_value_rounded_up(quantity: Quantity) -> None:
    assert quantity.whole - 1 < value(quantity) <= quantity.whole
    assert quantity.is_whole == (value(quantity).denominator == 1)
    assert bool(quantity) == (value(quantity) != 0)


def test_a_sum_has_the_format_of_its_first_nonzero_operand_as_in_kubernetes() -> None:
    gibi, milli, zero = map(Quantity.parse, ("1Gi", "100m", "0"))
    assert str(gibi + zero) == str(zero + gibi) == str(gibi - zero) == "1Gi"
    assert str(zero - gibi) == "-1Gi"
    assert str(milli + zero) == str(zero + milli) == "100m"
    assert str(Quantity.parse("1Gi") + Quantity.parse("1")) == "1073741825"
    assert str(Quantity.parse("1k") + Quantity.parse("24")) == "1024"


def test_whole_numbers_of_any_size() -> None:
    assert str(Quantity.of(2000)) == "2k"
    assert str(Quantity.of(2**80, Format.BINARY_SI)) == f"{2**20}Ei"
    assert str(Quantity.of(10**30)) == "1" + "0" * 12 + "E"
