"""Regular expressions as in Kubernetes: RE2, in time linear in the text. The only module that imports re2.

re2 always receives bytes, never str: for str it converts the offsets of every group of a match to characters, which
takes 2 to 4 µs of a search. A search in bytes takes 1.5 µs, of which RE2 itself takes 0.7. Offsets count bytes.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import re2

from rules_engine.cel import types
from rules_engine.cel.bounds import CHARACTERS_PER_UNIT, Budget, EvaluationError
from rules_engine.cel.types import Type

MAX_PATTERN = 1_000
"""Characters in a pattern: RE2 uses memory in proportion to the pattern with its counted repetitions expanded."""

MAX_MEMORY = 2**20
"""Bytes that RE2 may use for a pattern: real ones need a few thousand. Bounds the time to compile one to 15 ms."""

DYNAMIC_COST = 10_000
"""Cost of a pattern computed during evaluation: the time to compile the worst one."""

PATTERN_CHARACTERS_PER_UNIT = 4
"""Characters of a pattern that multiply the cost of reading the text by one (cel-go, RegexStringLengthCostFactor)."""

MAX_CACHED = 128
"""Patterns that `compiled` keeps: patterns made from a pod's strings cannot grow it. re2 itself keeps as many again."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern, safe to share between threads. Replaces its string as an argument of a function."""

    cel_type: ClassVar[Type] = types.STRING
    _regexp: Any
    _length: int

    def charge(self, text: str, budget: Budget) -> None:
        """Spend the cost of matching a text, computed from both lengths as in Kubernetes."""
        factor = 1 + self._length // PATTERN_CHARACTERS_PER_UNIT
        budget.spend(len(text) // CHARACTERS_PER_UNIT * factor)

    def occurs_in(self, text: str) -> bool:
        """Return True if the pattern matches anywhere in the text."""
        return self._regexp.search(_encoded(text)) is not None

    def find_all(self, text: str, limit: int) -> list[str]:
        """Return the non-overlapping matches, at most `limit` of them; a negative limit means all."""
        data = _encoded(text)
        found: list[str] = []
        position, last = 0, -1
        for match in self._regexp.finditer(data) if limit else ():
            start, end = match.span()
            # re2 continues one byte after an empty match, or repeats it: the next one starts after a whole character.
            if start < position:
                continue
            # As in Go, an empty match directly after the previous match does not count.
            if end > start or start != last:
                found.append(data[start:end].decode())
                last = end
                if len(found) == limit:
                    break
            position = end if end > start else end + _width(data, end)
        return found


def _width(data: bytes, position: int) -> int:
    """Return the number of bytes of the character at a position; 1 at the end."""
    lead = data[position] if position < len(data) else 0
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EvaluationError("the string has a lone surrogate") from None


@lru_cache(maxsize=MAX_CACHED)
def compiled(pattern: str) -> Pattern:
    """Compile a pattern. Raises EvaluationError if RE2 does not accept it."""
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"a regular expression has at most {MAX_PATTERN} characters")
    data = _encoded(pattern)
    try:
        return Pattern(re2.compile(data, _options()), len(pattern))
    except re2.error:
        raise EvaluationError("invalid regular expression") from None


def prepared(budget: Budget, text: str, pattern: str | Pattern) -> Pattern:
    """Return the compiled pattern and spend the cost of matching this text; a literal pattern is compiled already."""
    if isinstance(pattern, str):
        budget.spend(DYNAMIC_COST)
        pattern = compiled(pattern)
    pattern.charge(text, budget)
    return pattern


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    return options


def reason(pattern: str) -> str | None:
    """Return RE2's error for a pattern, None if it is valid. For load time, when the rule's author reads it."""
    try:
        re2.compile(pattern[:MAX_PATTERN].encode(errors="replace"), _options())
    except re2.error as error:
        message: bytes = error.args[0]
        return message.decode(errors="replace")
    return None
