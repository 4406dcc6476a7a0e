"""A Validation as checks of a ValidatingAdmissionPolicy."""

from collections.abc import Sequence

from rules_engine.model.rules.rule import FailurePolicy, Mode
from rules_engine.rules.native.cel_text import MAX_NARROW_LENGTH, cel_literal, grouped, label_condition
from rules_engine.rules.native.expressions import ALL_AMOUNTS, Expressions, match_operands
from rules_engine.rules.native.mutation import join_operands
from rules_engine.rules.native.policy import NativeCheck, PolicyScope, Translation, Variable
from rules_engine.rules.validation.evaluation import CompiledCheck, CompiledValidation, static_message


def translate_validation(validation: CompiledValidation, scope: PolicyScope) -> Translation:
    """Translate a validation. Raises StaysError."""
    rule, expressions = validation.rule, Expressions(validation, scope.prefix)
    applies, results = f"{scope.prefix}applies", f"{scope.prefix}results"
    selected = [label_condition(each, "namespaceObject") for each in rule.match.namespace_selector.requirements]
    operands = match_operands(rule, ALL_AMOUNTS)
    variables = [
        *expressions.variables(),
        Variable(applies, join_operands([*operands, *selected, *expressions.conditions()])),
    ]
    # With ||, a check that is true would hide an error of the rule's conditions.
    texts = [grouped(expressions.condition(check.expression)) for check in validation.checks]
    if rule.failure_policy is FailurePolicy.IGNORE and len(texts) > 1:
        # One failed expression undoes the whole rule.
        variables.append(Variable(results, f"[{', '.join(texts)}]"))
        texts = [f"variables.{results}[{index}]" for index in range(len(texts))]
    return Translation(
        rule=rule,
        prefix=scope.prefix,
        variables=tuple(variables),
        checks=tuple(
            _check(check, f"variables.{applies} ? {text} : true", expressions, f"{rule.id}: ")
            for check, text in zip(validation.checks, texts, strict=True)
        ),
        denies=_may_fail(validation, expressions, operands),
        actions=("Audit",)
        if rule.mode is Mode.AUDIT
        else tuple(sorted(each.value for each in rule.validation_actions)),
        operations=rule.match.operations,
        allocatable=frozenset(expressions.allocatable),
        total=frozenset(expressions.total),
    )


def _may_fail(validation: CompiledValidation, expressions: Expressions, operands: Sequence[str]) -> str:
    """Return the condition that a check fails, or that the rule may apply if the check is not for match conditions.

    An error is an error of the policy, as everywhere: "? :" keeps it.
    """
    names, selected = expressions.inlined, join_operands(operands)
    if names is None or validation.rule.match.namespace_selector.requirements:
        return selected  # match conditions cannot read the labels of a namespace
    applies = join_operands(grouped(expressions.condition(each.program, names)) for each in validation.conditions)
    passes = join_operands(grouped(expressions.condition(check.expression, names)) for check in validation.checks)
    fails = f"!({passes})" if applies == "true" else f"(({applies}) ? !({passes}) : false)"
    fails = fails if selected == "true" else f"{selected} &&\n{fails}"
    return fails if len(fails) <= MAX_NARROW_LENGTH else selected


def _check(check: CompiledCheck, text: str, expressions: Expressions, title: str) -> NativeCheck:
    message = "" if check.message is None else expressions.message(check.message)
    return NativeCheck(
        expression=text,
        message=title + " ".join(static_message(check.check).split()),
        message_expression=message and f"{cel_literal(title)} + {grouped(message)}",
        reason=check.check.reason.value,
    )
