"""Kubernetes quantities, exactly.

Source: k8s.io/apimachinery/pkg/api/resource (quantity.go, suffix.go). A quantity is a whole number of nanos with the
format of its text. Two things differ from Kubernetes on purpose: values are never capped at 2^63-1, and a
result beyond exa is written in E.
"""

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

NANOS = 10**9
"""Nanos in one: the precision that Kubernetes keeps; anything finer is rounded away from zero."""

NanosByResource: TypeAlias = Mapping[str, int]
"""Amounts by resource, in nanos."""

MAX_QUANTITY_TEXT = 64
"""Longest text of a quantity: far longer than any in use, short enough to be read quickly."""

MAX_EXPONENT = 60
"""Largest decimal exponent: keeps `1e999999999` from becoming a number of a gigabyte."""

MAX_NANOS = 10**60
"""Largest amount, of either sign, that is read or written: 10^51, where Kubernetes caps at 2^63-1. The text of no
smaller amount exceeds `MAX_QUANTITY_TEXT` characters, so that every text that is written can be read."""

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_TEXT = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_TEXT = {power: suffix for suffix, power in _BINARY.items()}
_SYNTAX = re.compile(r"([+-]?)([0-9]++\.?[0-9]*+|\.[0-9]++)(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?[0-9]{1,9}))")


class QuantityError(ValueError):
    """A text that is not a quantity, or an operation that quantities do not support."""


class Format(Enum):
    """The format of a quantity: Kubernetes' suffix family."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


class Quantity(Struct, frozen=True):
    """An exact amount. Equality compares values and ignores formats and scales.

    `scale`: the power of ten of the int64 in which Kubernetes stores the amount (amount.go, int64Amount), or None if it
    stores a decimal of any length. Parsed amounts have one; only CEL reads it, and the arithmetic here drops it.
    """

    nanos: int
    format: Format = Format.DECIMAL_SI
    scale: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Read a quantity as the API server does. Raises QuantityError."""
        return parse_quantity(text)

    @classmethod
    def of(cls, whole: int, format: Format = Format.DECIMAL_SI) -> "Quantity":
        """Return a whole number."""
        return cls(whole * NANOS, format)

    @property
    def is_whole(self) -> bool:
        return self.nanos % NANOS == 0

    @property
    def whole(self) -> int:
        """The value as an int, rounded up (Kubernetes' Value()); exact where is_whole."""
        return -(-self.nanos // NANOS)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos if isinstance(other, Quantity) else NotImplemented

    def __le__(self, other: "Quantity") -> bool:
        return self.nanos <= other.nanos if isinstance(other, Quantity) else NotImplemented

    def __add__(self, other: "Quantity") -> "Quantity":
        # Kubernetes' Add takes the other's format when the receiver is zero.
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __mul__(self, factor: int) -> "Quantity":
        return Quantity(self.nanos * factor, self.format)

    def times(self, other: "Quantity") -> "Quantity":
        """Return the product of two quantities, rounded towards zero to a nano, in the format of the first."""
        product = self.nanos * other.nanos
        nanos = abs(product) // NANOS
        return Quantity(-nanos if product < 0 else nanos, self.format)

    def divided_by(self, divisor: "Quantity") -> "Quantity":
        """Return the quotient of two quantities, rounded towards zero to a nano, in the format of the first.

        Raises QuantityError when the divisor is zero.
        """
        if not divisor.nanos:
            raise QuantityError("division by zero")
        nanos = abs(self.nanos) * NANOS // abs(divisor.nanos)
        return Quantity(nanos if (self.nanos < 0) == (divisor.nanos < 0) else -nanos, self.format)

    def floor_to(self, unit: "Quantity") -> "Quantity":
        """Return the largest multiple of `unit` that is not larger."""
        return Quantity(self.nanos // unit.nanos * unit.nanos, self.format)

    def share(self, parts: int, unit: "Quantity") -> "Quantity":
        """Return one of `parts` equal parts, rounded down to a multiple of `unit`."""
        return Quantity(self.nanos // (parts * unit.nanos) * unit.nanos, self.format)

    def __str__(self) -> str:
        """Return the canonical text (quantity.go, CanonicalizeBytes). Raises QuantityError beyond MAX_NANOS."""
        if not self.nanos:
            return "0"
        if abs(self.nanos) > MAX_NANOS:
            raise QuantityError("the sum of the amounts exceeds 1e51")
        if self.format is Format.BINARY_SI and self.nanos % NANOS == 0 and abs(self.nanos) >= 1024 * NANOS:
            return _binary_text(self.nanos // NANOS)
        return _decimal_text(self.nanos, exponent_form=self.format is Format.DECIMAL_EXPONENT)


def base_units(nanos: int) -> int | float:
    """Return an amount in cores, bytes or devices."""
    whole, fraction = divmod(nanos, NANOS)
    return nanos / NANOS if fraction else whole


@lru_cache(maxsize=4096)  # pods repeat the same few texts; the bound keeps hostile variety from growing it
def parse_quantity(text: str) -> Quantity:
    """Read a quantity like `Quantity.parse`, which calls it: hot paths save a call."""
    if len(text) > MAX_QUANTITY_TEXT:
        raise QuantityError(f"a quantity has at most {MAX_QUANTITY_TEXT} characters")
    match = _SYNTAX.fullmatch(text)
    if match is None:
        suffixes = ", ".join([*filter(None, _DECIMAL), *_BINARY])
        raise QuantityError(f"{text!r} is not a quantity: write a number, then one of {suffixes} or an exponent")
    sign, digits, suffix, exponent_text = match.groups()
    whole, _, fraction = digits.partition(".")
    mantissa = int(whole + fraction)
    form = Format.DECIMAL_SI
    # Kubernetes stores few digits as an int64 (quantity.go, ParseQuantity).
    most_digits, least_scale = 18, -9
    if exponent_text is not None:
        exponent = int(exponent_text)
        form = Format.DECIMAL_EXPONENT
    elif suffix in _BINARY:
        mantissa *= 1024 ** _BINARY[suffix]
        exponent = 0
        form = Format.BINARY_SI
        most_digits, least_scale = 14 - 3 * _BINARY[suffix], 0
    else:
        exponent = _DECIMAL[suffix]
    if exponent > MAX_EXPONENT:
        raise QuantityError(f"{text!r} is too large: an exponent is at most {MAX_EXPONENT}")
    nanos = _scale_up(mantissa, exponent - len(fraction) + 9)
    if nanos > MAX_NANOS:
        raise QuantityError(f"{text!r} is too large: an amount is at most 1e51")
    digits_stored, scale = len(whole.lstrip("0") or "0") + len(fraction), exponent - len(fraction)
    is_int64 = digits_stored <= most_digits and scale >= least_scale
    return Quantity(-nanos if sign == "-" else nanos, form, scale if is_int64 else None)


def _scale_up(mantissa: int, power: int) -> int:
    """Return mantissa × 10^power, rounded away from zero. For a power far below zero nothing is computed."""
    if power >= 0:
        return int(mantissa * 10**power)
    # A mantissa of `MAX_QUANTITY_TEXT` characters, times 1024^6, has fewer digits: the result is below one nano.
    if power < -2 * MAX_QUANTITY_TEXT:
        return 1 if mantissa else 0
    return int(-(-mantissa // 10**-power))


def _binary_text(value: int) -> str:
    power = 0
    while power < 6 and value % 1024 == 0:
        value //= 1024
        power += 1
    return f"{value}{_BINARY_TEXT.get(power, '')}"


def _decimal_text(nanos: int, *, exponent_form: bool) -> str:
    exponent = -9
    while nanos % 1000 == 0 and (exponent_form or exponent < 18):
        nanos //= 1000
        exponent += 3
    if exponent_form:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_TEXT[exponent]}"
