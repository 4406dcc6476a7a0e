"""Regular expressions as in Kubernetes: RE2, in time linear in the text. The only module that imports re2.

re2 always receives bytes, never str: for str it converts the offsets of every group of a match to characters, which
takes 2 to 4 µs of a search. A search in bytes takes 1.5 µs, of which RE2 itself takes 0.7. Offsets count bytes.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import re2

from rules_engine.language.cel.budget import CHARACTERS_PER_UNIT, Budget, EvaluationError
from rules_engine.language.cel.values import types
from rules_engine.language.cel.values.types import Type

MAX_PATTERN = 1_000
"""Characters in a pattern: RE2 uses memory in proportion to the pattern with its counted repetitions expanded."""

MAX_MEMORY = 2**20
"""Bytes that RE2 may use for a pattern: real ones need a few thousand. Bounds the time to compile one to 15 ms."""

MAX_PROGRAM = 10_000
"""Instructions of RE2 for a pattern, with its counted repetitions expanded: a{1000} has 1,004."""

DYNAMIC_COST = 10_000
"""Cost of a pattern computed during evaluation, with few characters: x{1000} of a class takes 10 ms to compile."""

DYNAMIC_CHARACTER_COST = 50
"""Additional cost of each of its characters: RE2 parses (?i)\\PL 300 times in 40 ms before it refuses the result."""

INSTRUCTIONS_PER_FACTOR = 4
"""Instructions that multiply the cost of reading the text by one. Where RE2 cannot build an automaton of a few states,
it takes 10 ns for each byte and instruction. cel-go multiplies by a quarter of the pattern's length, which is about the
same without counted repetitions (RegexStringLengthCostFactor)."""

MATCH_COST = 3
"""Cost of a match, in addition to the cost of the search: 3 µs of Python."""

MAX_CACHED = 128
"""Cached patterns, refused ones included: patterns made from a pod's strings cannot exceed it. re2 caches as many
again."""

_ESCAPES = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
"""Escapes of a pattern; \\Q…\\E is one escape."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern, safe to share between threads. Replaces its string as an argument of a function."""

    cel_type: ClassVar[Type] = types.STRING
    _regexp: Any
    _factor: int
    """Units for CHARACTERS_PER_UNIT bytes of a text."""

    def charge(self, length: int, budget: Budget) -> None:
        """Spend the cost of one search in `length` bytes, which depends on the size of the pattern as well."""
        budget.spend(length * self._factor // CHARACTERS_PER_UNIT)

    def occurs_in(self, text: str, budget: Budget) -> bool:
        """Return True if the pattern matches anywhere in the text."""
        data = _encode_text(text)
        self.charge(len(data), budget)
        return self._regexp.search(data) is not None

    def find_all(self, text: str, limit: int, budget: Budget) -> list[str]:
        """Return the non-overlapping matches, at most `limit` of them; a negative limit means all.

        Each match costs a search in the rest of the text: RE2 may read all of it to know where a match ends.
        """
        data = _encode_text(text)
        self.charge(len(data), budget)
        matches: list[str] = []
        position, last = 0, -1
        for match in self._regexp.finditer(data) if limit else ():
            start, end = match.span()
            # re2 continues one byte after an empty match, or repeats it: the next one starts after a whole character.
            if start < position:
                continue
            # As in Go, an empty match directly after the previous match does not count.
            if end > start or start != last:
                matches.append(data[start:end].decode())
                last = end
                if len(matches) == limit:
                    break
            position = end if end > start else end + _character_width(data, end)
            budget.spend(MATCH_COST)
            self.charge(len(data) - position, budget)
        return matches


def _character_width(data: bytes, position: int) -> int:
    """Return the number of bytes of the character at a position; 1 at the end."""
    lead = data[position] if position < len(data) else 0
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EvaluationError("the string has a lone surrogate") from None


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern. Raises EvaluationError, which does not repeat the pattern."""
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"a regular expression has at most {MAX_PATTERN} characters")
    result = _compile_cached(pattern)
    if isinstance(result, str):
        raise EvaluationError(result)
    return result


@lru_cache(maxsize=MAX_CACHED)
def _compile_cached(pattern: str) -> Pattern | str:
    """Return the pattern, or the reason why it is refused: a refusal may take as long, so it is cached as well."""
    data = _encode_text(pattern)
    if "\\C" in _ESCAPES.findall(pattern):
        return "a regular expression cannot match a single byte with \\C"
    try:
        regexp = re2.compile(data, _re2_options())
    except re2.error:
        return "invalid regular expression"
    if regexp.programsize > MAX_PROGRAM:
        return f"a regular expression has at most {MAX_PROGRAM} instructions"
    # Only named groups are captured; for each, RE2 copies the others as well.
    return Pattern(regexp, 1 + regexp.programsize * (1 + regexp.groups) // INSTRUCTIONS_PER_FACTOR)


def prepare_pattern(budget: Budget, pattern: str | Pattern) -> Pattern:
    """Return the compiled pattern; literals were compiled at load. Raises EvaluationError."""
    if isinstance(pattern, Pattern):
        return pattern
    budget.spend(DYNAMIC_COST + DYNAMIC_CHARACTER_COST * min(len(pattern), MAX_PATTERN))
    return compile_pattern(pattern)


def _re2_options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    options.never_capture = True
    return options


def pattern_error(pattern: str) -> str | None:
    """Return RE2's error for a pattern, None if it is valid. For load time, when the rule's author reads it."""
    try:
        re2.compile(pattern[:MAX_PATTERN].encode(errors="replace"), _re2_options())
    except re2.error as error:
        message: bytes = error.args[0]
        return message.decode(errors="replace")
    return None
