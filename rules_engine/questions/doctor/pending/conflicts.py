"""Bound pods that keep a waiting pod off a node: by a port, or by anti-affinity of one of them."""

from collections.abc import Container, Iterator, Sequence
from functools import cache, cached_property

from rules_engine.cluster.nodes import NO_LABEL, numbers_of
from rules_engine.cluster.scheduling import KubeScheduler
from rules_engine.cluster.scheduling.filters.pod_affinity import AffinePods
from rules_engine.cluster.scheduling.filters.usage import Ports
from rules_engine.cluster.scheduling.requirements import AffinityTerm, Footprint, Requirements
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.wording import MAX_JOINED

MAX_COMPARED = 800_000
"""Pods, terms and values of labels that are compared in one diagnosis, a second; after that no more pods are named."""

_Bound = tuple[int, str, Footprint]
"""A bound pod: the number of its node, and its name as namespace/name."""


class Conflicts:
    """The bound pods of a cluster, to be compared with pods that wait."""

    def __init__(self, objects: ClusterObjects, scheduler: KubeScheduler) -> None:
        self._objects = objects
        self._scheduler = scheduler
        self._compared = 0
        self._on = cache(self._read_pods)

    def _read_pods(self, number: int) -> Sequence[_Bound]:
        pods = self._objects.pods_on(self._scheduler.nodes[number].name)
        return [(number, f"{pod.namespace}/{pod.name}", Footprint.read(pod)) for pod in pods]

    @cached_property
    def _repelling(self) -> Sequence[_Bound]:
        numbers = range(len(self._scheduler.nodes))
        return [each for number in numbers for each in self._on(number) if each[2].anti_affinity]

    def find(self, pod: Requirements, node: int, without: Container[str] = ()) -> Sequence[str]:
        """Return the names of pods that keep a pod off a node, one more than a sentence lists at most.

        `without`: names of pods that are left out.
        """
        found, own = dict[str, None](), _count(pod.anti_affinity)
        for number, name, bound in self._candidates(pod, node):
            self._compared += 1 + own + _count(bound.anti_affinity)
            if self._compared > MAX_COMPARED or len(found) > MAX_JOINED:
                break
            if name not in without and self._conflicts(pod, node, bound, number):
                found[name] = None
        return [*found]

    def _candidates(self, pod: Requirements, node: int) -> Iterator[_Bound]:
        yield from self._on(node)
        for term in pod.anti_affinity:
            label = self._scheduler.index.places.labels.get(term.topology_key, NO_LABEL)
            value = self._scheduler.nodes[node].labels.get(term.topology_key, "")
            for number in numbers_of(label.values[value] & ~(1 << node)):
                yield from self._on(number)
        yield from self._repelling

    def _conflicts(self, pod: Requirements, node: int, bound: Footprint, number: int) -> bool:
        namespaces = self._scheduler.namespaces
        if number == node and pod.ports:
            ports = Ports()
            ports.count(node, bound.ports, 1)
            if ports.taken(pod.ports):
                return True
        return any(
            AffinePods((term,), namespaces).includes(bound)
            for term in pod.anti_affinity
            if self._is_near(term, node, number)
        ) or any(
            namespaces.includes(term, pod.namespace) and term.matches_labels(pod.labels)
            for term in bound.anti_affinity
            if self._is_near(term, node, number)
        )

    def _is_near(self, term: AffinityTerm, node: int, other: int) -> bool:
        one, two = (self._scheduler.nodes[number].labels.get(term.topology_key) for number in (node, other))
        return one is not None and one == two


def _count(terms: Sequence[AffinityTerm]) -> int:
    """Return the number of terms with their requirements and the values of these."""
    selectors = [each for term in terms for each in (term.selector, term.namespace_selector) if each is not None]
    return len(terms) + sum(1 + len(each.values) for selector in selectors for each in selector.requirements)
