"""Regular expressions beyond matches(): Kubernetes' (regex.go) and cel-go's (ext/regex.go)."""

from rules_engine.cel.budget import MAX_RESULT_ITEMS, Budget
from rules_engine.cel.library.lists import check_list_length
from rules_engine.cel.values.functions import Library
from rules_engine.cel.values.regex import Pattern, prepare_pattern
from rules_engine.cel.values.types import INT, STRING, list_of

LIBRARY = Library()


@LIBRARY.method("find", STRING, STRING, gives=STRING, budgeted=True)
def find_first(budget: Budget, text: str, pattern: str | Pattern) -> str:
    matches = prepare_pattern(budget, pattern).find_all(text, 1, budget)
    return matches[0] if matches else ""


@LIBRARY.method("findAll", STRING, STRING, gives=list_of(STRING), budgeted=True)
@LIBRARY.method("findAll", STRING, STRING, INT, gives=list_of(STRING), budgeted=True)
def find_all(budget: Budget, text: str, pattern: str | Pattern, limit: int = -1) -> list[str]:
    most = limit if 0 <= limit <= MAX_RESULT_ITEMS else MAX_RESULT_ITEMS + 1
    return check_list_length(prepare_pattern(budget, pattern).find_all(text, most, budget))
