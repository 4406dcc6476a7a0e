"""FallbackLadder, as loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from rules_engine.cluster.nodes import NodeFilter, NodeQuery, Offered
from rules_engine.model.kubernetes.names import QUEUE_LABEL
from rules_engine.model.problems.codes import ProblemCode
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.rule import Interests, Mode, Rule
from rules_engine.rules.pod_members.value import FIELDS, Member


class LadderCode(ProblemCode):
    """Codes of problems of a FallbackLadder."""

    DUPLICATE_RUNG = "duplicate-rung"
    POOL_KEYS = "pool-keys"
    SEVERAL_ASSUMED = "several-assumed"
    MISSING_WEIGHT = "missing-weight"
    CONDITION_READS_AMOUNTS = "condition-reads-amounts"
    SINGLE_RUNG = "single-rung"
    UNUSED_WHEN = "unused-when"
    UNREACHABLE_RUNG = "unreachable-rung"
    MIXED_CARDS = "mixed-cards"
    RUNG_ORDER = "rung-order"
    RUNG_NOT_OFFERED = "rung-not-offered"
    UNTOLERATED_POOL = "untolerated-pool"
    AUTOSCALED_POOL = "autoscaled-pool"
    LEAVES_QUOTA = "leaves-quota"


FALLBACK_ANNOTATION = "gpurules.io/fallback"
"""Default annotation of pods that a ladder changes."""

WEBHOOK_ANNOTATION = "gpu-webhook.k8s.io/fallback"
"""Annotation of the GPU allocation webhook, the former default."""


class Direction(Enum):
    """The direction in which a ladder searches for a rung that is offered."""

    DOWN = "Down"
    UP = "Up"
    DOWN_THEN_UP = "DownThenUp"


class Counts(Enum):
    """The number of devices after a move: unchanged, or scaled by the rungs' weights."""

    KEEP = "Keep"
    SCALE = "Scale"


class WhenExhausted(Enum):
    """The action for a request that no rung can serve."""

    KEEP = "Keep"
    DENY = "Deny"


class Unplaced(Enum):
    """The action for a pod that selects nodes by none of the pools' keys."""

    IGNORE = "Ignore"
    FIRST = "First"


class Queued(Enum):
    """The action for a pod in a queue of Kueue, whose quota is by flavor."""

    IGNORE = "Ignore"
    MOVE = "Move"


PoolLabels: TypeAlias = tuple[tuple[str, str | None], ...]
"""A node pool: labels of its nodes, in order of key; None: its nodes do not have the label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung of a ladder; `when` is evaluated if this rung is a target. `origin` has the location of each key.

    `pool` is empty for a rung on any node; the resource and the pool identify a rung. `place`: what lets a
    pod run in the pool.
    """

    resource: str
    location: Location
    name: str = ""
    pool: PoolLabels = ()
    place: tuple[Member, ...] = ()
    weight: int | None = None
    when: SourceText | None = None
    assume: bool = False
    origin: Mapping[str, Location] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)

    @property
    def title(self) -> str:
        """The rung in decisions: its resource, and the name of its pool."""
        return f"{self.resource}@{self.name}" if self.pool else self.resource

    @property
    def runtime_class(self) -> str:
        """The runtime class of a pod that moves here; "" if the rung sets none."""
        return next((str(each.value) for each in self.place if each.field is FIELDS["runtimeClassName"]), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackLadder(Rule):
    """A ladder that replaces a requested GPU resource that no node offers; rungs from the highest down."""

    kind = "FallbackLadder"

    rungs: tuple[Rung, ...]
    offered: Offered = Offered.ALLOCATABLE
    nodes: NodeFilter = NodeFilter()  # noqa: RUF009 - immutable
    direction: Direction = Direction.DOWN
    counts: Counts = Counts.KEEP
    when_exhausted: WhenExhausted = WhenExhausted.KEEP
    unplaced: Unplaced = Unplaced.IGNORE
    queued: Queued = Queued.IGNORE
    annotation: str = FALLBACK_ANNOTATION

    @property
    def histories(self) -> tuple[str, ...]:
        """The annotations that a move may be appended to: the first that the pod has, else the ladder's own."""
        shared = (FALLBACK_ANNOTATION, WEBHOOK_ANNOTATION)
        return tuple(dict.fromkeys((self.annotation, *shared))) if self.annotation in shared else (self.annotation,)

    @property
    def interests(self) -> Interests:
        return Interests(
            resources=frozenset(self.resources),
            moves=True,
            gives=frozenset(self.resources),
            reads=(
                *(("metadata", "annotations", key) for key in self.histories if key),
                *(("spec", "nodeSelector", key) for key in self.pool_keys),
                *([("metadata", "labels", QUEUE_LABEL)] if self.pool_keys and self.queued is Queued.IGNORE else []),
            ),
        )

    @property
    def can_deny(self) -> bool:
        return self.mode is Mode.ENFORCE and self.when_exhausted is WhenExhausted.DENY

    @property
    def own_expressions(self) -> Mapping[str, SourceText]:
        return {f"rungs[{index}].when": rung.when for index, rung in enumerate(self.rungs) if rung.when is not None}

    @property
    def query(self) -> NodeQuery:
        """The query for the nodes that offer its resources, the same for every pod."""
        return NodeQuery(nodes=self.nodes, offered=self.offered, resources=self.resources)

    @property
    def rung_names(self) -> tuple[str, ...]:
        return tuple(rung.title for rung in self.rungs)

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources of the rungs, in order."""
        return tuple(dict.fromkeys(rung.resource for rung in self.rungs))

    @property
    def pool_keys(self) -> tuple[str, ...]:
        """The keys of the labels that all pools of the ladder have; none for a ladder without pools."""
        return tuple(key for rung in self.rungs[:1] for key, _ in rung.pool)

    def targets(self, index: int) -> Sequence[int]:
        """Return the rungs to which the rung at `index` may move, in the order of attempts; the assumed one last."""
        lower = [] if self.direction is Direction.UP else [*range(index + 1, len(self.rungs))]
        higher = [] if self.direction is Direction.DOWN else [*reversed(range(index))]
        return sorted([*lower, *higher], key=lambda target: self.rungs[target].assume)
