"""Rules as loaded: typed, with defaults, each checked alone, not yet compiled."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, NewType, TypeAlias

from rules_engine.model.json.patch import Json
from rules_engine.model.quantity import Quantity
from rules_engine.model.source import Location, SourceText

API_VERSION = "gpurules.io/v1"
SKIP_ANNOTATION = "gpurules.io/skip"
"""The annotation with which a pod, by the value "true", opts out of every rule whose optOut is Allowed."""

RuleId = NewType("RuleId", str)
"""Identifier of a rule: `Kind/name`, unique over everything loaded."""

EMPTY: Mapping[str, str] = MappingProxyType({})


class Mode(Enum):
    """The mode of a rule: it enforces, only records what it would do, or is off."""

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
        """Return True if labels meet the requirement: NotIn and DoesNotExist also if the label is absent."""
        match self.operator:
            case ConditionKind.IN:
                return labels.get(self.key) in self.values
            case ConditionKind.NOT_IN:
                return labels.get(self.key) not in self.values
            case ConditionKind.EXISTS:
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A Kubernetes LabelSelector: all requirements must hold; without any it matches everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


class Operation(Enum):
    """The operations that a rule may match."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The pods that a rule matches. Namespaces are exact names or globs (`*` any run, `?` one character)."""

    namespaces: tuple[str, ...] = ("*",)
    exclude_namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector = LabelSelector()
    object_selector: LabelSelector = LabelSelector()
    operations: tuple[Operation, ...] = (Operation.CREATE,)


@dataclass(frozen=True, slots=True)
class Named:
    """A named expression: a variable or a match condition."""

    name: str
    expression: SourceText


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The fields of every kind of rule."""

    kind: ClassVar[str]

    name: str
    location: Location
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    description: str = ""
    mode: Mode = Mode.ENFORCE
    priority: int = 0
    match: Match = Match()
    params: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    variables: tuple[Named, ...] = ()
    match_conditions: tuple[Named, ...] = ()
    failure_policy: FailurePolicy = FailurePolicy.FAIL
    opt_out: OptOut = OptOut.ALLOWED
    id: RuleId = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", RuleId(f"{self.kind}/{self.name}"))

    @property
    def order(self) -> tuple[int, str]:
        """Sort key of evaluation: higher priority first, ties by name, by code point."""
        return -self.priority, self.name


class Direction(Enum):
    """The direction in which a ladder searches for a rung that is offered."""

    DOWN = "Down"
    UP = "Up"
    DOWN_THEN_UP = "DownThenUp"


class Counts(Enum):
    """The count of devices after a move: the same as before, or by the rungs' weights."""

    KEEP = "Keep"
    SCALE = "Scale"


class Offered(Enum):
    """The amounts that a node offers: all that it has, or what is free now."""

    ALLOCATABLE = "Allocatable"
    AVAILABLE = "Available"


class WhenExhausted(Enum):
    """The action for a request that no rung can serve."""

    KEEP = "Keep"
    DENY = "Deny"


class NodeRequirement(Enum):
    """A requirement of the nodes that count for a ladder."""

    READY = "Ready"
    SCHEDULABLE = "Schedulable"
    MATCHES_POD = "MatchesPod"


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """The nodes that count for a ladder; all by default."""

    selector: LabelSelector = LabelSelector()
    require: frozenset[NodeRequirement] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung of a ladder; `when` is evaluated if this rung is a target."""

    resource: str
    location: Location
    weight: int | None = None
    when: SourceText | None = None
    assume: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackLadder(Rule):
    """A ladder that replaces a requested GPU resource that no node offers; rungs from the highest down."""

    kind = "FallbackLadder"

    rungs: tuple[Rung, ...]
    offered: Offered = Offered.ALLOCATABLE
    nodes: NodeFilter = NodeFilter()
    direction: Direction = Direction.DOWN
    counts: Counts = Counts.KEEP
    when_exhausted: WhenExhausted = WhenExhausted.KEEP
    annotation: str = "gpu-webhook.k8s.io/fallback"

    @property
    def can_deny(self) -> bool:
        return self.mode is Mode.ENFORCE and self.when_exhausted is WhenExhausted.DENY


class OnConflict(Enum):
    """The action of an injection on an amount that the pod already has."""

    OVERWRITE = "Overwrite"
    KEEP = "Keep"
    RAISE = "Raise"


class InitContainers(Enum):
    """The action of an injection on sidecars and init containers that request its GPU resource."""

    IGNORE = "Ignore"
    INJECT = "Inject"
    DENY = "Deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Amounts that are injected per GPU, by resource, and annotations of the pod.

    `origin` has the location of each key of the two maps: that of an inherited one is in the default.
    """

    location: Location
    coefficients: Mapping[str, Quantity] = field(default_factory=lambda: MappingProxyType({}))
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    origin: Mapping[tuple[str, str], Location] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        return bool(self.coefficients or self.annotations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceInjection(Rule):
    """An injection of resources per GPU of a type. `namespaces` are exact names; `inherit: Merge` is resolved.

    `gpu_type` None: any pod that requests `gpu_resource`.
    """

    kind = "ResourceInjection"

    default: Entry
    gpu_type: str | None = None
    gpu_type_annotation: str = "task.bkbcs.tencent.com/gpu-type"
    gpu_resource: str = "nvidia.com/gpu"
    on_conflict: OnConflict = OnConflict.OVERWRITE
    init_containers: InitContainers = InitContainers.IGNORE
    namespaces: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def can_deny(self) -> bool:
        """True if some entry injects: amounts may not suffice or be too large, and two injections may conflict."""
        return self.mode is Mode.ENFORCE and any((self.default, *self.namespaces.values()))

    def entry(self, namespace: str) -> Entry:
        """Return the entry that applies in a namespace: its own, or else the default."""
        return self.namespaces.get(namespace, self.default)


class ValidationAction(Enum):
    """The effect of a failed validation."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"


class Reason(Enum):
    """The machine-readable reasons that Kubernetes' policies may give, with their HTTP status codes.

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
    """One check of a Validation: `expression` must be true; the message expression precedes the message."""

    expression: SourceText
    location: Location
    message: str = ""
    message_expression: SourceText | None = None
    reason: Reason = Reason.INVALID


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


AnyRule: TypeAlias = FallbackLadder | ResourceInjection | Validation
