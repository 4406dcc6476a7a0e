"""Comparison of two outcomes of a pod."""

from collections.abc import Iterator, Sequence, Set

from rules_engine.difference.values import Change, ContainerAmount, DifferingRule, Kind, Outcome, UnknownOutcome
from rules_engine.model.rules.decision import resource_of
from rules_engine.model.rules.rule import RuleId


def compare_outcomes(before: Outcome, after: Outcome) -> Change | None:
    """Return the change of a pod's outcome; None if both are equal. Locations of rules are not compared."""
    if before.unknown or after.unknown:
        keys = [each.known_key for each in (before, after) if isinstance(each, UnknownOutcome)]
        if len(keys) == 2 and keys[0] == keys[1]:
            return None
        before, after = _without_key(before), _without_key(after)
        return Change(kinds=(Kind.UNKNOWN,), rules=(), before=before, after=after)
    kinds = tuple(_change_kinds(before, after))
    return Change(kinds=kinds, rules=_differing_rules(before, after), before=before, after=after) if kinds else None


def _without_key(outcome: Outcome) -> Outcome:
    return Outcome(unknown=outcome.unknown, allowed=None) if outcome.unknown else outcome


def _differing_rules(before: Outcome, after: Outcome) -> tuple[DifferingRule, ...]:
    """Return the rules with different effects before and after, by name."""
    old, new = _effects_by_rule(before), _effects_by_rule(after)
    rules = {rule for rule in {*old, *new} if old.get(rule) != new.get(rule)}
    rules |= {*_amount_changing_rules(before, after, rules)}
    old_places, new_places = ({each.rule: each.source for each in side.rules} for side in (before, after))
    return tuple(
        DifferingRule(rule=rule, before=old_places.get(rule), after=new_places.get(rule)) for rule in sorted(rules)
    )


def _amount_changing_rules(before: Outcome, after: Outcome, others: Set[RuleId]) -> Iterator[RuleId]:
    """Yield the rules that request another number of devices, unless `others` explain it: an effect has no numbers."""
    if not (before.allowed and after.allowed):
        return
    amounts = {amount.resource for amount in {*before.resources} ^ {*after.resources}}
    for each in (*before.rules, *after.rules):
        if each.rule in others:
            amounts -= {resource_of(move.given) for move in each.fallbacks}
            amounts -= {written.resource for written in each.amounts}
    yield from (each.rule for each in before.rules for move in each.fallbacks if resource_of(move.given) in amounts)


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
    if any(key not in explained for key, _ in {*before.annotations.items()} ^ {*after.annotations.items()}):
        yield Kind.ANNOTATIONS
    if {*before.warnings} != {*after.warnings}:  # their order depends only on the order of rules
        yield Kind.WARNINGS
    if before.message != after.message:
        yield Kind.MESSAGE


def _differing_moves(before: Outcome, after: Outcome) -> tuple[Set[str], Set[str]]:
    """Return the resources of moves on one side only, and the keys of annotations that the moving rules write."""
    different = {*before.fallbacks} ^ {*after.fallbacks}
    keys = {
        key
        for each in (*before.rules, *after.rules)
        if not different.isdisjoint(each.fallbacks)
        for key in each.annotations
    }
    return {resource for move in different for resource in (move.requested, move.given)}, keys


def _unmoved_amounts(amounts: Sequence[ContainerAmount], moved: Set[str]) -> Sequence[ContainerAmount]:
    return [amount for amount in amounts if amount.resource not in moved]


def _effects_by_rule(outcome: Outcome) -> dict[RuleId, tuple[object, ...]]:
    return {each.rule: each.effect for each in outcome.rules if each.effect}
