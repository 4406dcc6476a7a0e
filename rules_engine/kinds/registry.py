"""The registry: the only list of the kinds of rules."""

from collections.abc import Callable, Iterable, Sequence

from rules_engine import evaluation
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.kinds import injection, ladder, validation
from rules_engine.kinds.kind import Kind
from rules_engine.model.problems.problem import Problem
from rules_engine.model.rules.rule import Rule

KINDS: Sequence[Kind] = (ladder.KIND, injection.KIND, validation.KIND)
"""The kinds of rules, in the order of evaluation."""


def compile_rules(
    rules: Iterable[Rule], kinds: Sequence[Kind] = KINDS, compiler_of: Callable[[Rule], Compiler] = Compiler
) -> tuple[RuleSet, tuple[Problem, ...]]:
    """Compile rules of these kinds, as `evaluation.compile_rules` does."""
    return evaluation.compile_rules(rules, kinds, compiler_of)


def sort_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Sort rules by kind, in the order of the registry, then in order of evaluation."""
    kinds = [kind.name for kind in KINDS]
    return tuple(sorted(rules, key=lambda rule: (kinds.index(rule.kind), rule.order)))
