"""The registry: the only list of the kinds of rules."""

from collections.abc import Iterable, Sequence
from functools import partial

from rules_engine.model.rules.rule import Rule
from rules_engine.rules import evaluation, injection, ladder, pod_defaults, validation
from rules_engine.rules.rule_set.compiled import RuleKind

KINDS: Sequence[RuleKind] = (ladder.KIND, pod_defaults.KIND, injection.KIND, validation.KIND)
"""The kinds of rules, in the order of evaluation."""

compile_rules = partial(evaluation.compile_rules, kinds=KINDS)


def sort_rules(rules: Iterable[Rule], kinds: Sequence[RuleKind] = KINDS) -> tuple[Rule, ...]:
    """Sort rules by kind, in the order of the kinds, then in order of evaluation."""
    names = [kind.name for kind in kinds]
    return tuple(sorted(rules, key=lambda rule: (names.index(rule.kind), rule.order)))
