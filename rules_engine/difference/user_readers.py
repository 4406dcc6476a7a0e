"""Rules that read the user of a request. The user who submitted a manifest or a live pod is unknown."""

from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from msgspec import Struct

from rules_engine.cel import Program
from rules_engine.difference.values import Contribution
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.admission import Admission
from rules_engine.evaluation.applicability import UNMATCHED_REASONS
from rules_engine.evaluation.fields_read import fields_read_by
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.kubernetes.kept_fields import keeps_path
from rules_engine.model.problems.source import Field, Location, SourceText
from rules_engine.model.rules.decision import UNMET_CONDITION, Action, Step
from rules_engine.model.rules.rule import Rule, RuleId


class UserReaders:
    """The rules of a set that read the user."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._readers = {
            compiled.rule.id: _Reader.of(compiled)
            for compiled in rule_set.rules
            if _may_read_user(compiled, compiled.programs)
        }
        self._rules = tuple(compiled.rule for compiled in rule_set.rules)

    @cached_property
    def contents(self) -> Hashable:
        """The contents of all rules: equal for rule sets that decide alike."""
        return tuple(map(_rule_content, self._rules))

    def user_dependent_rules(self, admission: Admission) -> Collection[RuleId]:
        """Return the rules that may decide differently for another user, in the order of evaluation."""
        if not self._readers:
            return ()
        return dict.fromkeys(step.rule for step in admission.trace if self._depends_on_user(step))

    def _depends_on_user(self, step: Step) -> bool:
        """Return True if the step may differ for another user.

        A rule that does not match evaluates no expression. One false condition skips a rule, whatever the others.
        """
        reader = None if step.audit else self._readers.get(step.rule)
        if reader is None or (step.action is Action.SKIP and step.reason in UNMATCHED_REASONS):
            return False
        return step.reason != UNMET_CONDITION or step.fields in reader.conditions

    def userless_key(
        self, admission: Admission, contributions: Iterable[Contribution], user_readers: Container[RuleId]
    ) -> Hashable:
        """Return everything but the user that an outcome depends on; all rules if the mutation depends on the user.

        `contributions`: of rules to the outcome. `user_readers`: the result of `user_dependent_rules`.
        """
        if any(step.rule in user_readers for step in admission.mutation.trace):
            return self.contents
        effects = {entry.rule: entry.effect for entry in contributions if entry.effect}
        steps = tuple(
            self._readers[step.rule].content if step.rule in user_readers else (step.rule, effects[step.rule])
            for step in admission.trace
            if step.rule in user_readers or step.rule in effects
        )
        edits = admission.mutation.edits.items()
        return frozenset((path, frozenset(members.items())) for path, members in edits), steps


class _Reader(Struct, frozen=True, kw_only=True):
    """A rule that reads the user.

    `conditions`: fields of its match conditions that may read the user. `content`: equal for rules that decide alike.
    """

    conditions: frozenset[tuple[Field, ...]]
    content: Hashable

    @classmethod
    def of(cls, compiled: CompiledRule[Rule]) -> "_Reader":
        return cls(
            conditions=frozenset(
                condition.fields for condition in compiled.conditions if _may_read_user(compiled, (condition.program,))
            ),
            content=_rule_content(compiled.rule),
        )


def _may_read_user(compiled: CompiledRule[Rule], programs: Sequence[Program]) -> bool:
    """Return True if expressions of a rule, or the variables that they use, read the user."""
    return keeps_path(fields_read_by(compiled, programs), "userInfo")


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
