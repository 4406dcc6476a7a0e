"""Numbers of devices that a pod's containers request of a ladder's resources, and the edits that change them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rules_engine.model.json.edits import Edits
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS, Quantity
from rules_engine.rules.rule_set.compiled import Replacement


class DeviceCounts(Struct, frozen=True):
    """Positive numbers of devices by resource, for each of the pod's containers; `names`: the resources read."""

    pod: Pod
    by_container: tuple[Mapping[str, int], ...]
    names: tuple[str, ...] = ()

    @classmethod
    def read(cls, pod: Pod, resources: Sequence[str]) -> "DeviceCounts":
        """Count the devices of a pod. Without resources no container is read: there may be 60,000."""
        if not resources:
            return cls(pod, ())
        by_container = [
            {name: amount.whole for name in resources if (amount := container.limit_or_request(name))}
            for container in pod.containers
        ]
        return cls(pod, tuple(by_container), tuple(resources))

    @property
    def resources(self) -> frozenset[str]:
        """The resources that any container requests."""
        return frozenset(resource for counts in self.by_container for resource in counts)

    def effective(self, resource: str) -> int:
        """The pod's effective request, in nanos."""
        return self.pod.effective(resource, [counts.get(resource, 0) * NANOS for counts in self.by_container])

    def moved(self, moves: Mapping[str, Replacement | None]) -> "DeviceCounts":
        """Return the counts with all devices of each source replaced at once; None removes them."""
        by_container = []
        for counts in self.by_container:
            if not counts.keys().isdisjoint(moves):
                kept = {resource: amount for resource, amount in counts.items() if resource not in moves}
                for source, target in moves.items():
                    if target is not None and source in counts:
                        count = -(-counts[source] * target.numerator // target.denominator)
                        kept[target.resource] = kept.get(target.resource, 0) + count
                counts = kept
            by_container.append(counts)
        return DeviceCounts(self.pod, tuple(by_container), self.names)

    @property
    def edits(self) -> Edits:
        """Edits by which the pod has these counts, in no particular section: for evaluation only."""
        edits: dict[JsonPath, dict[str, str | None]] = {}
        for container, counts in zip(self.pod.containers, self.by_container, strict=False):
            edits[container.requests_path] = {name: None for name in self.names if name in container.requests}
            edits[container.limits_path] = {
                name: str(Quantity.of(counts[name])) if name in counts else None
                for name in {*self.names, *counts}
                if name in counts or name in container.limits
            }
        return {path: members for path, members in edits.items() if members}


def edits_between(before: DeviceCounts, after: DeviceCounts, moves: Mapping[str, str]) -> Edits:
    """Return the edits that move whole resources in the pod, source to target.

    The target is written into limits; it is also written into requests if they have the source or the target.
    """
    edits: dict[JsonPath, dict[str, str | None]] = {}
    for container, old, new in zip(before.pod.containers, before.by_container, after.by_container, strict=True):
        # A move to another pool may leave the resource and its count.
        sources = [name for name in moves if name in old and (moves[name] != name or old[name] != new[name])]
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
