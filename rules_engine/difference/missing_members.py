"""Outcomes that depend on members that the input lacks: their known part."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from rules_engine.difference.values import Contribution
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.admission import Admission
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.rule import RuleId


class RuleContents:
    """The contents of the rules of a set."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._rules = {compiled.rule.id: compiled.rule for compiled in rule_set.rules}

    @cached_property
    def _contents(self) -> Hashable:
        """The contents of all rules: equal for rule sets that decide alike."""
        return tuple(map(_rule_content, self._rules.values()))

    def known_key(
        self, admission: Admission, contributions: Iterable[Contribution], dependent: Collection[RuleId]
    ) -> Hashable:
        """Return a key of all that is known and decides an outcome; of all rules if /mutate depends on what is missing.

        `contributions`: of rules to the outcome. `dependent`: the result of `dependent_rules`.
        """
        if any(step.rule in dependent for step in admission.mutation.trace):
            return self._contents
        effects = {entry.rule: entry.effect for entry in contributions if entry.effect}
        steps = tuple(
            _rule_content(self._rules[step.rule]) if step.rule in dependent else (step.rule, effects[step.rule])
            for step in admission.trace
            if step.rule in dependent or step.rule in effects
        )
        edits = admission.mutation.edits.items()
        return frozenset((path, frozenset(members.items())) for path, members in edits), steps


def _rule_content(value: Any) -> Hashable:
    """Return the content of a rule, or of a part of a rule, without locations."""
    match value:
        case Location():
            return ()
        case SourceText(text=text):
            return text
        case Mapping():
            return tuple((key, _rule_content(item)) for key, item in value.items())
        case tuple() | list():
            return tuple(map(_rule_content, value))
    name = type(value).__name__
    if is_dataclass(value):
        return name, *(_rule_content(getattr(value, field.name)) for field in fields(value) if field.compare)
    return name, value
