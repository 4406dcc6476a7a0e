"""Evaluation of marks."""

from collections.abc import Sequence

from rules_engine.model.json.edits import Edits, merge_edits
from rules_engine.model.kubernetes.pod import ANNOTATIONS
from rules_engine.model.rules.decision import Action, Step
from rules_engine.rules.evaluation.applicability import check_applicability
from rules_engine.rules.evaluation.steps import rule_step, skip_step
from rules_engine.rules.native.policy import PolicyScope, StaysError, Translation
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context
from tests.rules.toy.value import Mark


def compile_mark(rule: Mark, compiler: Compiler) -> CompiledRule[Mark]:
    """Return the rule; it has no expressions of its own."""
    return CompiledRule(rule=rule, variables=compiler.variables, conditions=compiler.conditions)


def apply_marks(marks: Sequence[CompiledRule[Mark]], context: Context) -> tuple[tuple[Step, ...], Edits]:
    """Annotate the pod with the names of the rules that apply."""
    steps: list[Step] = []
    edits: Edits = {}
    for mark in marks:
        rule = mark.rule
        applies = check_applicability(mark, context)
        if isinstance(applies, Step):
            steps.append(applies)
        elif rule.resource not in context.pod.resources:
            steps.append(skip_step(rule, "no-request", f"no container requests {rule.resource}"))
        else:
            annotations = {rule.annotation: rule.name}
            steps.append(rule_step(rule, Action.CHANGE, "marked", rule.name, annotations=annotations))
            edits = merge_edits(edits, {ANNOTATIONS: annotations})
    return tuple(steps), edits


def translate_mark(compiled: CompiledRule[Mark], _: PolicyScope) -> Translation:
    """Raise StaysError."""
    raise StaysError(f"rules of the kind {compiled.rule.kind} are not exported")
