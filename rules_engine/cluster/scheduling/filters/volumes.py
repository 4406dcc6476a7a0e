"""The filter VolumeBinding (kubernetes/pkg/scheduler/framework/plugins/volumebinding/binder.go, FindPodVolumes)."""

from collections.abc import Callable, Iterator

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.requirements import Footprint, PodVolume
from rules_engine.cluster.scheduling.scheduling import NO_VOLUME, OTHER_VOLUME_NODE, Excluded
from rules_engine.model.kubernetes.placement import NodeTerm


class Volumes:
    """The PersistentVolumes that pods take with their nodes. `select` returns the nodes of a node selector."""

    def __init__(self, select: Callable[[tuple[NodeTerm, ...] | None], NodeSet]) -> None:
        self._select = select
        self._taken: dict[str, str] = {}
        """The claims of volumes that are taken, by volume."""

    def exclude(self, pod: Footprint, every: NodeSet) -> Excluded:
        """Return the nodes that have no candidate for a volume of a pod, by reason."""
        excluded: dict[str, NodeSet] = {}
        for volume, _, left in self._choose(pod, every):
            is_bound = bool(volume.claim) and volume.claim in self._taken.values()
            unbound = left == every or volume.otherwise == NO_VOLUME
            reason = volume.otherwise if unbound and not is_bound else OTHER_VOLUME_NODE
            excluded[reason] = excluded.get(reason, 0) | left
        return excluded

    def bind(self, number: int, pod: Footprint) -> None:
        self._taken.update({name: volume.claim for volume, name, _ in self._choose(pod, 1 << number) if name})

    def release(self, number: int, pod: Footprint) -> None:
        for volume in pod.volumes:
            names = (name for name, terms in volume.candidates if self._select(terms) >> number & 1)
            self._taken.pop(next((name for name in names if self._taken.get(name) == volume.claim), ""), None)

    def _choose(self, pod: Footprint, nodes: NodeSet) -> Iterator[tuple[PodVolume, str, NodeSet]]:
        """Yield each volume of a pod with the last candidate that is chosen, and the nodes that have none."""
        used: dict[str, NodeSet] = {}
        for volume in pod.volumes:
            left, chosen = nodes, ""
            own = [each for each in volume.candidates if volume.claim and self._taken.get(each[0]) == volume.claim]
            for name, terms in own or [each for each in volume.candidates if each[0] not in self._taken]:
                found = self._select(terms) & left & ~used.get(name, 0)
                left &= ~found
                if name and found:
                    used[name], chosen = used.get(name, 0) | found, name
            yield volume, chosen, left
