"""Overlap of rules: comparison of the pods that they match, and of their order."""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from rules_engine.model.rules.rule import ConditionKind, LabelSelector, Match, Mode, OptOut, Rule
from rules_engine.rules.rule_set.globs import is_glob, matches_glob

R = TypeVar("R", bound=Rule)


class EarlierRules(Generic[R]):
    """Earlier rules in the order of evaluation, indexed by namespace: most rules name a few of thousands."""

    def __init__(self) -> None:
        self._rules: list[R] = []
        self._by_name: dict[str, list[int]] = {}
        self._by_glob: dict[str, list[int]] = {}

    def add(self, rule: R) -> None:
        for name in rule.match.namespaces:
            (self._by_glob if is_glob(name) else self._by_name).setdefault(name, []).append(len(self._rules))
        self._rules.append(rule)

    def matching(self, namespace: str) -> Iterator[R]:
        """Yield the rules with a pattern that certainly covers `namespace`, a name or a glob."""
        rule_positions = {*self._by_name.get(namespace, ())}
        for glob, positions in self._by_glob.items():
            if _is_wider(glob, namespace):
                rule_positions.update(positions)
        for position in sorted(rule_positions):
            yield self._rules[position]


def always_first(earlier: Rule, later: Rule) -> bool:
    """Return True if the earlier rule always decides the requests that it shares with the later one."""
    if earlier.mode is not Mode.ENFORCE or earlier.match_conditions or not covers_match(earlier.match, later.match):
        return False
    # The later rule decides a pod that opts out of the earlier rule alone. (Likewise a pod on which an expression of
    # the earlier rule fails with failurePolicy Ignore, but no author relies on that.)
    return earlier.opt_out is OptOut.FORBIDDEN or later.opt_out is OptOut.ALLOWED


def precedence_basis(earlier: Rule, later: Rule) -> str:
    return "name" if earlier.priority == later.priority else "priority"


def may_match(match: Match, namespace: str) -> bool:
    included = any(matches_glob(pattern, namespace) for pattern in match.namespaces)
    return included and not any(matches_glob(pattern, namespace) for pattern in match.exclude_namespaces)


def covers_match(wide: Match, narrow: Match) -> bool:
    """Return True if `wide` certainly matches every pod that `narrow` matches."""
    included = all(any_wider(wide.namespaces, name) for name in narrow.namespaces)
    kept = all(
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
    counted = not wide.resources or (
        narrow.resources and all(any_wider(wide.resources, name) for name in narrow.resources)
    )
    return bool(included and kept and selected and counted)


def may_share_pods(first: Rule, second: Rule) -> bool:
    """Return True unless no pod matches both rules, by exact namespaces of one of them or by their annotations."""
    for names in (first.match.namespaces, second.match.namespaces):
        shared = (is_glob(name) or (may_match(first.match, name) and may_match(second.match, name)) for name in names)
        if not any(shared):
            return False
    wanted, other = first.interests.annotation, second.interests.annotation
    return wanted is None or other is None or wanted[0] != other[0] or wanted[1] == other[1]


def any_wider(patterns: Sequence[str], name: str) -> bool:
    return any(_is_wider(pattern, name) for pattern in patterns)


def _is_wider(pattern: str, name: str) -> bool:
    """Return True if a pattern certainly matches every name that `name`, a name or a glob, matches."""
    return pattern in ("*", name) or (not is_glob(name) and matches_glob(pattern, name))


def contradictory_key(selector: LabelSelector) -> str | None:
    """Return a key whose requirements no value and no absence of the label can meet; None if there is no such key."""
    for key in dict.fromkeys(requirement.key for requirement in selector.requirements):
        requirements = [requirement for requirement in selector.requirements if requirement.key == key]
        allowed = [{*requirement.values} for requirement in requirements if requirement.operator is ConditionKind.IN]
        # A null character stands for all values that no requirement names.
        values = allowed[0] if allowed else {"\0"}
        labels: list[dict[str, str]] = [{}, *({key: value} for value in sorted(values))]
        if not any(all(requirement.matches(label) for requirement in requirements) for label in labels):
            return key
    return None
