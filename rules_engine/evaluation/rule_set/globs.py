"""Globs over names: `*` is any run of characters, also of `/`; `?` is any one."""

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_COMPILED = 4096
"""Compiled globs that are cached; all come from rules."""


def is_glob(pattern: str) -> bool:
    """Return True if a pattern has a wildcard: else it is an exact name."""
    return "*" in pattern or "?" in pattern


def in_any(patterns: Iterable[str], name: str) -> bool:
    """Return True if one of the patterns matches the whole name."""
    return any(pattern in ("*", name) or matches(pattern, name) for pattern in patterns)


def matches(pattern: str, name: str) -> bool:
    """Return True if the whole name matches, in time of at most the product of both lengths."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(MAX_COMPILED)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a glob as a regular expression that does not backtrack into earlier stars."""
    first, *others = (_escaped(text) for text in re.split(r"\*+", pattern))
    # The first place of a text between two stars leaves the most for the rest, so no other place is tried (`?>`).
    between = "".join(f"(?>.*?{text})" for text in others[:-1])
    return re.compile("".join([first, between, *(f".*{text}" for text in others[-1:])]), re.DOTALL)


def _escaped(text: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in text)
