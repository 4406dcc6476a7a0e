"""The request of a pod that is not scheduled: its resources, and its requirements of a node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from msgspec import Struct

from rules_engine.accelerators.resources import is_gpu
from rules_engine.cluster.nodes import Demand
from rules_engine.model.json.lenient import Object
from rules_engine.model.kubernetes.placement import Placement
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.finding import Certainty
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.rules.diagnostic import Slots

ResourceNanos = tuple[tuple[str, int], ...]
"""Resources with their nanos, in the order of the pod."""


class PendingRequest(Struct, frozen=True):
    """A pod's request of GPUs and of other resources, in nanos, and its placement. Equal pods have equal requests."""

    gpus: ResourceNanos
    others: ResourceNanos
    placement: Placement

    @classmethod
    def of(cls, raw: Object) -> Self:
        """Read a pod. Raises PodError if it is malformed, and TooLargeError if its placement is too large."""
        pod = Pod.parse(dict(raw))
        requested = [(resource, nanos) for resource, nanos in pod.effective_requests().items() if nanos > 0]
        return cls(
            gpus=tuple(item for item in requested if is_gpu(item[0])),
            others=tuple(item for item in requested if not is_gpu(item[0])),
            placement=pod.placement,
        )

    @property
    def demand(self) -> Demand:
        """The nanos of each GPU resource."""
        return dict(self.gpus)

    @property
    def amounts(self) -> Mapping[str, int]:
        """The whole units of each GPU resource."""
        return {resource: nanos // NANOS for resource, nanos in self.gpus}

    @property
    def text(self) -> str:
        """The GPU resources with their amounts, for messages."""
        return " and ".join(f"{count} {resource}" for resource, count in self.amounts.items()) or "any devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExplanation:
    """A reason that is true for a pod, with the case and the slots of its entry in the catalogue of findings.

    `certainty`: None for that of the entry. `missing`: the resources for which the cluster has too few devices.
    `advises`: False if the remedies of the entry would not help.
    """

    reason: PendingReason
    case: str = ""
    slots: Slots = field(default_factory=dict)
    certainty: Certainty | None = None
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    advises: bool = True
