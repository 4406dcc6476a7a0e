"""Lists as sets (cel-go, ext/sets.go)."""

from typing import Any

from rules_engine.cel.budget import Budget
from rules_engine.cel.values.functions import Library
from rules_engine.cel.values.runtime_values import equals
from rules_engine.cel.values.types import BOOL, A, list_of

LIBRARY = Library()


def _contains_item(budget: Budget, items: list[Any], wanted: Any) -> bool:
    budget.spend(len(items))
    return any(equals(item, wanted, budget) for item in items)


@LIBRARY.function("sets.contains", list_of(A), list_of(A), gives=BOOL, budgeted=True)
def contains(budget: Budget, items: list[Any], wanted: list[Any]) -> bool:
    return all(_contains_item(budget, items, item) for item in wanted)


@LIBRARY.function("sets.equivalent", list_of(A), list_of(A), gives=BOOL, budgeted=True)
def equivalent(budget: Budget, left: list[Any], right: list[Any]) -> bool:
    return contains(budget, left, right) and contains(budget, right, left)


@LIBRARY.function("sets.intersects", list_of(A), list_of(A), gives=BOOL, budgeted=True)
def intersects(budget: Budget, left: list[Any], right: list[Any]) -> bool:
    return any(_contains_item(budget, left, item) for item in right)
