"""Effective settings: the values of a rule that hold in one namespace, with their places."""

from dataclasses import dataclass

from rules_engine.model.json.patch import Json
from rules_engine.model.rules import ConditionKind, LabelRequirement, LabelSelector
from rules_engine.model.source import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value that holds in a namespace.

    `name` is the field for which it holds and `path` the field of the spec in which it is written: they differ for an
    entry of a namespace. `location` None: the default of the field, which no file has. `value` None: an entry removes
    the value that it overrides. `inherited`: an entry of the namespace merges the value.
    """

    name: str
    value: Json
    path: str
    location: Location | None = None
    inherited: bool = False
    overrides: "Setting | None" = None


def selector_text(selector: LabelSelector) -> str:
    """Return a selector in the syntax of `kubectl get --selector`."""
    return ", ".join(map(_requirement_text, selector.requirements))


def _requirement_text(requirement: LabelRequirement) -> str:
    match requirement.operator:
        case ConditionKind.EXISTS:
            return requirement.key
        case ConditionKind.DOES_NOT_EXIST:
            return f"!{requirement.key}"
        case operator:
            return f"{requirement.key} {operator.value.lower()} ({', '.join(requirement.values)})"
