"""Functions of lists: Kubernetes' (k8s.io/apiserver/pkg/cel/library/lists.go) and cel-go's (ext/lists.go, sets.go)."""

import functools
import itertools
from typing import Any

from rules_engine.language.cel.budget import (
    CHARACTERS_PER_UNIT,
    MAX_RESULT_ITEMS,
    Budget,
    CostExceeded,
    EvaluationError,
)
from rules_engine.language.cel.values import operators, types
from rules_engine.language.cel.values.functions import Library, no_overload
from rules_engine.language.cel.values.runtime_values import Duration, Uint, equals, type_of
from rules_engine.language.cel.values.types import BOOL, DYN, INT, LIST, A, list_of

LIBRARY = Library()

ORDERED = (INT, types.UINT, types.DOUBLE, BOOL, types.STRING, types.BYTES, types.TIMESTAMP, types.DURATION)
"""Types whose values have an order."""

SUMMABLE = {INT: 0, types.UINT: Uint(0), types.DOUBLE: 0.0, types.DURATION: Duration(0)}
"""Types whose values have a sum, with the sum of an empty list."""


def is_sorted(budget: Budget, items: list[Any]) -> bool:
    return all(not operators.greater(left, right, budget) for left, right in itertools.pairwise(items))


def _sum_items(zero: Any, budget: Budget, items: list[Any]) -> Any:
    """Return the sum of items. `zero`: that of an empty list, whose type is unknown."""
    if not items:
        return zero
    if type_of(items[0]) not in SUMMABLE:
        raise no_overload("sum()", items[0])
    return functools.reduce(lambda result, item: operators.add(result, item, budget), items)


def _extreme_item(name: str, budget: Budget, items: list[Any]) -> Any:
    if not items:
        raise EvaluationError(f"{name}() of an empty list")
    best = items[0]
    if type_of(best) not in ORDERED:
        raise no_overload(f"{name}()", best)
    better = operators.greater if name == "max" else operators.less
    for item in items[1:]:
        if better(item, best, budget):
            best = item
    return best


@LIBRARY.method("indexOf", list_of(A), A, gives=INT, budgeted=True)
def index_of(budget: Budget, items: list[Any], wanted: Any) -> int:
    return next((place for place, item in enumerate(items) if equals(item, wanted, budget)), -1)


@LIBRARY.method("lastIndexOf", list_of(A), A, gives=INT, budgeted=True)
def last_index_of(budget: Budget, items: list[Any], wanted: Any) -> int:
    return next((place for place in reversed(range(len(items))) if equals(items[place], wanted, budget)), -1)


@LIBRARY.method("slice", list_of(A), INT, INT, gives=list_of(A))
def slice_of(items: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError("the slice is out of range")
    return items[start:end]


@LIBRARY.method("flatten", LIST, gives=LIST, budgeted=True)
@LIBRARY.method("flatten", LIST, INT, gives=LIST, budgeted=True)
def flatten(budget: Budget, items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationError("the depth is negative")
    # Open lists, innermost last: a stack, since values may be nested deeper than Python's recursion limit.
    flat: list[Any] = []
    stack = [(iter(items), depth)]
    while stack:
        current, left = stack[-1]
        for item in current:
            budget.spend(1)
            if type(item) is list and left:
                stack.append((iter(item), left - 1))
                break
            flat.append(item)
        else:
            stack.pop()
    return check_list_length(flat)


def check_list_length(items: list[Any]) -> list[Any]:
    """Return a list result. Raises CostExceeded if it is too long."""
    if len(items) > MAX_RESULT_ITEMS:
        raise CostExceeded(f"a list result has more than {MAX_RESULT_ITEMS} elements")
    return items


@LIBRARY.method("reverse", list_of(A), gives=list_of(A))
def reverse(items: list[Any]) -> list[Any]:
    return items[::-1]


@LIBRARY.method("distinct", list_of(A), gives=list_of(A), budgeted=True)
def distinct(budget: Budget, items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    strings: set[str] = set()
    for item in items:
        if type(item) is str:
            budget.spend(len(item) // CHARACTERS_PER_UNIT)
            if item not in strings:
                strings.add(item)
                kept.append(item)
            continue
        budget.spend(len(kept))
        if not any(equals(item, other, budget) for other in kept):
            kept.append(item)
    return kept


def sort(budget: Budget, items: list[Any]) -> list[Any]:
    return sort_by(budget, items, items)


def sort_by(budget: Budget, items: list[Any], keys: list[Any]) -> list[Any]:
    """Return the items in the order of their keys, which must be of one type that has an order."""
    if not items:
        return []
    kind = type(keys[0])
    if type_of(keys[0]) not in ORDERED:
        raise EvaluationError(f"values of type {type_of(keys[0])} have no order")
    if any(type(key) is not kind for key in keys):
        raise EvaluationError("values of different types have no order")

    def compare(left: int, right: int) -> int:
        budget.spend(2)
        return int(operators.greater(keys[left], keys[right], budget)) - int(
            operators.less(keys[left], keys[right], budget)
        )

    return [items[place] for place in sorted(range(len(items)), key=functools.cmp_to_key(compare))]


@LIBRARY.function("lists.range", INT, gives=list_of(INT), budgeted=True)
def range_of(budget: Budget, count: int) -> list[int]:
    if count < 0:
        raise EvaluationError("the size is negative")
    if count > MAX_RESULT_ITEMS:
        raise CostExceeded(f"a list result has more than {MAX_RESULT_ITEMS} elements")
    budget.spend(count)
    return list(range(count))


@LIBRARY.method("includes", DYN, DYN, gives=BOOL, budgeted=True)
def includes(budget: Budget, value: Any, wanted: Any) -> bool:
    """Return whether a list has an element, or any other value equals it."""
    items = value if type(value) is list else [value]
    return any(equals(item, wanted, budget) for item in items)


def _contains_item(budget: Budget, items: list[Any], wanted: Any) -> bool:
    budget.spend(len(items))
    return any(equals(item, wanted, budget) for item in items)


@LIBRARY.function("sets.contains", list_of(A), list_of(A), gives=BOOL, budgeted=True)
def contains_all(budget: Budget, items: list[Any], wanted: list[Any]) -> bool:
    return all(_contains_item(budget, items, item) for item in wanted)


@LIBRARY.function("sets.equivalent", list_of(A), list_of(A), gives=BOOL, budgeted=True)
def equivalent(budget: Budget, left: list[Any], right: list[Any]) -> bool:
    return contains_all(budget, left, right) and contains_all(budget, right, left)


@LIBRARY.function("sets.intersects", list_of(A), list_of(A), gives=BOOL, budgeted=True)
def intersects(budget: Budget, left: list[Any], right: list[Any]) -> bool:
    return any(_contains_item(budget, left, item) for item in right)


for _kind in ORDERED:
    LIBRARY.method("isSorted", list_of(_kind), gives=BOOL, budgeted=True)(is_sorted)
    LIBRARY.method("min", list_of(_kind), gives=_kind, budgeted=True)(functools.partial(_extreme_item, "min"))
    LIBRARY.method("max", list_of(_kind), gives=_kind, budgeted=True)(functools.partial(_extreme_item, "max"))
    LIBRARY.method("sort", list_of(_kind), gives=list_of(_kind), budgeted=True)(sort)
for _kind, _zero in SUMMABLE.items():
    LIBRARY.method("sum", list_of(_kind), gives=_kind, budgeted=True)(functools.partial(_sum_items, _zero))
