"""Fields and elements of values: a.b, a[b], a.?b and a[?b] (CEL specification, "Field Selection")."""

from collections.abc import Callable
from typing import Any

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.values.operators import find_key
from rules_engine.language.cel.values.runtime_values import NONE, NUMBER_CLASSES, Optional, is_map, type_of

Lookup = tuple[bool, Any]
"""(True, the member's value), or (False, None) if it does not exist."""

NO_KEY = "no such key (.? and [?…] read what may be absent)"


def find_field(operand: Any, name: str) -> Lookup:
    """Find a field of a map. Raises EvaluationError for values of other types."""
    if is_map(operand):
        return find_key(operand, name)
    raise EvaluationError(f"type {type_of(operand)} has no fields")


def find_element(operand: Any, key: Any) -> Lookup:
    """Find an element of a list or map. Raises EvaluationError for values and indexes of other types."""
    if type(operand) is list:
        if type(key) not in NUMBER_CLASSES or (type(key) is float and not key.is_integer()):
            raise EvaluationError(f"a list has no index of type {type_of(key)}")
        position = int(key)
        return (True, operand[position]) if 0 <= position < len(operand) else (False, None)
    if is_map(operand):
        return find_key(operand, key)
    raise EvaluationError(f"type {type_of(operand)} cannot be indexed")


def required_field(operand: Any, name: str) -> Any:
    """Return a field that must exist. Raises EvaluationError."""
    exists, value = find_field(operand, name)
    if exists:
        return value
    raise EvaluationError(NO_KEY)


def required_element(operand: Any, key: Any) -> Any:
    """Return an element that must exist. Raises EvaluationError."""
    exists, value = find_element(operand, key)
    if exists:
        return value
    raise EvaluationError("index out of range" if type(operand) is list else NO_KEY)


def optional_member(operand: Any, key: Any, find: Callable[[Any, Any], Lookup]) -> Optional:
    """Return the optional of a member that may be missing. `operand`: a value, or an optional of one."""
    if type(operand) is Optional:
        if not operand.present:
            return NONE
        operand = operand.value
    exists, value = find(operand, key)
    return Optional(True, value) if exists else NONE


def as_optional(value: object) -> Optional:
    """Return the value, which must be an optional. Raises EvaluationError."""
    if type(value) is Optional:
        return value
    raise EvaluationError(f"an optional is required, not {type_of(value)}")
