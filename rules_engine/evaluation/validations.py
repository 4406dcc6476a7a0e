"""Validations: conditions that a pod must meet as it arrives, after every mutation."""

from collections.abc import Sequence

from rules_engine.evaluation.applicability import applicability
from rules_engine.evaluation.context import Context, Scope
from rules_engine.evaluation.rule_set.compiled import CompiledCheck, CompiledValidation
from rules_engine.evaluation.steps import failed, stepped
from rules_engine.model.decision import Action, Step
from rules_engine.model.rules import Validation, ValidationAction

MAX_MESSAGE = 5 * 1024
"""Longest result of a message expression, in characters: Kubernetes' bound for its policies."""


def apply_validations(validations: Sequence[CompiledValidation], context: Context) -> tuple[Step, ...]:
    """Evaluate each validation to a step."""
    return tuple(_step(validation, context) for validation in validations)


def _step(validation: CompiledValidation, context: Context) -> Step:
    rule = validation.rule
    found = applicability(validation, context)
    if isinstance(found, Step):
        return _enforced(rule, found)
    try:
        unmet = [check for check in validation.checks if not found.scope.holds(check.expression)]
    except Exception as error:
        return _enforced(rule, failed(rule, error))
    if not unmet:
        return stepped(rule, Action.PASS, "valid", "", warnings=found.warnings)
    messages = dict.fromkeys(_message(check, found.scope) for check in unmet)
    reason = unmet[0].check.reason
    return _acted(rule, "invalid", tuple(messages), found.warnings, code=reason.code, status_reason=reason.value)


def _enforced(rule: Validation, step: Step) -> Step:
    """Treat a failure like a validation that does not hold: validationActions decide, as in Kubernetes."""
    if step.action is not Action.DENY:
        return step
    return _acted(rule, step.reason, (step.message,), (), code=step.code, status_reason=step.status_reason)


def _acted(
    rule: Validation,
    reason: str,
    messages: tuple[str, ...],
    warnings: tuple[str, ...],
    *,
    code: int,
    status_reason: str,
) -> Step:
    actions = rule.validation_actions
    if ValidationAction.DENY in actions:
        action = Action.DENY
    elif ValidationAction.WARN in actions:
        action = Action.WARN
        warnings = (*warnings, *(f"{rule.id}: {message}" for message in messages))
    else:
        action = Action.RECORD
    return stepped(
        rule,
        action,
        reason,
        "; ".join(messages),
        code=code,
        status_reason=status_reason,
        warnings=warnings,
        recorded=ValidationAction.AUDIT in actions,
    )


def _message(check: CompiledCheck, scope: Scope) -> str:
    """Return the message expression's value; the message if it fails, is blank, too long or of several lines."""
    if check.message is not None:
        try:
            value = scope.value(check.message)
        except Exception:
            value = None
        if isinstance(value, str) and value.strip() and "\n" not in value and len(value) <= MAX_MESSAGE:
            return value
    return check.check.message or f"failed expression: {check.check.expression.text.strip()}"
