"""Globs over names: `*` matches any run of characters, also `/`; `?` matches one character.

They are not compiled to regular expressions: 10,000 take seconds to compile, and milliseconds to compare with a name.
"""

from collections.abc import Iterable


def is_glob(pattern: str) -> bool:
    """Return True if a pattern has a wildcard: else it is an exact name."""
    return "*" in pattern or "?" in pattern


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Return True if one of the patterns matches the whole name."""
    return any(pattern in ("*", name) or matches_glob(pattern, name) for pattern in patterns)


def matches_glob(pattern: str, name: str) -> bool:
    """Return True if the whole name matches, in time of at most the product of both lengths."""
    first, *between = pattern.split("*")
    if not between:
        return len(first) == len(name) and _has_text_at(first, name, 0)
    last = between.pop()
    at, end = len(first), len(name) - len(last)
    if at > end or not (_has_text_at(first, name, 0) and _has_text_at(last, name, end)):
        return False
    for text in between:
        # The first place of a text between two stars leaves the most for the texts after it, so no other is tried.
        at = _first_position(text, name, at, end)
        if at < 0:
            return False
        at += len(text)
    return True


def _first_position(text: str, name: str, start: int, end: int) -> int:
    """Return the first place of the text in a part of the name, or -1."""
    if "?" not in text:
        return name.find(text, start, end)
    return next((place for place in range(start, end - len(text) + 1) if _has_text_at(text, name, place)), -1)


def _has_text_at(text: str, name: str, place: int) -> bool:
    """Return True if the name has the text at a place; it is long enough."""
    if "?" not in text:
        return name.startswith(text, place)
    return all(expected in ("?", actual) for expected, actual in zip(text, name[place:], strict=False))
