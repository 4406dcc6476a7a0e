"""Record of a simulation: every pod with its times and its node. All answers are computed from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.quantity import NanosByResource
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.simulation import Milliseconds, NodeEvent, Simulation


class State(StrEnum):
    """State of a pod when the simulation ended, or when the pod did. Refused: by the API server itself."""

    DENIED = "Denied"
    REFUSED = "Refused"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    PREEMPTED = "Preempted"
    EVICTED = "Evicted"


NOT_ADMITTED = (State.DENIED, State.REFUSED)


class Fallback(Output, frozen=True, kw_only=True):
    """A move from the requested resource to another one by a rule."""

    rule: RuleId
    requested: str
    given: str
    devices: Annotated[int, Meta(description="Devices that were requested.")]


class AdmittedPod(Struct, frozen=True, kw_only=True):
    """Effective requests of pods of one template with equal decisions, as submitted and as admitted.

    `message`: of the denial or refusal, "" if allowed; `denied_by`: its rule. `undecided`: a rule could not decide for
    lack of what was not read of the cluster.
    """

    requested: NanosByResource
    given: NanosByResource
    fallbacks: tuple[Fallback, ...] = ()
    warnings: tuple[str, ...] = ()
    message: str = ""
    denied_by: RuleId | None = None
    not_modelled: tuple[str, ...] = ()
    undecided: bool = False


class PodRecord(Struct, kw_only=True):
    """One pod.

    `arrival`: the number of its arrival; None: it existed at the beginning. `replaces`: the name of the lost pod that
    it replaces. `node` is kept after the pod has ended. `message`: of the scheduler, if the pod waits at the end. `by`:
    the pod that preempted it, or the change of its node that ended it.
    """

    name: str
    namespace: str
    arrival: int | None
    priority: int
    admitted: AdmittedPod
    arrived: Milliseconds
    state: State = State.PENDING
    node: str = ""
    bound: Milliseconds | None = None
    ended: Milliseconds | None = None
    message: str = ""
    replaces: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A completed or interrupted simulation.

    `rules`: the name of the rule set. `cluster`: the name of the cluster, "" for the Simulation's own. `nodes`: at the
    beginning. `changes`: of nodes, as they happened. `notices`: sentences on pods that were left out: unsuitable pods
    of the cluster, and pods beyond MAX_PODS.
    """

    simulation: Simulation = field(repr=False)
    rules: str
    nodes: Sequence[Node] = field(repr=False)
    pods: Sequence[PodRecord] = field(repr=False)
    changes: Sequence[NodeEvent]
    ended: Milliseconds
    cluster: str = ""
    interrupted: bool = False
    notices: tuple[str, ...] = ()
