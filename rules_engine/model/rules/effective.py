"""Effective settings: the values of a rule that hold in one namespace, with their places."""

from dataclasses import dataclass

from rules_engine.model.json.patch import Json
from rules_engine.model.problems.source import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value that holds in a namespace.

    `name` is the field for which it holds and `field` the field of the spec in which it is written: they differ for an
    entry of a namespace and for a named expression. `location` None: the default of the field, which no file has.
    `value` None: an entry removes the value that it overrides. `inherited`: an entry of the namespace merges the value.
    """

    name: str
    value: Json
    field: str
    location: Location | None = None
    inherited: bool = False
    overrides: "Setting | None" = None


def setting(field: str, value: Json, location: Location | None) -> Setting:
    """Return a value that holds for the field in which it is written."""
    return Setting(name=field, value=value, field=field, location=location)
