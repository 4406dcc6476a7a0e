"""Globs over names: `*` is any run of characters, also of `/`; `?` is any one."""

from collections.abc import Iterable


def is_glob(pattern: str) -> bool:
    """Return True if a pattern has a wildcard: else it is an exact name."""
    return "*" in pattern or "?" in pattern


def in_any(patterns: Iterable[str], name: str) -> bool:
    """Return True if one of the patterns matches the whole name."""
    return any(pattern in ("*", name) or matches(pattern, name) for pattern in patterns)


def matches(pattern: str, name: str) -> bool:
    """Return True if the whole name matches: `*` is any run of characters, `?` any one. Never exponential."""
    p = n = 0
    star, resume = -1, 0
    while n < len(name):
        if p < len(pattern) and pattern[p] == "*":
            star, resume = p, n
            p += 1
        elif p < len(pattern) and pattern[p] in ("?", name[n]):
            p += 1
            n += 1
        elif star >= 0:
            # Only the last star has to be tried again: it takes one more character.
            resume += 1
            p, n = star + 1, resume
        else:
            return False
    return all(character == "*" for character in pattern[p:])
