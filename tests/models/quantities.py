"""A second implementation of Kubernetes quantities, from docs/reference/rules.md and Kubernetes' description.

A quantity is an exact fraction and the family of its suffix; no code of the engine is used.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
DIGITS = frozenset("0123456789")
NANO = Fraction(1, 10**9)


@dataclass(frozen=True)
class Amount:
    """A value, exact to a nano, and how it is written: "decimal", "binary" or "exponent"."""

    value: Fraction
    family: str


def read(text: str) -> Amount | None:
    """Parse a quantity; return None for an invalid one."""
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("+", text)
    end = next((index for index, character in enumerate(rest) if character not in DIGITS | {"."}), len(rest))
    number, suffix = rest[:end], rest[end:]
    scale = scaling(suffix)
    if scale is None or number.count(".") > 1 or not number.strip("."):
        return None
    whole, _, fraction = number.partition(".")
    magnitude = Fraction(int(whole + fraction or "0"), 10 ** len(fraction)) * scale.value
    rounded = ceil(magnitude / NANO) * NANO  # away from zero, as Kubernetes does
    return Amount(-rounded if sign == "-" else rounded, scale.family)


def is_integer(text: str) -> bool:
    """Return whether Kubernetes stores a quantity as an integer of 64 bits (docs/reference/cel.md)."""
    found, number = read(text), text.lstrip("+-")
    suffix = number.lstrip(".0123456789")
    whole, _, fraction = number.removesuffix(suffix).partition(".")
    digits = len(whole.lstrip("0") or "0") + len(fraction)
    if suffix in BINARY:
        return not fraction and digits <= {"Ki": 11, "Mi": 8, "Gi": 5, "Ti": 2}.get(suffix, 0)
    exponent = DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:])
    return found is not None and digits <= 18 and len(fraction) <= exponent and in_64_bits(found.value)


def in_64_bits(value: Fraction) -> bool:
    return -(2**63) <= value < 2**63


def scaling(suffix: str) -> Amount | None:
    """Return the factor and the family of a suffix; "E" is exa, "E3" an exponent."""
    if suffix in DECIMAL:
        return Amount(Fraction(10) ** DECIMAL[suffix], "decimal")
    if suffix in BINARY:
        return Amount(Fraction(2) ** BINARY[suffix], "binary")
    digits = suffix[2:] if suffix[1:2] in ("+", "-") else suffix[1:]
    if suffix[0] in "eE" and digits and set(digits) <= DIGITS:
        return Amount(Fraction(10) ** int(suffix[1:]), "exponent")
    return None


def write(value: Fraction, family: str) -> str:
    """Return the canonical text: the largest unit of the family that leaves a whole number."""
    if value == 0:
        return "0"
    if family == "binary" and abs(value) >= 1024 and value.denominator == 1:
        power, unit = max([(0, ""), *((p, u) for u, p in BINARY.items() if value % 2**p == 0)])
        return f"{value / 2**power}{unit}"
    if family == "exponent":
        exponent = max(power for power in range(-9, 300, 3) if (value / Fraction(10) ** power).denominator == 1)
        return f"{value / Fraction(10) ** exponent}" + (f"e{exponent}" if exponent else "")
    power, unit = max((p, u) for u, p in DECIMAL.items() if (value / Fraction(10) ** p).denominator == 1)
    return f"{value / Fraction(10) ** power}{unit}"


def total(left: Amount, right: Amount) -> Amount:
    """Return the sum, in the left family unless the left amount is zero."""
    return Amount(left.value + right.value, left.family if left.value else right.family)


def towards_zero(value: Fraction) -> Fraction:
    """Round a product or a quotient towards zero, to whole nanos."""
    return int(value / NANO) * NANO
