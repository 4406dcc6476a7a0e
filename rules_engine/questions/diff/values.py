"""Values of a difference: pods as they were submitted, their outcomes under each rule set, and changes of outcomes."""

from collections.abc import Callable, Hashable, Mapping
from enum import StrEnum
from typing import Annotated, Self

from msgspec import Meta, Struct, field

from rules_engine.model.json.lenient import Object
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.quantity import Quantity, parse_quantity
from rules_engine.model.kubernetes.removed_values import MemberPath
from rules_engine.model.problems.source import Location, escape_controls, truncate
from rules_engine.model.rules.admission import AdmissionRequest
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.logged_decision import LoggedMember
from rules_engine.model.rules.rule import RuleId
from rules_engine.rules.evaluation.rule_reads import USER

CountsByName = Mapping[str, int]
DeviceCount = int | float

MAX_NAME_LENGTH = 320
"""Characters of the names of workloads and of the names that totals count. Kubernetes has no longer names: a subdomain
has up to 253 characters, and a name in it up to 63."""


class WorkloadName(Output, frozen=True, kw_only=True, order=True):
    """The owner of pods, or a pod without an owner."""

    cluster: Annotated[str, Meta(description='"" for a single cluster.')] = ""
    namespace: str
    kind: str
    name: str

    @classmethod
    def of(cls, cluster: str, namespace: str, kind: str, name: str) -> Self:
        """Return a workload whose names were read from a file: they are cut, and their control characters escaped."""
        names = namespace, kind, name
        namespace, kind, name = (truncate(escape_controls(text), MAX_NAME_LENGTH) for text in names)
        return cls(cluster=cluster, namespace=namespace, kind=kind, name=name)


class SubmittedPods(Struct, frozen=True, kw_only=True):
    """Equal pods of a workload with the request that creates them.

    `each_node`: there is one for each node that its DaemonSet selects and tolerates. `missing`: paths of members of the
    request that the input lacks, by name. `as_it_is`: the reason why a live pod is decided as it is now; "" if the old
    rules, applied to its template, yield the pod. `refusal`: returns why the API server refuses the pod of a manifest
    after /mutate, else ""; None for pods that were admitted before.
    """

    workload: WorkloadName
    request: AdmissionRequest
    count: int = 1
    each_node: bool = False
    missing: Mapping[str, MemberPath] = USER
    as_it_is: str = ""
    refusal: Callable[[Object], str] | None = None


POD_LEVEL = "spec.resources"
"""Container of an amount at pod level: no container's name has a dot."""


class ContainerAmount(Output, frozen=True, kw_only=True):
    """The request and limit of a container, as Kubernetes quantities."""

    container: Annotated[str, Meta(description="Its name; spec.resources for the pod level.")]
    resource: str
    request: Annotated[str | None, Meta(description="null: the container has none.")] = None
    limit: Annotated[str | None, Meta(description="null: the container has none.")] = None

    @property
    def quantities(self) -> tuple[Quantity | None, Quantity | None]:
        """The request and the limit, which are compared by value: 1Gi is 1024Mi."""
        request, limit = (None if text is None else parse_quantity(text) for text in (self.request, self.limit))
        return request, limit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContainerAmount) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Hashable, ...]:
        return self.container, self.resource, self.quantities


class Move(Output, frozen=True, kw_only=True):
    """A move from the requested resource to another one."""

    requested: str
    given: str


class WrittenAmount(Output, frozen=True, kw_only=True):
    """A Kubernetes quantity that a rule writes."""

    container: str
    resource: str
    amount: str


class RuleEffect(Output, frozen=True, kw_only=True):
    """The contribution of a rule to an outcome."""

    rule: RuleId
    source: Annotated[Location, Meta(description="The field that decided, or the rule.")]
    action: Action
    message: Annotated[str, Meta(description="The message of its denial; empty without one.")] = ""
    fallbacks: tuple[Move, ...] = ()
    amounts: tuple[WrittenAmount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    members: tuple[LoggedMember, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def effect(self) -> tuple[object, ...]:
        """The effect of the rule on the pod, without its location; () if it leaves the pod unchanged."""
        parts = (self.message, self.fallbacks, self.amounts, self.annotations, self.members, self.warnings)
        return parts if any(parts) else ()


class Outcome(Output, frozen=True, kw_only=True):
    """The outcome of a pod's admission at both endpoints."""

    unknown: Annotated[str, Meta(description="The reason why the outcome is not known; empty if it is.")] = ""
    allowed: Annotated[bool | None, Meta(description="null: not known.")] = True
    message: Annotated[str, Meta(description="The message of a denial; empty without one.")] = ""
    resources: Annotated[
        tuple[ContainerAmount, ...], Meta(description="After the mutation; none of a denied pod.")
    ] = ()
    annotations: Annotated[
        Mapping[str, str | None], Meta(description="Annotations that rules write; null: remove.")
    ] = field(default_factory=dict)
    members: Annotated[
        tuple[LoggedMember, ...], Meta(description="Members that PodDefaults write, without annotations.")
    ] = ()
    warnings: tuple[str, ...] = ()
    gpus: Annotated[
        Mapping[str, DeviceCount], Meta(description="Devices that the whole pod requests, by resource.")
    ] = field(default_factory=dict)
    rules: Annotated[tuple[RuleEffect, ...], Meta(description="The contributing rules, in order of evaluation.")] = ()

    @property
    def member_texts(self) -> Mapping[tuple[str, str], str]:
        """The values of `members` as text, by container and member."""
        return {(each.container, each.member): each.text or "written" for each in self.members}

    @property
    def fallbacks(self) -> tuple[Move, ...]:
        """The moves to other resources; none for a denied pod."""
        return tuple(move for rule in self.rules for move in rule.fallbacks) if self.allowed else ()


class UnknownOutcome(Outcome, frozen=True, kw_only=True):
    """An outcome that depends on what the input lacks.

    `known_key`: all else that it depends on: equal keys mean equal outcomes.
    """

    allowed: bool | None = None
    known_key: object


class Kind(StrEnum):
    """Kinds of change: the arguments of `--allow`.

    A pod that only one rule set admits has no other kind of change. RUNG: it gets another resource; RESOURCES and
    ANNOTATIONS: differences that no changed rung explains. MEMBERS: PodDefaults write other members. RULE: other rules
    lead to an equal outcome. UNKNOWN: an outcome is unknown and may have changed.
    """

    DENIED = "Denied"
    ADMITTED = "Admitted"
    RUNG = "Rung"
    RESOURCES = "Resources"
    ANNOTATIONS = "Annotations"
    MEMBERS = "Members"
    WARNINGS = "Warnings"
    MESSAGE = "Message"
    RULE = "Rule"
    UNKNOWN = "Unknown"


class DifferingRule(Output, frozen=True, kw_only=True):
    """A rule whose effect differs."""

    rule: RuleId
    before: Annotated[Location | None, Meta(description="What decided under the old rules; null: no effect.")]
    after: Annotated[Location | None, Meta(description="The same under the new rules.")]


class OutcomeChange(Output, frozen=True, kw_only=True):
    """Different outcomes of a pod under both rule sets."""

    kinds: tuple[Kind, ...]
    rules: Annotated[tuple[DifferingRule, ...], Meta(description="Empty if an outcome is not known.")]
    before: Outcome
    after: Outcome


class RecordedAdmissions(Output, frozen=True, kw_only=True):
    """Numbers of lines of a decision log."""

    lines: Annotated[int, Meta(description="Lines that were read.")]
    admissions: Annotated[int, Meta(description="Lines of decisions.")]
    replayed: Annotated[int, Meta(description="Those that were decided again under both rule sets.")]
    later_calls: Annotated[int, Meta(description="Calls of /validate whose pod is decided with its call of /mutate.")]
    not_replayable: Annotated[CountsByName, Meta(description="Lines of decisions that cannot be decided again.")]
    unreadable: Annotated[CountsByName, Meta(description="Lines that are not lines of a decision log, by reason.")]


def largest_first(counts: CountsByName) -> CountsByName:
    """Return counts in descending order, then by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
