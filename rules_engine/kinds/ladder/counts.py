"""Numbers of devices that a pod's containers request of a ladder's resources, and the edits that change them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rules_engine.model.json.edits import Edits
from rules_engine.model.json.strict import Path
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS, Quantity


class DeviceCounts(Struct, frozen=True):
    """Positive numbers of devices by resource, for each of the pod's containers."""

    pod: Pod
    by_container: tuple[Mapping[str, int], ...]

    @classmethod
    def read(cls, pod: Pod, resources: Sequence[str]) -> "DeviceCounts":
        """Count the devices of a pod. Without resources no container is read: there may be 60,000."""
        if not resources:
            return cls(pod, ())
        by_container = [
            {name: amount.whole for name in resources if (amount := container.limit_or_request(name))}
            for container in pod.containers
        ]
        return cls(pod, tuple(by_container))

    @property
    def resources(self) -> frozenset[str]:
        """The resources that any container requests."""
        return frozenset([resource for counts in self.by_container for resource in counts])

    def effective(self, resource: str) -> int:
        """The pod's effective request, in nanos."""
        return self.pod.effective(resource, [counts.get(resource, 0) * NANOS for counts in self.by_container])

    def move_resource(self, source: str, target: str, numerator: int, denominator: int) -> "DeviceCounts":
        """Return the counts with all devices of `source` moved to `target`: × numerator ÷ denominator, rounded up."""
        by_container = []
        for counts in self.by_container:
            count = counts.get(source)
            if count is not None:
                others = {resource: amount for resource, amount in counts.items() if resource != source}
                counts = {**others, target: others.get(target, 0) + -(-count * numerator // denominator)}
            by_container.append(counts)
        return DeviceCounts(self.pod, tuple(by_container))


def edits_between(before: DeviceCounts, after: DeviceCounts, moves: Mapping[str, str]) -> Edits:
    """Return the edits that move whole resources in the pod, source to target.

    The target is written into limits; it is also written into requests if they have the source or the target.
    """
    edits: dict[Path, dict[str, str | None]] = {}
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
        edits[container.limits_path] = limits
        if requests:
            edits[container.requests_path] = requests
    return edits
