"""Bound pods that keep a waiting pod off a node: by a port, or by anti-affinity of one of them."""

from collections.abc import Iterator, Sequence
from functools import cached_property

from rules_engine.cluster.scheduling import KubeScheduler
from rules_engine.cluster.scheduling.requirements import ALL_ADDRESSES, AffinityTerm, Footprint, HostPort, Requirements
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.wording import MAX_JOINED

MAX_COMPARED = 2_000_000
"""Pods that are compared in one diagnosis, some seconds; after that no more are named."""


class Conflicts:
    """The bound pods of a cluster, to be compared with pods that wait."""

    def __init__(self, objects: ClusterObjects, scheduler: KubeScheduler) -> None:
        self._objects = objects
        self._scheduler = scheduler
        self._compared = 0

    @cached_property
    def _bound(self) -> Sequence[tuple[int, str, Footprint]]:
        return [
            (number, f"{pod.namespace}/{pod.name}", Footprint.read(pod))
            for number, node in enumerate(self._scheduler.nodes)
            for pod in self._objects.pods_on(node.name)
        ]

    def find(self, pod: Requirements, node: int) -> Sequence[str]:
        """Return the names of pods that keep a pod off a node, a few more than a sentence lists at most."""
        found: list[str] = []
        if self._compared < MAX_COMPARED:
            for number, name, bound in self._bound:
                self._compared += 1
                if any(self._conflicts(pod, node, bound, number)):
                    found.append(name)
                    if len(found) > MAX_JOINED:
                        break
        return found

    def _conflicts(self, pod: Requirements, node: int, bound: Footprint, number: int) -> Iterator[bool]:
        namespaces = self._scheduler.namespaces
        if number == node:
            yield any(_is_taken(own, other) for own in pod.ports for other in bound.ports)
        for term in pod.anti_affinity:
            yield (
                self._is_near(term, node, number)
                and namespaces.covers(term, bound.namespace)
                and term.matches_labels(bound.labels)
            )
        for term in bound.anti_affinity:
            yield (
                self._is_near(term, node, number)
                and namespaces.includes(term, pod.namespace)
                and term.matches_labels(pod.labels)
            )

    def _is_near(self, term: AffinityTerm, node: int, other: int) -> bool:
        one, two = (self._scheduler.nodes[number].labels.get(term.topology_key) for number in (node, other))
        return one is not None and one == two


def _is_taken(own: HostPort, other: HostPort) -> bool:
    same = (own.protocol, own.number) == (other.protocol, other.number)
    return same and (own.address == other.address or ALL_ADDRESSES in (own.address, other.address))
