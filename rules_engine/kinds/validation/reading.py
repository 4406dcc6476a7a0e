"""Reading of a Validation from its document."""

from rules_engine.kinds.validation.problem_codes import ValidationCode
from rules_engine.kinds.validation.value import Check, Validation, ValidationAction
from rules_engine.loading import fields
from rules_engine.loading.rule_fields import common_fields
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import SourceText


def read(root: MapNode, problems: Problems) -> Validation:
    """Read a Validation; it is valid only if neither the schema nor `problems` has an error."""
    spec = fields.map_field(root, "spec")
    actions = frozenset(ValidationAction(name) for name in fields.string_items(spec, "validationActions"))
    if {ValidationAction.DENY, ValidationAction.WARN} <= actions:
        key = spec.key("validationActions") or spec
        message = "Deny and Warn cannot be combined: a denial already shows the message"
        problems.error(ValidationCode.CONFLICTING_ACTIONS, message, key.location, key.length)
    action_field = {"validation_actions": actions} if actions else {}
    return Validation(
        **common_fields(root, problems) | fields.scalar_arguments(spec, Validation) | action_field,
        validations=tuple(
            _read_check(line, expression)
            for line in fields.map_items(spec, "validations")
            if (expression := fields.source_field(line, "expression")) is not None
        ),
    )


def _read_check(line: MapNode, expression: SourceText) -> Check:
    return Check(
        expression=expression,
        location=line.location,
        message_expression=fields.source_field(line, "messageExpression"),
        origin=fields.key_locations(line),
        **fields.scalar_arguments(line, Check),
    )
