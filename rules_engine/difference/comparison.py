"""Comparison of two outcomes of a pod."""

from collections.abc import Iterator, Set

from msgspec.structs import replace

from rules_engine.difference.values import Amount, Change, Kind, Outcome
from rules_engine.model.rules.decision import resource_of
from rules_engine.model.rules.rule import RuleId


def compare_outcomes(before: Outcome, after: Outcome) -> Change | None:
    """Return the change of a pod's outcome; None if both are equal. Locations of rules are not compared."""
    if before.unknown or after.unknown:
        if before.known_key is not None and before.known_key == after.known_key:
            return None
        unknown = frozenset({Kind.UNKNOWN})
        return Change(kinds=unknown, before=replace(before, known_key=None), after=replace(after, known_key=None))
    kinds = frozenset(_change_kinds(before, after))
    return Change(kinds=kinds, before=before, after=after) if kinds else None


def differing_rules(change: Change) -> tuple[RuleId, ...]:
    """Return the rules with different effects before and after; none if an outcome is unknown."""
    if change.before.unknown or change.after.unknown:
        return ()
    before, after = _effects_by_rule(change.before), _effects_by_rule(change.after)
    rules = {rule for rule in {*before, *after} if before.get(rule) != after.get(rule)}
    return tuple(sorted({*rules, *_amount_changing_rules(change, rules)}))


def _amount_changing_rules(change: Change, others: Set[RuleId]) -> Iterator[RuleId]:
    """Yield the rules that request another number of devices, unless `others` explain it: an effect has no numbers."""
    if not change.after.allowed:
        return
    amounts = {amount.resource for amount in {*change.before.resources} ^ {*change.after.resources}}
    for deciding in (*change.before.deciding, *change.after.deciding):
        if deciding.rule in others:
            amounts -= {resource_of(fallback.given) for fallback in deciding.fallbacks} | {
                resource for _, resource, _ in deciding.amounts
            }
    yield from (fallback.rule for fallback in change.before.fallbacks if resource_of(fallback.given) in amounts)


def _change_kinds(before: Outcome, after: Outcome) -> Iterator[Kind]:
    if before.allowed != after.allowed:
        yield Kind.ADMITTED if after.allowed else Kind.DENIED
        return
    kinds = [*_outcome_kinds(before, after)]
    yield from kinds
    if not kinds and _effects_by_rule(before).keys() != _effects_by_rule(after).keys():
        yield Kind.RULE


def _outcome_kinds(before: Outcome, after: Outcome) -> Iterator[Kind]:
    moved, explained = _differing_moves(before, after)
    if moved:
        yield Kind.RUNG
    if _unmoved_amounts(before.resources, moved) != _unmoved_amounts(after.resources, moved):
        yield Kind.RESOURCES
    if any(key not in explained for key, _ in {*before.annotations} ^ {*after.annotations}):
        yield Kind.ANNOTATIONS
    if {*before.warnings} != {*after.warnings}:  # their order depends only on the order of rules
        yield Kind.WARNINGS
    if before.message != after.message:
        yield Kind.MESSAGE


def _differing_moves(before: Outcome, after: Outcome) -> tuple[Set[str], Set[str]]:
    """Return the resources of moves on one side only, and the keys of annotations that the moving rules write."""
    old = {(fallback.requested, fallback.given) for fallback in before.fallbacks}
    new = {(fallback.requested, fallback.given) for fallback in after.fallbacks}
    different = old ^ new
    keys = {
        key
        for deciding in (*before.deciding, *after.deciding)
        if any((fallback.requested, fallback.given) in different for fallback in deciding.fallbacks)
        for key, _ in deciding.annotations
    }
    return {resource for move in different for resource in move}, keys


def _unmoved_amounts(amounts: tuple[Amount, ...], moved: Set[str]) -> list[Amount]:
    return [amount for amount in amounts if amount.resource not in moved]


def _effects_by_rule(outcome: Outcome) -> dict[RuleId, tuple[object, ...]]:
    return {deciding.rule: deciding.effect for deciding in outcome.deciding if deciding.effect}
