"""Validations: conditions that a pod must meet as it arrives, after every mutation."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from rules_engine.language.cel import Program
from rules_engine.model.json.edits import Edits
from rules_engine.model.problems.source import Field
from rules_engine.model.rules.decision import Action, Step
from rules_engine.rules.evaluation.applicability import Applies, check_applicability
from rules_engine.rules.evaluation.steps import failure_step, rule_step
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.rule_set.context import Context, ExpressionScope
from rules_engine.rules.validation.value import Check, Validation, ValidationAction

MAX_MESSAGE = 5 * 1024
"""Longest result of a message expression, in characters: Kubernetes' bound for its policies."""

CHECK_EFFECTS = "every pod fails it", "every pod passes it"
"""Effects of an expression that is always false, and always true."""


@dataclass(frozen=True, slots=True)
class CompiledCheck:
    """A compiled check of a Validation; `fields` has the field of its expression."""

    check: Check
    expression: Program
    message: Program | None
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledValidation(CompiledRule[Validation]):
    """A compiled Validation."""

    checks: tuple[CompiledCheck, ...]

    @property
    def own_programs(self) -> tuple[Program, ...]:
        return tuple(check.expression for check in self.checks)

    @property
    def messages(self) -> tuple[Program, ...]:
        return tuple(check.message for check in self.checks if check.message is not None)


def compile_validation(rule: Validation, compiler: Compiler) -> CompiledValidation:
    """Compile the checks."""
    checks = [
        CompiledCheck(check, expression, message, rule.fields[f"validations[{index}].expression"])
        for index, check in enumerate(rule.validations)
        for message in [compiler.message(check.message_expression)]
        if (expression := compiler.condition(check.expression, CHECK_EFFECTS))
    ]
    return CompiledValidation(
        rule=rule, variables=compiler.variables, conditions=compiler.conditions, checks=tuple(checks)
    )


def apply_validations(validations: Sequence[CompiledValidation], context: Context) -> tuple[tuple[Step, ...], Edits]:
    """Evaluate each validation. Return the steps; a validation edits nothing."""
    return tuple(_evaluate_validation(validation, context) for validation in validations), {}


def _evaluate_validation(validation: CompiledValidation, context: Context) -> Step:
    rule = validation.rule
    applies = check_applicability(validation, context)
    if isinstance(applies, Step):
        return _enforce_error(rule, applies)
    try:
        unmet = [check for check in validation.checks if not applies.scope.holds(check.expression)]
    except Exception as error:
        return _enforce_error(rule, failure_step(rule, error))
    if not unmet:
        return rule_step(rule, Action.PASS, "valid", "", warnings=applies.warnings)
    return _invalid_step(rule, unmet, [_check_message(check, applies.scope) for check in unmet], applies)


def _invalid_step(rule: Validation, unmet: Sequence[CompiledCheck], messages: Sequence[str], applies: Applies) -> Step:
    reason = unmet[0].check.reason
    step, static = (
        _act_on_failure(
            rule,
            "invalid",
            tuple(dict.fromkeys(texts)),
            applies.warnings,
            code=reason.code,
            status_reason=reason.value,
            fields=tuple(field for check in unmet for field in check.fields),
        )
        for texts in (messages, [static_message(check.check) for check in unmet])
    )
    return step if step == static else replace(step, static=static)


def _enforce_error(rule: Validation, step: Step) -> Step:
    """Treat an evaluation error like a failed check: validationActions decide, as in Kubernetes."""
    if step.action is not Action.DENY:
        return step
    failed = _act_on_failure(
        rule, step.reason, (step.message,), (), code=step.code, status_reason=step.status_reason, fields=step.fields
    )
    return replace(failed, cluster_unknown=step.cluster_unknown)


def _act_on_failure(
    rule: Validation,
    reason: str,
    messages: tuple[str, ...],
    warnings: tuple[str, ...],
    *,
    code: int,
    status_reason: str,
    fields: tuple[Field, ...],
) -> Step:
    actions = rule.validation_actions
    if ValidationAction.DENY in actions:
        action = Action.DENY
    elif ValidationAction.WARN in actions:
        action = Action.WARN
        warnings = (*warnings, *(f"{rule.id}: {message}" for message in messages))
    else:
        action = Action.RECORD
    return rule_step(
        rule,
        action,
        reason,
        "; ".join(messages),
        code=code,
        status_reason=status_reason,
        warnings=warnings,
        recorded=ValidationAction.AUDIT in actions,
        fields=fields,
    )


def _check_message(check: CompiledCheck, scope: ExpressionScope) -> str:
    """Return the message expression's value; the static message if it fails, or is blank, too long or multi-line."""
    if check.message is not None:
        try:
            value = scope.value(check.message)
        except Exception:
            value = None
        if isinstance(value, str) and value.strip() and "\n" not in value and len(value) <= MAX_MESSAGE:
            return value
    return static_message(check.check)


def static_message(check: Check) -> str:
    """Return the message that does not depend on the pod."""
    return check.message or f"failed expression: {check.expression.text.strip()}"
