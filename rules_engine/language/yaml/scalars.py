"""Values of plain YAML scalars, and differences between the versions of YAML.

Sources: YAML 1.2.2, section 10.3 (core schema); yaml.org/type for YAML 1.1's types, which most tools still read.
"""

import re
from collections.abc import Callable, Mapping

from rules_engine.language.yaml.nodes import Plain, Surprise
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.source import MAX_EXCERPT, truncate

MAX_INTEGER = 2**63
"""Bound of integers: CEL, Go and JSON parsers have 64 bits; a larger integer would silently change."""

_CONSTANTS: Mapping[str, Plain] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_BOOLEANS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9:. \t+\-Zz]+)?")

AMBIGUOUS_CODES = frozenset({Code.YAML_BOOLEAN, Code.YAML_DATE, Code.YAML_EQUALS, Code.YAML_NUMBER})
"""Codes of scalars that YAML parsers read differently."""


def _make_surprise(code: Code, text: str, reading: str, *values: Plain, number: int | float | None = None) -> Surprise:
    spellings = [(str(value).lower(), value) for value in values]
    quoted = f'"{text}"' if len(text) <= MAX_EXCERPT else "it in quotes"
    return Surprise(code, truncate(text), reading, (*spellings, (quoted, text)), number)


def resolve_scalar(text: str) -> tuple[Plain, Surprise | None]:
    """Return the value of a plain scalar in YAML 1.2 and JSON, with a Surprise if YAML 1.1 or other parsers differ."""
    if text in _CONSTANTS:
        return _CONSTANTS[text], None
    first = text[0]
    if first in "yYnNoO" and text in _BOOLEANS:
        value = _BOOLEANS[text]
        return value, _make_surprise(Code.YAML_BOOLEAN, text, "is a boolean in YAML 1.1 and text in YAML 1.2", value)
    if first == "=" and text == "=":
        return text, _make_surprise(Code.YAML_EQUALS, text, "is a special value in YAML 1.1")
    if first not in "+-.0123456789":
        return text, None
    return _resolve_number(text)


def _resolve_number(text: str) -> tuple[Plain, Surprise | None]:
    if _INTEGER.fullmatch(text):
        # The length is checked first: parsing a number of many digits is costly.
        if len(text) > len(str(MAX_INTEGER)) + 1 or not -MAX_INTEGER <= int(text) < MAX_INTEGER:
            number = _sign(text) * MAX_INTEGER
            return text, _make_surprise(Code.YAML_NUMBER, text, "does not fit into 64 bits", number=number)
        return int(text), None
    if _FLOAT.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            return text, _make_surprise(Code.YAML_NUMBER, text, "is larger than any number", number=value)
        return value, None
    if _DATE.fullmatch(text):
        return text, _make_surprise(Code.YAML_DATE, text, "is a date in YAML 1.1 and text in YAML 1.2")
    for pattern, reading in _ODD_NUMBERS:
        if pattern.fullmatch(text):
            return reading(text)
    return text, None


_PlainReader = Callable[[str], tuple[Plain, Surprise | None]]


def _odd_number(value: int | float, text: str, otherwise: int | str) -> tuple[Plain, Surprise | None]:
    values = (value,) if isinstance(otherwise, str) or otherwise == value else (value, otherwise)
    return value, _number_surprise(f"is {value} in YAML 1.1 and {otherwise} in YAML 1.2", text, *values)


def _number_surprise(reading: str, text: str, *values: int | float) -> Surprise:
    return _make_surprise(Code.YAML_NUMBER, text, reading, *values)


def _digits(text: str) -> str:
    return text.replace("_", "").lstrip("+-")


def _sign(text: str) -> int:
    return -1 if text.startswith("-") else 1


def _read_octal(text: str) -> tuple[Plain, Surprise | None]:
    return _odd_number(_sign(text) * int(_digits(text), 8), text, _sign(text) * int(_digits(text)))


def _read_new_octal(text: str) -> tuple[Plain, Surprise | None]:
    value = int(text, 0)
    return value, _number_surprise(f"is text in YAML 1.1 and {value} in YAML 1.2", text, value)


def _read_zeros(text: str) -> tuple[Plain, Surprise | None]:
    value = float(text) if "." in text else int(text)
    return value, _number_surprise(f"is text to some readers and {value} to others", text, value)


def _read_hexadecimal(text: str) -> tuple[Plain, Surprise | None]:
    value = _sign(text) * int(_digits(text), 0)
    return value, _number_surprise(f"is the number {value}", text, value)


def _read_binary(text: str) -> tuple[Plain, Surprise | None]:
    return _odd_number(_sign(text) * int(_digits(text), 0), text, "text")


def _read_underscores(text: str) -> tuple[Plain, Surprise | None]:
    digits = _digits(text)
    return _odd_number(_sign(text) * (int(digits) if digits.isdigit() else float(digits)), text, "text")


def _read_sexagesimal(text: str) -> tuple[Plain, Surprise | None]:
    value: int | float = 0
    for part in _digits(text).split(":"):
        value = value * 60 + (int(part) if part.isdigit() else float(part))
    return text, _odd_number(_sign(text) * value, text, "text")[1]


def _read_special(text: str) -> tuple[Plain, Surprise | None]:
    name = "not a number" if text.lower() == ".nan" else "infinity"
    number = float(text.replace(".", ""))
    return text, _make_surprise(Code.YAML_NUMBER, text, f"is {name}, which JSON does not have", number=number)


_ODD_NUMBERS: tuple[tuple[re.Pattern[str], _PlainReader], ...] = (
    # A bound on the digits: int() of very many is costly, and no author writes them.
    (re.compile(r"[-+]?0[0-7_]{1,30}"), _read_octal),
    (re.compile(r"[-+]?0[0-9]{1,30}(?:\.[0-9]{0,30})?"), _read_zeros),
    (re.compile(r"0o[0-7]{1,30}"), _read_new_octal),
    (re.compile(r"[-+]?0x_{0,9}[0-9a-fA-F][0-9a-fA-F_]{0,30}"), _read_hexadecimal),
    (re.compile(r"[-+]?0b_{0,9}[01][01_]{0,64}"), _read_binary),
    (
        re.compile(r"[-+]?(?=[0-9]|\._{0,9}[0-9])[0-9_]{0,30}(?:\.[0-9_]{0,30})?(?:[eE][-+]?[0-9]{1,2})?"),
        _read_underscores,
    ),
    (re.compile(r"[-+]?[1-9][0-9_]{0,9}(?::[0-5]?[0-9]){1,9}"), _read_sexagesimal),
    (re.compile(r"[-+]?[0-9][0-9_]{0,9}(?::[0-5]?[0-9]){1,9}\.[0-9_]{0,9}"), _read_sexagesimal),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"), _read_special),
)
