"""Overlap of rules: whether one matches every pod that another matches, and which comes first."""

from collections.abc import Sequence

from rules_engine.evaluation.rule_set.globs import is_glob, matches
from rules_engine.model.rules import Match, Mode, OptOut, Rule


def always_first(earlier: Rule, later: Rule) -> bool:
    """Return True if the earlier rule always decides the requests that it shares with the later one."""
    if earlier.mode is not Mode.ENFORCE or earlier.match_conditions or not covers(earlier.match, later.match):
        return False
    # A pod that opts out of the earlier one alone is decided by the later one. (So is one that makes an expression of a
    # rule fail which is ignored then; no author relies on that.)
    return earlier.opt_out is OptOut.FORBIDDEN or later.opt_out is OptOut.ALLOWED


def precedence(earlier: Rule, later: Rule) -> str:
    return "name" if earlier.priority == later.priority else "priority"


def may_match(match: Match, namespace: str) -> bool:
    included = any(matches(pattern, namespace) for pattern in match.namespaces)
    return included and not any(matches(pattern, namespace) for pattern in match.exclude_namespaces)


def covers(wide: Match, narrow: Match) -> bool:
    """Return True if `wide` certainly matches every pod that `narrow` matches."""
    included = all(any_wider(wide.namespaces, name) for name in narrow.namespaces)
    left_in = all(
        any_wider(narrow.exclude_namespaces, excluded)
        or not any(is_glob(name) or _is_wider(excluded, name) for name in narrow.namespaces)
        for excluded in wide.exclude_namespaces
    )
    selected = all(
        set(broad.requirements) <= set(strict.requirements)
        for broad, strict in (
            (wide.namespace_selector, narrow.namespace_selector),
            (wide.object_selector, narrow.object_selector),
        )
    )
    return included and left_in and selected


def any_wider(patterns: Sequence[str], name: str) -> bool:
    return any(_is_wider(pattern, name) for pattern in patterns)


def _is_wider(pattern: str, name: str) -> bool:
    """Return True if a glob certainly matches all that `name`, a name or a glob, matches."""
    return pattern in ("*", name) or (not is_glob(name) and matches(pattern, name))
