"""Pods as the scheduling cycle handles them."""

from typing import Self

from msgspec import Struct

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.amounts import PODS
from rules_engine.cluster.scheduling.preferences import Preferences
from rules_engine.cluster.scheduling.requirements import Requirements
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.rules.rule import LabelSelector
from rules_engine.model.rules.simulation import Milliseconds

NEVER = "Never"
"""The preemptionPolicy of pods that do not preempt others."""


class SchedulablePod(Struct, frozen=True):
    """A pod as the scheduler reads it, without its name: equal pods share one value.

    `amounts`: the positive requests and one of PODS, in the scheduler's units; the rarest resources first.
    `frees_devices`: its victims give their devices back, as those of preemption do only later.
    """

    requirements: Requirements
    preferences: Preferences
    preempts: bool
    amounts: tuple[tuple[str, int], ...]
    frees_devices: bool = False

    @classmethod
    def of(cls, raw: Object, selector: LabelSelector | None = None) -> Self:
        """Read a pod; `selector`: the selector of its ReplicaSet, StatefulSet or ReplicationController.

        Raises PodError if it is malformed, and TooLargeError if it is beyond a bound.
        """
        requirements = Requirements.of(raw)
        requested = sorted(
            [(resource, amount) for resource, amount in requirements.requests.items() if amount > 0],
            key=lambda request: ("/" not in request[0], request[0]),
        )
        preempts = text_member(as_mapping(raw.get("spec")), "preemptionPolicy") != NEVER
        return cls(requirements, Preferences.of(raw, requirements, selector), preempts, (*requested, (PODS, 1)))

    @property
    def priority(self) -> int:
        return self.requirements.priority


class BoundPod(Struct, frozen=True):
    """A pod that is bound to the node with a number; `name` has the form namespace/name."""

    name: str
    pod: SchedulablePod
    node: int
    start: Milliseconds


class Bound(Struct, frozen=True):
    """The node for a pod, and the pods released for it, the most important first; `waits`: it was not bound even so.

    `equal`: the nodes from which a hash of the names chose the node, with it.
    """

    node: int
    victims: tuple[BoundPod, ...] = ()
    waits: bool = False
    equal: NodeSet = 0
