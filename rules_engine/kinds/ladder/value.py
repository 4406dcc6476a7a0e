"""FallbackLadder, as loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from rules_engine.evaluation.nodes import NodeFilter, NodeQuery, Offered
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.rule import Interests, Mode, Replacement, Rule

FALLBACK_ANNOTATION = "gpu-webhook.k8s.io/fallback"
"""Default annotation of pods that a ladder changes."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung of a ladder; `when` is evaluated if this rung is a target. `origin` has the location of each key."""

    resource: str
    location: Location
    weight: int | None = None
    when: SourceText | None = None
    assume: bool = False
    origin: Mapping[str, Location] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)


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
    annotation: str = FALLBACK_ANNOTATION

    @property
    def interests(self) -> Interests:
        return Interests(
            resources=frozenset(self.rung_resources),
            moves=True,
            annotations=frozenset({self.annotation}),
            node_labels=frozenset(requirement.key for requirement in self.nodes.selector.requirements),
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
        return NodeQuery(nodes=self.nodes, offered=self.offered, resources=self.rung_resources)

    def replacements(self, resource: str) -> Sequence[Replacement]:
        source = next((rung for rung in self.rungs if rung.resource == resource), None)
        if source is None:
            return ()
        position, scaled = self.rungs.index(source), self.counts is Counts.SCALE
        return [
            Replacement(rung.resource, source.weight or 1, rung.weight or 1) if scaled else Replacement(rung.resource)
            for rung in (*self.rungs[position + 1 :], *reversed(self.rungs[:position]))
        ]

    @property
    def rung_resources(self) -> tuple[str, ...]:
        return tuple(rung.resource for rung in self.rungs)
