"""string.format() (cel-go, ext/formatting_v2.go)."""

import math
import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from rules_engine.language.cel.budget import CHARACTERS_PER_UNIT, MAX_RESULT_CHARACTERS, Budget, EvaluationError
from rules_engine.language.cel.values.operators import charge_text
from rules_engine.language.cel.values.runtime_values import NANOS, Duration, Timestamp, Uint, check_int, is_map, type_of
from rules_engine.language.cel.values.times import timestamp_text
from rules_engine.language.cel.values.types import ObjectType, Type

MAX_PRECISION = 1_000
"""Maximum precision of a clause: a double has at most 1,074 digits after the point."""

DEFAULT_PRECISION = 6

CLAUSE_COST = 2
"""Units of a clause, in addition to the units of the text that it writes."""

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]{1,6}))?([a-zA-Z]))")


def format_text(budget: Budget, template: str, arguments: list[Any]) -> str:
    """Return the template with its clauses replaced by the arguments, in order. Raises EvaluationError."""
    parts: list[str] = []
    position = used = length = 0
    while (start := template.find("%", position)) >= 0:
        clause = _CLAUSE.match(template, start)
        if clause is None:
            raise EvaluationError("the format has an unknown clause")
        parts.append(template[position:start])
        position = clause.end()
        if clause.group() == "%%":
            part = "%"
        else:
            part = _format_clause(budget, clause[2], clause[1], arguments, used)
            used += 1
        length += len(part)
        budget.spend(CLAUSE_COST + len(part) // CHARACTERS_PER_UNIT)
        if length > MAX_RESULT_CHARACTERS:
            break
        parts.append(part)
    parts.append(template[position:])
    charge_text(budget, length + len(template))
    return "".join(parts)


def _format_clause(budget: Budget, letter: str, digits: str | None, arguments: list[Any], index: int) -> str:
    if index >= len(arguments):
        raise EvaluationError(f"the format has more clauses than its {len(arguments)} arguments")
    value = arguments[index]
    if type(value) is int:
        check_int(value)
    if letter in "ef":
        precision = DEFAULT_PRECISION if digits is None else int(digits)
        if precision > MAX_PRECISION:
            raise EvaluationError(f"the precision of a format is at most {MAX_PRECISION}")
        return _format_float(value, letter, precision)
    writer = _CLAUSES.get(letter)
    if writer is None or digits is not None:
        raise EvaluationError("the format has an unknown clause")
    return writer(budget, value)


def _clause_error(clause: str, value: object) -> EvaluationError:
    return EvaluationError(f"%{clause} cannot write a value of type {type_of(value)}")


def _special_double(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return None


def plain_double(value: float) -> str:
    """Return the shortest digits that parse as the same double, without an exponent."""
    special = _special_double(value)
    if special is not None:
        return special
    text = repr(value)
    if "e" in text:
        mantissa, exponent = text.split("e")
        whole, _, fraction = mantissa.lstrip("-").partition(".")
        sign, power = "-" if text[0] == "-" else "", int(exponent)
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{whole}{fraction.rstrip('0')}"
        return f"{sign}{whole}{fraction.ljust(power, '0')}"
    return text.removesuffix(".0")


def _format_float(value: Any, letter: str, precision: int) -> str:
    if type(value) not in (int, Uint, float):
        raise _clause_error(letter, value)
    value = float(value)
    return _special_double(value) or f"{value:.{precision}{letter}}"


def _format_decimal(_budget: Budget, value: Any) -> str:
    if type(value) is float:
        return plain_double(value)
    if type(value) in (int, Uint):
        return str(int(value))
    raise _clause_error("d", value)


def _base_formatter(clause: str) -> Callable[[Budget, Any], str]:
    def write(_budget: Budget, value: Any) -> str:
        if type(value) in (int, Uint) or (clause == "b" and type(value) is bool):
            return f"{int(value):{clause}}"
        raise _clause_error(clause, value)

    return write


def _hexadecimal_formatter(clause: str) -> Callable[[Budget, Any], str]:
    def write(_budget: Budget, value: Any) -> str:
        if type(value) in (int, Uint):
            return f"{int(value):{clause}}"
        if type(value) is str:
            value = value.encode(errors="replace")
        if type(value) is bytes:
            text = value.hex()
            return text if clause == "x" else text.upper()
        raise _clause_error(clause, value)

    return write


def format_any(budget: Budget, value: Any) -> str:
    """Return the text of %s for any value but an object of a library; maps are sorted by their keys' texts."""
    budget.spend(1)
    kind = type(value)
    if kind is list:
        return _join_parts(budget, "[", [format_any(budget, item) for item in value], "]")
    if is_map(value):
        entries = sorted((format_any(budget, key), format_any(budget, item)) for key, item in value.items())
        return _join_parts(budget, "{", [f"{key}: {item}" for key, item in entries], "}")
    writer = _STRINGS.get(kind)
    if writer is None:
        raise _clause_error("s", value)
    return writer(value)


def _join_parts(budget: Budget, opening: str, parts: list[str], closing: str) -> str:
    charge_text(budget, sum(map(len, parts)) + 2 * len(parts))
    return f"{opening}{', '.join(parts)}{closing}"


_STRINGS: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: lambda value: "true" if value else "false",
    int: lambda value: str(check_int(value)),
    Uint: lambda value: str(int(value)),
    float: plain_double,
    bytes: lambda value: value.decode(errors="replace"),
    type(None): lambda _: "null",
    Timestamp: timestamp_text,
    Duration: lambda value: plain_double(value.nanos / NANOS) + "s",
    Type: attrgetter("name"),
    ObjectType: attrgetter("name"),
}

_CLAUSES: dict[str, Callable[[Budget, Any], str]] = {
    "s": format_any,
    "d": _format_decimal,
    "b": _base_formatter("b"),
    "o": _base_formatter("o"),
    "x": _hexadecimal_formatter("x"),
    "X": _hexadecimal_formatter("X"),
}
