"""Values of a difference: pods as they were submitted, their outcomes under each rule set, and changes of outcomes.

All but Submitted and Line are hashable, so that equal values are stored once.
"""

from collections.abc import Hashable, Mapping
from enum import StrEnum
from typing import Annotated, Self

from msgspec import Meta, Struct

from rules_engine.evaluation.rule_reads import USER
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.kubernetes.removed_values import Path
from rules_engine.model.problems.excerpt import escape_controls
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId


class Workload(Output, frozen=True, kw_only=True, order=True):
    """The owner of pods, or a pod without an owner."""

    cluster: Annotated[str, Meta(description='"" for a single cluster.')] = ""
    namespace: str
    kind: str
    name: str

    @classmethod
    def of(cls, cluster: str, namespace: str, kind: str, name: str) -> Self:
        """Return a workload whose names were read from a file: their control characters are escaped."""
        namespace, kind, name = map(escape_controls, (namespace, kind, name))
        return cls(cluster=cluster, namespace=namespace, kind=kind, name=name)


class Submitted(Struct, frozen=True, kw_only=True):
    """Equal pods of a workload with the request that creates them.

    `missing`: paths of members of the request that the input lacks, by name. `as_it_is`: the reason why a live pod is
    decided as it is now; "" if the old rules, applied to its template, yield the pod.
    """

    workload: Workload
    request: AdmissionRequest
    count: int = 1
    missing: Mapping[str, Path] = USER
    as_it_is: str = ""


POD_LEVEL = "spec.resources"
"""Container of an Amount at pod level: no container's name has a dot."""


class Amount(Struct, frozen=True, kw_only=True):
    """The request and limit of a resource, of a container or POD_LEVEL. Without a request, the limit is the request."""

    container: str
    resource: str
    request: Quantity | None = None
    limit: Quantity | None = None


class Fallback(Struct, frozen=True, kw_only=True):
    """A move from the requested resource to another one by a rule."""

    rule: RuleId
    requested: str
    given: str


class Contribution(Struct, frozen=True, kw_only=True):
    """A rule that contributed to an outcome, with the location of the field that decided, or of the rule.

    All fields but the first three are its effect on the pod; a rule that leaves the pod unchanged has no effect.
    `message`: of its denial. `amounts`: container, resource and the amount that it writes. `annotations`: keys and
    values.
    """

    rule: RuleId
    location: Location
    action: Action
    message: str = ""
    fallbacks: tuple[Fallback, ...] = ()
    amounts: tuple[tuple[str, str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def effect(self) -> tuple[object, ...]:
        """The effect of the rule on the pod, without its location; () if it has none."""
        parts = (self.message, self.fallbacks, self.amounts, self.annotations, self.warnings)
        return parts if any(parts) else ()


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a pod's admission at both endpoints.

    `message`: of a denial. `resources`: the containers' requests and limits after the mutation, in order; a denied pod
    has none. `annotations`: the keys that rules write, with their values; None: a rule removes the key. `gpus`:
    effective requests of GPU resources, in nanos. `unknown`: the reason why all else is unknown, or "".
    `known_key`: all that an unknown outcome depends on but what the input lacks: equal keys mean equal outcomes.
    A Change has no key.
    """

    allowed: bool = True
    message: str = ""
    resources: tuple[Amount, ...] = ()
    annotations: tuple[tuple[str, str | None], ...] = ()
    warnings: tuple[str, ...] = ()
    gpus: tuple[tuple[str, int], ...] = ()
    deciding: tuple[Contribution, ...] = ()
    unknown: str = ""
    known_key: Hashable = None

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The moves to other resources; none for a denied pod."""
        return tuple(fallback for deciding in self.deciding for fallback in deciding.fallbacks) if self.allowed else ()


class Kind(StrEnum):
    """Kinds of change: the arguments of `--allow`.

    A pod that only one rule set admits has no other kind of change. RUNG: it gets another resource; RESOURCES and
    ANNOTATIONS: differences that no changed rung explains. RULE: other rules lead to an equal outcome. UNKNOWN: an
    outcome is unknown and may have changed.
    """

    DENIED = "Denied"
    ADMITTED = "Admitted"
    RUNG = "Rung"
    RESOURCES = "Resources"
    ANNOTATIONS = "Annotations"
    WARNINGS = "Warnings"
    MESSAGE = "Message"
    RULE = "Rule"
    UNKNOWN = "Unknown"


class Change(Struct, frozen=True, kw_only=True):
    """Different outcomes of a pod under the old rules and the new ones."""

    kinds: frozenset[Kind]
    before: Outcome
    after: Outcome


class Line(Struct, kw_only=True):
    """Pods of a workload with the same change."""

    workload: Workload
    change: Change
    count: int
