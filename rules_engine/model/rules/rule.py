"""Rules as loaded: typed, with defaults, each checked alone, not yet compiled."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NewType

import msgspec
from msgspec import Meta

from rules_engine.model.json.output import Output
from rules_engine.model.json.patch import EMPTY, Json
from rules_engine.model.problems.source import Field, Location, SourceText

API_VERSION = "gpurules.io/v1"
SKIP_ANNOTATION = "gpurules.io/skip"
"""The annotation with which a pod, by the value "true", opts out of every rule whose optOut is Allowed."""

RuleId = NewType("RuleId", str)
"""Identifier of a rule: `Kind/name`, unique among all loaded rules."""


class Mode(Enum):
    """The mode of a rule: it enforces its action, only records it, or is off."""

    ENFORCE = "Enforce"
    AUDIT = "Audit"
    OFF = "Off"


class FailurePolicy(Enum):
    """The effect of a rule's evaluation error: deny the request, or undo the whole rule with a warning."""

    FAIL = "Fail"
    IGNORE = "Ignore"


class OptOut(Enum):
    """The effect of a pod's skip annotation: it is honoured or not."""

    ALLOWED = "Allowed"
    FORBIDDEN = "Forbidden"


class ConditionKind(Enum):
    """The operators of a Kubernetes label selector requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One requirement of a selector: compares the label `key` with `values` by `operator`."""

    key: str
    operator: ConditionKind
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if labels meet the requirement. An absent label meets NotIn and DoesNotExist."""
        match self.operator:
            case ConditionKind.IN:
                return labels.get(self.key) in self.values
            case ConditionKind.NOT_IN:
                return labels.get(self.key) not in self.values
            case ConditionKind.EXISTS:
                return self.key in labels
            case _:
                return self.key not in labels

    def __str__(self) -> str:
        """The requirement in the syntax of `kubectl get --selector`."""
        match self.operator:
            case ConditionKind.EXISTS:
                return self.key
            case ConditionKind.DOES_NOT_EXIST:
                return f"!{self.key}"
            case operator:
                return f"{self.key} {operator.value.lower()} ({', '.join(self.values)})"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A Kubernetes LabelSelector: all requirements must hold; without any it matches everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        """The selector in the syntax of `kubectl get --selector`."""
        return ", ".join(map(str, self.requirements))


class Operation(Enum):
    """The operations that a rule may match."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The pods that a rule matches. Namespaces and resources are exact names or globs (`*` any run, `?` one character).

    With `resources`, the pod must name one of them in limits or requests; without, any pod matches.
    """

    namespaces: tuple[str, ...] = ("*",)
    exclude_namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector = LabelSelector()
    object_selector: LabelSelector = LabelSelector()
    resources: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = (Operation.CREATE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interests:
    """The pods that a rule depends on, beyond its match, as derived by its kind.

    `resources`: the rule leaves a pod unchanged that requests none of them. None: it may change any pod.
    `moves`: the rule may replace one of its resources by another before later rules of its kind are evaluated.
    `gives`: the resources that it may write into a pod; `annotations`: the keys of annotations that go with them.
    `annotation`: key and value; the rule leaves a pod without this annotation unchanged.
    `reads`: paths of members of the pod that the kind reads, beyond the expressions of the rule.
    `writes`: paths of members of the pod, other than resources, that it may write, with the location of each. No rule
    that changes pods may read them.
    """

    resources: frozenset[str] | None = None
    moves: bool = False
    gives: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    annotation: tuple[str, str] | None = None
    reads: tuple[tuple[str, ...], ...] = ()
    writes: Mapping[tuple[str, ...], Location] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class NamedExpression:
    """A named expression: a variable or a match condition."""

    name: str
    expression: SourceText


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionDocument:
    """The fields of every document that has expressions: rules and Diagnostics."""

    kind: ClassVar[str]

    name: str
    location: Location
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    description: str = ""
    params: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    variables: tuple[NamedExpression, ...] = ()
    origin: Mapping[tuple[str, str], Location] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )
    """Location of the name of each member of `spec`, `match`, `params`, `variables` and others, by field and name."""
    id: RuleId = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", RuleId(f"{self.kind}/{self.name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(ExpressionDocument, ABC):
    """The fields of every kind of rule, and the properties that each kind derives for other packages."""

    mode: Mode = Mode.ENFORCE
    priority: int = 0
    match: Match = Match()
    match_conditions: tuple[NamedExpression, ...] = ()
    failure_policy: FailurePolicy = FailurePolicy.FAIL
    opt_out: OptOut = OptOut.ALLOWED
    fields: Mapping[str, tuple[Field]] = field(init=False, repr=False, compare=False)
    """The members of `spec` and `match`, and all expressions, by path: steps of the rule refer to them."""

    def __post_init__(self) -> None:
        ExpressionDocument.__post_init__(self)
        places = {
            name if owner == "spec" else f"{owner}.{name}": location
            for (owner, name), location in self.origin.items()
            if owner in ("spec", "match")
        } | {path: expression.location for path, expression in self.expressions.items()}
        object.__setattr__(self, "fields", {path: (Field(path, location),) for path, location in places.items()})

    @property
    def order(self) -> tuple[int, str]:
        """Sort key of evaluation: higher priority first, ties by name, by code point."""
        return -self.priority, self.name

    @property
    def interests(self) -> Interests:
        """The pods and fields that the rule depends on, beyond its match."""
        return Interests()

    @property
    @abstractmethod
    def can_deny(self) -> bool:
        """True if the rule can deny a pod even if all its expressions are evaluated without error."""

    @property
    def expressions(self) -> Mapping[str, SourceText]:
        """The expressions that may change a decision, by the paths of their fields; message expressions cannot."""
        fields = (("variables", self.variables), ("matchConditions", self.match_conditions))
        common = {
            f"{field}[{index}].expression": member.expression
            for field, members in fields
            for index, member in enumerate(members)
        }
        return {**common, **self.own_expressions}

    @property
    def own_expressions(self) -> Mapping[str, SourceText]:
        """The `expressions` in fields that only this kind has."""
        return {}

    def fields_at(self, place: Location | None) -> tuple[Field, ...]:
        """Return the field of the expression that contains a place, with the place; none if none does."""
        if place is None:
            return ()
        starts = [
            (expression.location, path)
            for path, expression in self.expressions.items()
            if expression.file == place.file and expression.location <= place
        ]
        return tuple(Field(path, place) for _, path in sorted(starts)[-1:])

    @property
    def rung_names(self) -> tuple[str, ...]:
        """The names of a ladder's rungs, as in decisions and tests."""
        return ()


class Overridden(Output, frozen=True, kw_only=True):
    """A value that another one overrides."""

    value: Any
    field: Annotated[str, Meta(description='The field of the spec that has it; "": the spec itself.')]
    location: Location | None = msgspec.field(name="source")


class Setting(Output, frozen=True, kw_only=True):
    """A value that applies in a namespace."""

    name: Annotated[str, Meta(description="The field for which the value holds.")]
    value: Annotated[Any, Meta(description="Null: an entry of the namespace removes the value that it overrides.")]
    field: Annotated[str, Meta(description='The field of the spec that has the value; "": the spec itself.')]
    location: Annotated[Location | None, Meta(description="Null: the default of the field.")] = msgspec.field(
        default=None, name="source"
    )
    inherited: Annotated[bool, Meta(description="The entry of the namespace merges it.")] = False
    overrides: Overridden | None = None

    @property
    def overridden(self) -> Overridden:
        """The value, if another one overrides it."""
        return Overridden(value=self.value, field=self.field, location=self.location)


def field_setting(field: str, value: Json, location: Location | None) -> Setting:
    """Return a value that applies to the field that sets it."""
    return Setting(name=field, value=value, field=field, location=location)
