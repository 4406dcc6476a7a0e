"""A Validation as a ValidatingAdmissionPolicy."""

from collections.abc import Iterator

from rules_engine.kinds.validation.evaluation import CompiledCheck, CompiledValidation, static_message
from rules_engine.model.rules.rule import FailurePolicy, Mode
from rules_engine.native.expressions import ALL_AMOUNTS, Expressions, match_operands
from rules_engine.native.mutation import join_operands
from rules_engine.native.policy import NativeCheck, Scope, Translation, Variable

_READABLE = frozenset({"object", "oldObject", "request"})
"""Names that match conditions of policies know."""


def translate_validation(validation: CompiledValidation, scope: Scope) -> Translation:
    """Translate a validation. Raises StaysError."""
    rule, expressions = validation.rule, Expressions(validation, scope.prefix)
    variables = [*expressions.variables()]
    conditions = [Variable(name, text) for name, text in match_operands(rule, ALL_AMOUNTS)]
    guard = ""
    if all(condition.program.reads <= _READABLE for condition in validation.conditions):
        conditions += [Variable(each.name, expressions.condition(each.program)) for each in validation.conditions]
    else:
        matches = expressions.unused_name("matches")
        variables.append(Variable(matches, join_operands(expressions.conditions())))
        guard = f"!variables.{matches} || "
    if rule.failure_policy is FailurePolicy.IGNORE and len(validation.checks) > 1:
        # One failed expression undoes the whole rule.
        texts = ",\n".join(f"({expressions.condition(check.expression)}\n)" for check in validation.checks)
        name = expressions.unused_name("checks")
        variables.append(Variable(name, f"{guard and guard.replace('||', '? [] :')}[{texts}]"))
        guard += f"variables.{name}[{{}}]"
    return Translation(
        rule=rule,
        variables=tuple(variables),
        checks=tuple(_checks(validation, expressions, guard)),
        conditions=tuple(conditions),
        namespaces=rule.match.namespace_selector,
        actions=("Audit",)
        if rule.mode is Mode.AUDIT
        else tuple(sorted(each.value for each in rule.validation_actions)),
        operations=rule.match.operations,
        allocatable=frozenset(expressions.allocatable),
        total=frozenset(expressions.total),
    )


def _checks(validation: CompiledValidation, expressions: Expressions, guard: str) -> Iterator[NativeCheck]:
    for index, check in enumerate(validation.checks):
        yield _check(check, expressions, guard.format(index))


def _check(check: CompiledCheck, expressions: Expressions, guard: str) -> NativeCheck:
    text = expressions.condition(check.expression)
    if guard:
        text = guard if guard.endswith("]") else f"{guard}({text}\n)"
    return NativeCheck(
        expression=text,
        message=" ".join(static_message(check.check).split()),
        message_expression="" if check.message is None else expressions.message(check.message),
        reason=check.check.reason.value,
    )
