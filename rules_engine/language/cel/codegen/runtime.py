"""Runtime of generated code: its global names. Functions may raise, but never return another value than CEL's.

They raise without a message or a place, since the interpreter then evaluates and finds both. A function is here if it
is therefore shorter or faster than the interpreter's (`members`, `operators`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from rules_engine.language.cel.budget import CHARACTERS_PER_UNIT, Budget, CostExceeded, EvaluationError
from rules_engine.language.cel.values import members, operators, regex
from rules_engine.language.cel.values.functions import Dispatch
from rules_engine.language.cel.values.numbers import parse_int
from rules_engine.language.cel.values.runtime_values import NONE, Optional, charge_key, equals, is_map, make_map
from rules_engine.model.kubernetes.quantity import Quantity

LONG_LOOP = 64
"""Rounds of a loop whose cost is counted at once; a longer loop is counted in parts."""

OPERATORS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "modulo",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
"""Names of the functions that implement CEL's operators here, by symbol."""

_LITERAL_PATTERN = re.compile(r"(\^?)([A-Za-z0-9 _/:,=@-]*)(\$?)")
"""A pattern of literal characters, with or without anchors."""


def pattern_test(pattern: regex.Pattern, source: str) -> Callable[[Any, Budget], bool]:
    """Return the test of a constant pattern: a string method for literal characters, ten times as fast as RE2."""
    literal = _LITERAL_PATTERN.fullmatch(source)
    start, word, end = literal.groups() if literal else ("", "", "")

    def match(text: Any, budget: Budget) -> bool:
        if type(text) is not str:
            _refuse()
        # Text that is not ASCII may contain a lone surrogate, which RE2 rejects.
        if not literal or not text.isascii():
            return pattern.occurs_in(text, budget)
        pattern.charge(len(text), budget)
        if start:
            return text == word if end else text.startswith(word)
        return text.endswith(word) if end else word in text

    return match


def _refuse() -> NoReturn:
    """Give up, so that the interpreter evaluates: it alone absorbs errors and knows their places."""
    raise EvaluationError("left to the interpreter")


def _variable_pairs(value: Any) -> list[Any]:
    """Return the values of a macro's two variables: index and element, or key and value."""
    if type(value) is list:
        return list(enumerate(value))
    return list(value.items()) if is_map(value) else _refuse()


def _charge_in_parts(items: Any, cost: int, budget: Budget) -> Iterator[Any]:
    """Yield a long loop's items and charge the cost of LONG_LOOP rounds at a time.

    The budget may check a deadline between grants, which a loop that is charged for all rounds at once would miss.
    `cost`: the cost of one round.
    """
    left = len(items)
    for place, item in enumerate(items):
        if place % LONG_LOOP == 0:
            budget.spend(min(left, LONG_LOOP) * cost)
            left -= LONG_LOOP
        yield item


def _charge_for_key(key: Any, budget: Budget) -> Any:
    """Count the cost of finding a key, and return it."""
    charge_key(key, budget)
    return key


def _contains_text(text: Any, part: Any, budget: Budget) -> bool:
    """Return `text.contains(part)`."""
    if type(text) is not str or type(part) is not str:
        _refuse()
    if len(text) > CHARACTERS_PER_UNIT:
        budget.spend(len(text) // CHARACTERS_PER_UNIT)
    return part in text


def _convert_to_int(value: Any, dispatch: Dispatch, budget: Budget) -> Any:
    """Return `int(value)`. `dispatch`: the function's overloads, for anything but a string."""
    return parse_int(value) if type(value) is str else dispatch(budget, value)


RUNTIME: Mapping[str, object] = {
    **{name: operators.BINARY[operator] for operator, name in OPERATORS.items()},
    "CostExceeded": CostExceeded,
    "NONE": NONE,
    "Optional": Optional,
    "Quantity": Quantity,
    "as_map": lambda value: value if is_map(value) else _refuse(),
    "as_optional": members.as_optional,
    "bool": bool,
    "charged_key": _charge_for_key,
    "contains": operators.is_in,
    "dict": dict,
    "element": members.find_element,
    "equals": equals,
    "failed": object(),
    "failures": (EvaluationError, LookupError, TypeError, AttributeError),
    "field": members.find_field,
    "int": int,
    "len": len,
    "list": list,
    "make_map": make_map,
    "missing": object(),
    "negate": operators.negate,
    "occurs": _contains_text,
    "optional_member": members.optional_member,
    "paced": _charge_in_parts,
    "pairs": _variable_pairs,
    "refuse": _refuse,
    "required_element": members.required_element,
    "str": str,
    "type": type,
    "whole": operators.int_result,
    "whole_number": _convert_to_int,
}
"""Globals of every generated function, in addition to its constants. It has no other builtins."""
