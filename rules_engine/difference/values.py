"""Values of a difference: pods as they were submitted, their outcomes under each rule set, and changes of outcomes.

All but Submitted are hashable, so that equal ones are found and stored once.
"""

from collections.abc import Hashable
from enum import StrEnum

from msgspec import Struct

from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId


class Workload(Struct, frozen=True, kw_only=True, order=True):
    """The owner of pods, or a pod without one. `cluster`: the name of its cluster; "" if there is only one."""

    cluster: str = ""
    namespace: str
    kind: str
    name: str


class Submitted(Struct, frozen=True, kw_only=True):
    """Equal pods of a workload with the request that creates them.

    `count`: number of the pods. `user_unknown`: `request.userInfo` is not that of the user who submitted them.
    `as_it_is`: the reason why a live pod is decided as it is now, or "": the old rules make it of its template.
    """

    workload: Workload
    request: AdmissionRequest
    count: int = 1
    user_unknown: bool = True
    as_it_is: str = ""


POD_LEVEL = "spec.resources"
"""The container of an Amount of the pod level: no container's name has a dot."""


class Amount(Struct, frozen=True, kw_only=True):
    """A request and limit of a resource, of a container or POD_LEVEL; None if there is none.

    Without a request, the limit is one.
    """

    container: str
    resource: str
    request: Quantity | None = None
    limit: Quantity | None = None


class Fall(Struct, frozen=True, kw_only=True):
    """A move from the requested resource to another one by a rule."""

    rule: RuleId
    requested: str
    given: str


class Deciding(Struct, frozen=True, kw_only=True):
    """A rule that contributed to an outcome, with the location of the field that decided, or of the rule.

    All but the first three is its effect on the pod; a rule that keeps the pod as it is has none. `message`: that of
    its denial. `amounts`: container, resource and the amount that it writes. `annotations`: their keys and values.
    """

    rule: RuleId
    location: Location
    action: Action
    message: str = ""
    falls: tuple[Fall, ...] = ()
    amounts: tuple[tuple[str, str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def effect(self) -> tuple[object, ...]:
        """The effect of the rule on the pod; () if it has none. Its location is no part of it."""
        found = (self.message, self.falls, self.amounts, self.annotations, self.warnings)
        return found if any(found) else ()


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a pod's admission at both endpoints.

    `message` is that of a denial. `resources`: the containers' requests and limits after the mutation, in order; a
    denied pod has none. `annotations`: the keys that rules write, with their values; None: they remove it.
    `gpus`: effective requests of GPU resources, in nanos. `unknown`: the reason why all else is not known, or "".
    `known`: all that an unknown outcome depends on but the user: outcomes with equal ones are equal. No Change has it.
    """

    allowed: bool = True
    message: str = ""
    resources: tuple[Amount, ...] = ()
    annotations: tuple[tuple[str, str | None], ...] = ()
    warnings: tuple[str, ...] = ()
    gpus: tuple[tuple[str, int], ...] = ()
    deciding: tuple[Deciding, ...] = ()
    unknown: str = ""
    known: Hashable = None

    @property
    def falls(self) -> tuple[Fall, ...]:
        """The moves to other resources; none of a denied pod."""
        return tuple(fall for deciding in self.deciding for fall in deciding.falls) if self.allowed else ()


class Kind(StrEnum):
    """Kinds of change: the arguments of `--allow`.

    A pod that is admitted under one rule set only has no other kind of change. RUNG: it gets another resource;
    RESOURCES and ANNOTATIONS are only those that no changed rung explains. RULE: other rules make an equal outcome.
    UNKNOWN: an outcome is not known, so that it may have changed.
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


class Line(Struct, frozen=True, kw_only=True):
    """Pods of a workload with one and the same change."""

    workload: Workload
    change: Change
    count: int
