"""Regular expressions as Kubernetes has them: RE2, in time linear in the text. The only module that knows re2."""

from functools import lru_cache

import re2

from rules_engine.cel.bounds import EvaluationError

MAX_PATTERN = 1_000
"""Characters in a pattern: RE2 takes memory in proportion to what counted repetition unfolds it to."""


@lru_cache(maxsize=256)  # rules have few patterns; the bound keeps patterns made from a pod's strings from growing it
def compiled(pattern: str) -> "re2._Regexp[str]":
    """A pattern ready to use. Raises EvaluationError for one that RE2 does not accept."""
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"a regular expression has at most {MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise EvaluationError(f"invalid regular expression: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def search(pattern: str, text: str) -> bool:
    """Whether the pattern occurs anywhere in the text."""
    return compiled(pattern).search(text) is not None


def find_all(pattern: str, text: str, limit: int) -> list[str]:
    """The texts of the matches that do not overlap, at most `limit` of them if it is not negative."""
    found: list[str] = []
    for match in compiled(pattern).finditer(text):
        if 0 <= limit <= len(found):
            break
        found.append(match.group())
    return found
