"""Fields and elements of values: what a.b, a[b], a.?b and a[?b] mean (CEL specification, "Field Selection")."""

from collections.abc import Callable
from typing import Any

from rules_engine.cel.budget import EvaluationError
from rules_engine.cel.values.operators import find_key
from rules_engine.cel.values.runtime_values import NONE, NUMBER_CLASSES, Optional, is_map, type_of

Found = tuple[bool, Any]
"""Whether there is such a member, and its value."""


def field(operand: Any, name: str) -> Found:
    """A field of a map. Raises EvaluationError for anything that has no fields."""
    if is_map(operand):
        return find_key(operand, name)
    raise EvaluationError(f"type {type_of(operand)} has no fields")


def element(operand: Any, key: Any) -> Found:
    """An element of a list or map. Raises EvaluationError for anything else, and for a list's index of another type."""
    if type(operand) is list:
        if type(key) not in NUMBER_CLASSES or (type(key) is float and not key.is_integer()):
            raise EvaluationError(f"a list has no index of type {type_of(key)}")
        position = int(key)
        return (True, operand[position]) if 0 <= position < len(operand) else (False, None)
    if is_map(operand):
        return find_key(operand, key)
    raise EvaluationError(f"type {type_of(operand)} cannot be indexed")


def required_field(operand: Any, name: str) -> Any:
    """The value of a field that has to be there."""
    found, value = field(operand, name)
    if found:
        return value
    raise EvaluationError("no such key")


def required_element(operand: Any, key: Any) -> Any:
    """The value of an element that has to be there."""
    found, value = element(operand, key)
    if found:
        return value
    raise EvaluationError("index out of range" if type(operand) is list else "no such key")


def optional_member(operand: Any, key: Any, find: Callable[[Any, Any], Found]) -> Optional:
    """A member that may be missing, of a value that may be an optional itself."""
    if type(operand) is Optional:
        if not operand.present:
            return NONE
        operand = operand.value
    found, value = find(operand, key)
    return Optional(True, value) if found else NONE


def as_optional(value: object) -> Optional:
    """The value, which has to be an optional."""
    if type(value) is Optional:
        return value
    raise EvaluationError(f"an optional is needed here, not {type_of(value)}")
