"""Optional values (cel-go, cel/library.go, OptionalTypes)."""

from operator import attrgetter
from typing import Any

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.values.functions import Library, no_overload
from rules_engine.language.cel.values.runtime_values import NONE, NUMBER_CLASSES, Duration, Optional, Timestamp, is_map
from rules_engine.language.cel.values.types import BOOL, A, list_of, optional_of

LIBRARY = Library()

# The first moment of year 1, which is Go's zero time.
_ZERO_TIME = -62_135_596_800 * 10**9


LIBRARY.function("optional.of", A, gives=optional_of(A), constant=True)(lambda value: Optional(True, value))
LIBRARY.function("optional.none", gives=optional_of(A), constant=True)(lambda: NONE)


@LIBRARY.function("optional.ofNonZeroValue", A, gives=optional_of(A), constant=True)
def of_non_zero_value(value: object) -> Optional:
    return NONE if is_zero(value) else Optional(True, value)


def is_zero(value: object) -> bool:
    """Return whether a value is its type's zero: empty, false, 0 or null. No optional is (cel-go, traits.Zeroer)."""
    kind = type(value)
    if kind in NUMBER_CLASSES or is_map(value) or kind in (bool, str, bytes, list, type(None)):
        return not value
    if isinstance(value, Duration):
        return value.nanos == 0
    return isinstance(value, Timestamp) and value.nanos == _ZERO_TIME


LIBRARY.method("hasValue", optional_of(A), gives=BOOL, constant=True)(attrgetter("present"))


@LIBRARY.method("value", optional_of(A), gives=A, constant=True)
def optional_value(optional: Optional) -> object:
    if not optional.present:
        raise EvaluationError("the optional has no value")
    return optional.value


@LIBRARY.method("or", optional_of(A), optional_of(A), gives=optional_of(A), constant=True)
@LIBRARY.method("orValue", optional_of(A), A, gives=A, constant=True)
def alternative_value(_none: Optional, other: object) -> object:
    """Return the argument, which the evaluators evaluate only if the optional is none."""
    return other


@LIBRARY.method("first", list_of(A), gives=optional_of(A), constant=True)
def first(items: list[Any]) -> Optional:
    return Optional(True, items[0]) if items else NONE


@LIBRARY.method("last", list_of(A), gives=optional_of(A), constant=True)
def last(items: list[Any]) -> Optional:
    return Optional(True, items[-1]) if items else NONE


@LIBRARY.function("optional.unwrap", list_of(optional_of(A)), gives=list_of(A))
@LIBRARY.method("unwrapOpt", list_of(optional_of(A)), gives=list_of(A))
def unwrap_optionals(items: list[Any]) -> list[object]:
    for item in items:
        if type(item) is not Optional:
            raise no_overload("unwrapOpt()", items, item)
    return [item.value for item in items if item.present]
