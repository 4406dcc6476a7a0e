"""Settings of a Validation: its checks, and its actions on failed checks."""

from collections.abc import Iterator

from rules_engine.kinds.validation.value import Validation
from rules_engine.model.json.patch import Json
from rules_engine.model.rules.rule import Setting, field_setting


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
