"""Environment: the names that an expression may use."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rules_engine.language.cel.library import dialect_functions
from rules_engine.language.cel.values.functions import Functions, Library
from rules_engine.language.cel.values.types import Type

REFUSED = {"authorizer": "authorizer is not available: rules are evaluated without calls to the API server"}
"""Variables of Kubernetes' policies that are not available here, with the message."""

VARIABLES = "variables"
"""Name of the variable whose fields are the rule's earlier variables."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Variables of an expression with their types; a variable's name may have dots.

    `container` is the namespace in which names are resolved first (CEL specification, "Name Resolution").
    `libraries`: functions in addition to the dialect's.
    """

    variables: Mapping[str, Type]
    container: str = ""
    libraries: tuple[Library, ...] = ()

    @property
    def functions(self) -> Functions:
        return dialect_functions(*self.libraries)

    def with_variables(self, **types: Type) -> "Environment":
        """Return the environment with further variables; a declared name gets the new type."""
        return replace(self, variables={**self.variables, **types})

    def candidates(self, name: str, *, absolute: bool = False) -> list[str]:
        """Return the full names that a name may stand for, the innermost container first."""
        if absolute or not self.container:
            return [name]
        parts = self.container.split(".")
        return [".".join([*parts[:count], name]) for count in range(len(parts), -1, -1)]
