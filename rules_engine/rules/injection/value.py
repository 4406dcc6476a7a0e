"""ResourceInjection, as loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from rules_engine.model.json.patch import EMPTY, Json
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.source import Field, Location
from rules_engine.model.rules.rule import Interests, Mode
from rules_engine.rules.entries import Entry, RuleWithEntries


class InjectionCode(ProblemCode):
    """Codes of problems of a ResourceInjection."""

    GPU_COEFFICIENT = "gpu-coefficient"
    UNREACHABLE_INJECTION = "unreachable-injection"
    INJECTION_CONFLICT = "injection-conflict"
    EXCEEDS_NODES = "exceeds-nodes"


GPU_TYPE_ANNOTATION = "task.bkbcs.tencent.com/gpu-type"
"""gpuinjector's annotation of pods with the type of their GPUs, the former default."""


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
class InjectionEntry(Entry):
    """Amounts that are injected per GPU, by resource, and annotations of the pod.

    `origin` has the location of each key of the two maps; for an inherited key, its location in the default.
    `inherited`: the fields of inherited coefficients.
    """

    inherited: Mapping[str, Field] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    coefficients: Mapping[str, Quantity] = field(default_factory=lambda: MappingProxyType({}))
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    origin: Mapping[tuple[str, str], Location] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def settings(self) -> Mapping[str, tuple[Json, Location]]:
        values = {("coefficients", resource): str(amount) for resource, amount in self.coefficients.items()}
        values |= {("annotations", key): text for key, text in self.annotations.items()}
        return {".".join(key): (value, self.origin.get(key, self.location)) for key, value in values.items()}

    def __bool__(self) -> bool:
        return bool(self.coefficients or self.annotations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceInjection(RuleWithEntries[InjectionEntry]):
    """An injection of resources per GPU of a type.

    `gpu_type` None: any pod that requests `gpu_resource`; else `gpu_type_annotation` is not empty.
    """

    kind = "ResourceInjection"

    gpu_type: str | None = None
    gpu_type_annotation: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    on_conflict: OnConflict = OnConflict.OVERWRITE
    init_containers: InitContainers = InitContainers.IGNORE

    @property
    def interests(self) -> Interests:
        return Interests(
            resources=frozenset({self.gpu_resource}),
            gives=frozenset(name for entry in self.entries for name in entry.coefficients),
            annotations=frozenset(key for entry in self.entries for key in entry.annotations),
            annotation=None if self.gpu_type is None else (self.gpu_type_annotation, self.gpu_type),
        )

    @property
    def can_deny(self) -> bool:
        """True if any entry injects: other requests may exceed the amounts, and two injections may conflict."""
        return self.mode is Mode.ENFORCE and any(self.entries)
