"""Validation, as loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.rule import Mode, OptOut, Rule


class ValidationCode(ProblemCode):
    """Codes of problems of a Validation."""

    CONFLICTING_ACTIONS = "conflicting-actions"


class ValidationAction(Enum):
    """The effect of a failed validation."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"


class Reason(Enum):
    """The machine-readable reasons that Kubernetes' policies allow, with their HTTP status codes.

    Source: k8s.io/apiserver/pkg/admission/plugin/policy/validating (message.go, reasonToCode).
    """

    UNAUTHORIZED = "Unauthorized"
    FORBIDDEN = "Forbidden"
    INVALID = "Invalid"
    REQUEST_ENTITY_TOO_LARGE = "RequestEntityTooLarge"

    @property
    def code(self) -> int:
        return {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of a Validation: `expression` must be true; the message expression precedes the message.

    `origin` has the location of each key.
    """

    expression: SourceText
    location: Location
    message: str = ""
    message_expression: SourceText | None = None
    reason: Reason = Reason.INVALID
    origin: Mapping[str, Location] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation(Rule):
    """Conditions that every pod must meet after all mutations."""

    kind = "Validation"

    validations: tuple[Check, ...]
    validation_actions: frozenset[ValidationAction] = frozenset({ValidationAction.DENY})
    opt_out: OptOut = OptOut.FORBIDDEN

    @property
    def can_deny(self) -> bool:
        return self.mode is Mode.ENFORCE and ValidationAction.DENY in self.validation_actions

    @property
    def own_expressions(self) -> Mapping[str, SourceText]:
        return {f"validations[{index}].expression": check.expression for index, check in enumerate(self.validations)}
