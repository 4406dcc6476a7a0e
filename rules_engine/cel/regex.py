"""Regular expressions as Kubernetes has them: RE2, in time linear in the text. The only module that knows re2.

Patterns go to RE2 itself, under the module's own wrapper: the wrapper takes 12 µs for a match that RE2 does in one.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import re2

from rules_engine.cel import types
from rules_engine.cel.bounds import CHARACTERS_PER_UNIT, Budget, EvaluationError
from rules_engine.cel.types import Type

MAX_PATTERN = 1_000
"""Characters in a pattern: RE2 takes memory in proportion to what counted repetition unfolds it to."""

MAX_MEMORY = 2**20
"""Bytes that RE2 may take for a pattern: real ones need a few thousand; it bounds the time to compile one to 15 ms."""

DYNAMIC_COST = 10_000
"""Cost of a pattern that is made while evaluating: what compiling the worst one takes."""

PATTERN_CHARACTERS_PER_UNIT = 4
"""Characters of a pattern that multiply the cost of reading the text by one (cel-go, RegexStringLengthCostFactor)."""

_RE2: Any = re2._re2.RE2  # noqa: SLF001
_UNANCHORED = _RE2.Anchor.UNANCHORED
_NOWHERE = (-1, -1)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern, which threads may share. Stands for its string as an argument of a function."""

    cel_type: ClassVar[Type] = types.STRING
    _regexp: Any
    _length: int

    def charge(self, text: str, budget: Budget) -> None:
        """Count what matching a text costs, by the lengths of both as Kubernetes does."""
        factor = 1 + self._length // PATTERN_CHARACTERS_PER_UNIT
        budget.spend(len(text) // CHARACTERS_PER_UNIT * factor)

    def occurs_in(self, text: str) -> bool:
        """Whether the pattern occurs anywhere in the text."""
        data = _encoded(text)
        return bool(self._regexp.Match(_UNANCHORED, data, 0, len(data))[0] != _NOWHERE)

    def find_all(self, text: str, limit: int) -> list[str]:
        """The texts of the matches that do not overlap, at most `limit` of them."""
        data = _encoded(text)
        found: list[str] = []
        position, last = 0, -1
        while position <= len(data) and len(found) != limit:
            start, end = self._regexp.Match(_UNANCHORED, data, position, len(data))[0]
            if start < 0:
                break
            # As in Go, an empty match right behind the match before it does not count.
            if end > start or start != last:
                found.append(data[start:end].decode())
                last = end
            position = end if end > start else end + _width(data, end)
        return found


def _width(data: bytes, position: int) -> int:
    """Bytes of the character at a position; 1 at the end."""
    lead = data[position] if position < len(data) else 0
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EvaluationError("the string has a lone surrogate") from None


@lru_cache(maxsize=256)  # rules have few patterns; the bound keeps patterns made from a pod's strings from growing it
def compiled(pattern: str) -> Pattern:
    """A pattern ready to use. Raises EvaluationError for one that RE2 does not accept."""
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"a regular expression has at most {MAX_PATTERN} characters")
    regexp = _RE2(_encoded(pattern), _options())
    if not regexp.ok():
        raise EvaluationError("invalid regular expression")
    return Pattern(regexp, len(pattern))


def prepared(budget: Budget, text: str, pattern: str | Pattern) -> Pattern:
    """The pattern for this text, with its cost counted; a literal pattern comes compiled."""
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
    """What RE2 says of a pattern that it does not accept; for load, where the pattern is the author's."""
    regexp = _RE2(pattern[:MAX_PATTERN].encode(errors="replace"), _options())
    return None if regexp.ok() else str(regexp.error().decode(errors="replace"))
