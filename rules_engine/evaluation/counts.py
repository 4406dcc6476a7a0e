"""Counts of the devices that a pod's containers request of a ladder's resources, and the edits that change them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rules_engine.cel import EvaluationError
from rules_engine.model.json.edits import Edits
from rules_engine.model.json.strict import Path
from rules_engine.model.pod import Container, Pod
from rules_engine.model.quantity import NANOS, Quantity

MAX_CONTAINERS = 256
"""Containers and init containers of a pod that a ladder or an injection changes: ten times what large pods have, since
each may be changed, recorded in the trace and logged."""


def too_many_containers(pod: Pod) -> EvaluationError:
    """Return the error of a rule that would change a pod with more than MAX_CONTAINERS."""
    count = len(pod.containers)
    return EvaluationError(f"/spec/containers: {count} containers and init containers, more than {MAX_CONTAINERS}")


def malformed(container: Container, resource: str) -> str | None:
    """Return the message for a container whose amounts of an extended resource the API server will refuse, else None.

    Source: k8s.io/kubernetes/pkg/apis/core/validation (ValidateResourceRequirements).
    """
    request, limit = container.requests.get(resource), container.limits.get(resource)
    if request is not None and limit is not None and request != limit:
        return f"{container.name} has the request {request} but the limit {limit} for {resource}"
    amount = container.limit_or_request(resource)
    if amount is not None and (amount.nanos < 0 or not amount.is_whole):
        return f"{container.name} requests {amount} of {resource}, which must be a whole number and not negative"
    return None


@dataclass(frozen=True, slots=True)
class Counts:
    """Whole numbers above zero by resource, for each of the pod's containers."""

    pod: Pod
    by_container: tuple[Mapping[str, int], ...]

    @classmethod
    def read(cls, pod: Pod, resources: Sequence[str]) -> "Counts":
        """Return the counts of a pod. Without resources no container is read: there may be 60,000."""
        if not resources:
            return cls(pod, ())
        by_container = [
            {name: amount.whole for name in resources if (amount := container.limit_or_request(name))}
            for container in pod.containers
        ]
        return cls(pod, tuple(by_container))

    @property
    def resources(self) -> frozenset[str]:
        """The resources that some container requests."""
        return frozenset([resource for counts in self.by_container for resource in counts])

    def effective(self, resource: str) -> int:
        """The pod's effective request, in nanos."""
        return self.pod.effective(resource, [counts.get(resource, 0) * NANOS for counts in self.by_container])

    def moved(self, source: str, target: str, numerator: int, denominator: int) -> "Counts":
        """Return the counts with all of `source` moved to `target`: × numerator ÷ denominator, rounded up."""
        moved = []
        for counts in self.by_container:
            count = counts.get(source)
            if count is not None:
                rest = {resource: amount for resource, amount in counts.items() if resource != source}
                rest[target] = rest.get(target, 0) + -(-count * numerator // denominator)
                counts = rest
            moved.append(counts)
        return Counts(self.pod, tuple(moved))


def edits(before: Counts, after: Counts, moves: Mapping[str, str]) -> Edits:
    """Return the edits that move whole resources in the pod, source to target.

    The target is written into limits, and into requests as well where the container has the source or the target
    there.
    """
    written: dict[Path, dict[str, str | None]] = {}
    for container, old, new in zip(before.pod.containers, before.by_container, after.by_container, strict=True):
        sources = [source for source in moves if source in old]
        if not sources:
            continue
        requests: dict[str, str | None] = {source: None for source in sources if source in container.requests}
        limits: dict[str, str | None] = {source: None for source in sources if source in container.limits}
        for source in sources:
            target = moves[source]
            limits[target] = text = str(Quantity.of(new[target]))
            if source in container.requests or target in container.requests:
                requests[target] = text
        written[container.limits_path] = limits
        if requests:
            written[container.requests_path] = requests
    return written
