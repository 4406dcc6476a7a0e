"""A Validation read from its document, its problems, and its settings."""

from collections.abc import Iterator, Sequence

from rules_engine.language import fields
from rules_engine.language.document_fields import common_fields
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.model.rules.rule import Setting, field_setting
from rules_engine.rules.resource_names import name_warnings
from rules_engine.rules.rule_set.globs import is_glob
from rules_engine.rules.validation.value import Check, Validation, ValidationAction, ValidationCode


def read(root: MapNode, problems: Problems) -> Validation:
    """Read a Validation; it is valid only if neither the schema nor `problems` has an error."""
    spec = fields.map_field(root, "spec")
    actions = frozenset(ValidationAction(name) for name in fields.string_items(spec, "validationActions"))
    if {ValidationAction.DENY, ValidationAction.WARN} <= actions:
        key = spec.key("validationActions") or spec
        message = "Deny and Warn cannot be combined: a denial already shows the message"
        problems.error(ValidationCode.CONFLICTING_ACTIONS, message, key)
    action_field = {"validation_actions": actions} if actions else {}
    return Validation(
        **common_fields(root, problems) | fields.scalar_arguments(spec, Validation) | action_field,
        validations=tuple(
            Check(
                expression=expression,
                location=line.location,
                message_expression=fields.source_field(line, "messageExpression"),
                origin=fields.key_locations(line),
                **fields.scalar_arguments(line, Check),
            )
            for line in fields.map_items(spec, "validations")
            if (expression := fields.source_field(line, "expression")) is not None
        ),
    )


def analyse(validations: Sequence[Validation]) -> Iterator[Problem]:
    """Yield warnings about the resources of validations, each on its own."""
    for rule in validations:
        names = [name for name in rule.match.resources if not is_glob(name)]
        place = rule.origin.get(("match", "resources"), rule.location)
        for name in names:
            yield from name_warnings(name, names, place, "resources")


def effective(validation: Validation, _namespace: str) -> Iterator[Setting]:
    """Yield the actions and the checks; they are the same in every namespace."""
    field = "validationActions"
    actions: list[Json] = [*sorted(action.value for action in validation.validation_actions)]
    yield field_setting(field, actions, validation.origin.get(("spec", field)))
    for index, check in enumerate(validation.validations):
        path = f"validations[{index}]"
        yield field_setting(f"{path}.expression", check.expression.text, check.expression.location)
        if check.message:
            yield field_setting(f"{path}.message", check.message, check.origin.get("message"))
        if (message := check.message_expression) is not None:
            yield field_setting(f"{path}.messageExpression", message.text, message.location)
        if (place := check.origin.get("reason")) is not None:
            yield field_setting(f"{path}.reason", check.reason.value, place)
