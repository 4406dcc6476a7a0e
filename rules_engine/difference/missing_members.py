"""Rules that read what the input lacks: the user of manifests and live pods, and secrets of recorded requests."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, reduce
from typing import Any

from rules_engine.difference.values import Contribution
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.admission import Admission
from rules_engine.evaluation.applicability import UNMATCHED_REASONS
from rules_engine.evaluation.fields_read import fields_read_by
from rules_engine.model.kubernetes.kept_fields import NO_FIELDS, Kept, keeps_path, merge_fields
from rules_engine.model.kubernetes.removed_values import Path
from rules_engine.model.problems.source import Field, Location, SourceText
from rules_engine.model.rules.decision import UNMET_CONDITION, Action, Step
from rules_engine.model.rules.rule import RuleId


class RuleReads:
    """The members of requests that the rules of a set read."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._rules = {compiled.rule.id: compiled.rule for compiled in rule_set.rules}
        self._reads = {compiled.rule.id: fields_read_by(compiled, compiled.programs) for compiled in rule_set.rules}
        self._all_reads = reduce(merge_fields, self._reads.values(), NO_FIELDS)
        self._condition_reads: dict[tuple[RuleId, tuple[Field, ...]], Kept] = {
            (compiled.rule.id, condition.fields): fields_read_by(compiled, (condition.program,))
            for compiled in rule_set.rules
            for condition in compiled.conditions
        }

    @cached_property
    def _contents(self) -> Hashable:
        """The contents of all rules: equal for rule sets that decide alike."""
        return tuple(map(_rule_content, self._rules.values()))

    def dependent_rules(self, admission: Admission, missing: Mapping[str, Path]) -> Mapping[RuleId, Collection[str]]:
        """Return the rules that may decide differently with the missing members, in the order of evaluation.

        `missing`: paths of members, by name. Each rule has the names of those that it reads.
        """
        missing = {name: path for name, path in missing.items() if keeps_path(self._all_reads, *path)}
        found = {}
        for step in admission.trace if missing else ():
            reads = self._reads_of(step)
            names = [name for name, path in missing.items() if keeps_path(reads, *path)]
            if names:
                found[step.rule] = names
        return found

    def _reads_of(self, step: Step) -> Kept:
        """Return the members on which a step depends.

        A rule that does not match evaluates no expression. One false condition skips a rule, whatever the others.
        """
        if step.audit or (step.action is Action.SKIP and step.reason in UNMATCHED_REASONS):
            return NO_FIELDS
        if step.reason == UNMET_CONDITION:
            return self._condition_reads.get((step.rule, step.fields), NO_FIELDS)
        return self._reads.get(step.rule, NO_FIELDS)

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
