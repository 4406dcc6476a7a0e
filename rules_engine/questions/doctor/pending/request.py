"""The request of a pod that is not scheduled, and the reasons that are true for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from msgspec import Struct

from rules_engine.accelerators.resources import is_gpu
from rules_engine.model.json.lenient import Object
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.finding import Certainty
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.rules.diagnostic.catalogue import Slots


class PendingRequest(Struct, frozen=True):
    """A pod's request of GPUs, and of all resources, GPUs first, in nanos by resource in the order of the pod."""

    gpus: Mapping[str, int]
    amounts: Mapping[str, int]

    @classmethod
    def of(cls, raw: Object) -> Self:
        """Read a pod. Raises PodError if it is malformed."""
        requests = Pod.parse(dict(raw)).effective_requests()
        requested = {resource: nanos for resource, nanos in requests.items() if nanos > 0}
        gpus = {resource: nanos for resource, nanos in requested.items() if is_gpu(resource)}
        return cls(gpus, {**gpus, **requested})

    @property
    def text(self) -> str:
        """The GPU resources with their amounts, for messages."""
        return request_text(self.gpus) or "any devices"


def request_text(amounts: Mapping[str, int]) -> str:
    """Return resources with their amounts for a sentence, from nanos."""
    return " and ".join(f"{nanos // NANOS} {name}" for name, nanos in amounts.items())


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
