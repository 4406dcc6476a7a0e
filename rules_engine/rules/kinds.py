"""The registry: the only list of the kinds of rules."""

from collections.abc import Callable, Iterable, Sequence

from rules_engine.model.problems.problem import Problem, sort_problems
from rules_engine.model.rules.rule import Rule
from rules_engine.rules import evaluation, injection, ladder, pod_defaults, validation
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.steering import find_steering
from rules_engine.rules.rule_set.compiled import RuleKind
from rules_engine.rules.rule_set.compiler import Compiler

KINDS: Sequence[RuleKind] = (ladder.KIND, pod_defaults.KIND, injection.KIND, validation.KIND)
"""The kinds of rules, in the order of evaluation: each on the result of the kinds before it.

Ladders decide with the pod as PodDefaults will place it (RuleKind.foresee)."""


def compile_rules(
    rules: Iterable[Rule], compiler_of: Callable[[Rule], Compiler] = Compiler
) -> tuple[RuleSet, tuple[Problem, ...]]:
    """Compile rules of all kinds, and report rules that read what others write; see `evaluation.compile_rules`."""
    rule_set, problems = evaluation.compile_rules(rules, KINDS, compiler_of)
    return rule_set, sort_problems((*problems, *find_steering(rule_set)))


def sort_rules(rules: Iterable[Rule], kinds: Sequence[RuleKind] = KINDS) -> tuple[Rule, ...]:
    """Sort rules by kind, in the order of the kinds, then in order of evaluation."""
    names = [kind.name for kind in kinds]
    return tuple(sorted(rules, key=lambda rule: (names.index(rule.kind), rule.order)))
