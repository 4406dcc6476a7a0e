"""Regular expressions beyond matches(): Kubernetes' (regex.go) and cel-go's (ext/regex.go)."""

from rules_engine.cel import regex
from rules_engine.cel.functions import Library
from rules_engine.cel.types import INT, STRING, list_of

LIBRARY = Library()


@LIBRARY.method("find", STRING, STRING, gives=STRING)
def find(text: str, pattern: str) -> str:
    found = regex.compiled(pattern).find_all(text, 1)
    return found[0] if found else ""


@LIBRARY.method("findAll", STRING, STRING, gives=list_of(STRING))
@LIBRARY.method("findAll", STRING, STRING, INT, gives=list_of(STRING))
def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return regex.compiled(pattern).find_all(text, limit)
