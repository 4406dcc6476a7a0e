"""Strings (cel-go, ext/strings.go)."""

from rules_engine.cel.functions import Library
from rules_engine.cel.types import STRING

LIBRARY = Library()


def _ascii(change: dict[int, int]) -> None:
    pass


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code + 32: code for code in range(ord("A"), ord("Z") + 1)}


@LIBRARY.method("lowerAscii", STRING, gives=STRING)
def lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


@LIBRARY.method("upperAscii", STRING, gives=STRING)
def upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


@LIBRARY.method("trim", STRING, gives=STRING)
def trim(text: str) -> str:
    return text.strip()
