"""The filter InterPodAffinity: required affinity and anti-affinity (plugins/interpodaffinity/filtering.go)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from rules_engine.cel import Budget
from rules_engine.evaluation.nodes import NodeSet
from rules_engine.model.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.rules import ConditionKind, LabelSelector
from rules_engine.scheduling.filters.bound_pods import BoundPods, PodGroup
from rules_engine.scheduling.filters.topologies import Topologies
from rules_engine.scheduling.requirements import AffinityTerm, Requirements

CACHED_DOMAINS = 1_000
"""Terms of bound pods whose nodes are cached: 700 bytes each with 5,000 nodes."""

_NOTHING: Mapping[str, str] = {}


class Namespaces:
    """Namespaces with their labels; `known` False: they were not read, and namespace selectors cannot be evaluated."""

    __slots__ = ("_labels", "known")

    def __init__(self, labels: Mapping[str, Mapping[str, str]] | None) -> None:
        """Take the labels by namespace; a namespace that is not listed has none but its name."""
        self.known = labels is not None
        self._labels = {name: {**found, NAMESPACE_NAME_LABEL: name} for name, found in (labels or {}).items()}

    def covers(self, term: AffinityTerm, namespace: str) -> bool:
        """Return True if a term of a pod that is not bound yet is about pods of a namespace."""
        # The scheduler compares the selector with no labels too, whatever the namespace: its change of the term does
        # not last (plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty).
        selector = term.namespace_selector
        return self.includes(term, namespace) or (selector is not None and selector.matches(_NOTHING))

    def includes(self, term: AffinityTerm, namespace: str) -> bool:
        """Return True if a term of a bound pod is about pods of a namespace."""
        selector = term.namespace_selector
        return namespace in term.namespaces or (
            selector is not None and selector.matches(self._labels.get(namespace, {NAMESPACE_NAME_LABEL: namespace}))
        )


class RepellingTerms:
    """Terms of the bound pods' required anti-affinity, with the nodes of those pods, by a label that they require.

    Terms that are compared, and their nodes on first use, cost a unit each.
    """

    def __init__(self, topologies: Topologies, budget: Budget) -> None:
        self._budget = budget
        self._topologies = topologies
        self._carriers: dict[AffinityTerm, _Carriers] = {}
        self._by_label: dict[tuple[str, str], dict[AffinityTerm, None]] = {}
        self._others: dict[AffinityTerm, None] = {}
        self._cached: list[_Carriers] = []

    def add(self, number: int, terms: Iterable[AffinityTerm]) -> None:
        """Add the terms of a pod that is bound to a node."""
        for term in terms:
            carriers = self._carriers.get(term)
            if carriers is None:
                carriers = self._carriers[term] = _Carriers()
                for listed in self._lists(term):
                    listed[term] = None
            carriers.nodes[number] = carriers.nodes.get(number, 0) + 1
            self._count(carriers, number, term.topology_key, 1)

    def remove(self, number: int, terms: Iterable[AffinityTerm]) -> None:
        """Undo an `add`."""
        for term in terms:
            carriers = self._carriers[term]
            self._count(carriers, number, term.topology_key, -1)
            carriers.nodes[number] -= 1
            if not carriers.nodes[number]:
                del carriers.nodes[number]
                if not carriers.nodes:
                    del self._carriers[term]
                    for listed in self._lists(term):
                        del listed[term]

    def about(self, labels: Mapping[str, str]) -> Iterator[AffinityTerm]:
        """Yield the terms whose selector matches labels. Raises CostExceeded."""
        if not self._carriers:
            return
        for listed in (self._others, *(self._by_label.get(label, {}) for label in labels.items())):
            self._budget.spend(len(listed))
            for term in listed:
                if term.matches_labels(labels):
                    yield term

    def near(self, term: AffinityTerm) -> NodeSet:
        """Return the nodes of the domains in which pods with this term run."""
        carriers = self._carriers[term]
        if carriers.domains is None:
            self._budget.spend(len(carriers.nodes))
            if len(self._cached) >= CACHED_DOMAINS:
                for other in self._cached:
                    other.domains = None
                self._cached.clear()
            self._cached.append(carriers)
            carriers.domains, carriers.near = {}, 0
            for number, count in carriers.nodes.items():
                self._count(carriers, number, term.topology_key, count)
        return carriers.near

    def _lists(self, term: AffinityTerm) -> Sequence[dict[AffinityTerm, None]]:
        """Return the lists that a term is on."""
        places = [*_required(term.selector)]
        return [self._by_label.setdefault(place, {}) for place in places] if places else [self._others]

    def _count(self, carriers: "_Carriers", number: int, key: str, by: int) -> None:
        """Count pods on a node in the domains of a term, if they are cached."""
        domain = None if carriers.domains is None else self._topologies.domain(number, key)
        if carriers.domains is None or domain is None:
            return
        before = carriers.domains.get(domain, 0)
        carriers.domains[domain] = before + by
        if not before:
            carriers.near |= self._topologies.nodes(key, (domain,))
        elif not before + by:
            # Domains of one label have no node in common.
            carriers.near ^= self._topologies.nodes(key, (domain,))


class _Carriers:
    """The pods with a term: their number by node and, if cached, by domain, with the nodes of those domains."""

    __slots__ = ("domains", "near", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[int, int] = {}
        self.domains: dict[str, int] | None = None
        self.near: NodeSet = 0


def _required(selector: LabelSelector | None) -> Iterator[tuple[str, str]]:
    """Yield labels of which a selector requires one; none if it requires none."""
    for requirement in selector.requirements if selector else ():
        if requirement.operator is ConditionKind.IN:
            yield from dict.fromkeys((requirement.key, value) for value in requirement.values)
            return


def unaffine(
    pod: Requirements, pods: BoundPods, namespaces: Namespaces, topologies: Topologies, every: NodeSet
) -> NodeSet:
    """Return the nodes that the pod's required affinity excludes."""
    present = near = every
    any_domain = False
    matched = _nodes_of(_matching_all(pod.affinity, pods, namespaces))
    for term in pod.affinity:
        present &= topologies.having(term.topology_key)
        domains = topologies.nodes(term.topology_key, topologies.values(matched, term.topology_key))
        any_domain |= domains != 0
        near &= domains
    # The first pod of a group that has affinity to itself may run wherever the labels are.
    if not any_domain and _matches_itself(pod, namespaces):
        return every & ~present
    return every & ~near


def anti_affine(pod: Requirements, pods: BoundPods, namespaces: Namespaces, topologies: Topologies) -> NodeSet:
    """Return the nodes that the pod's required anti-affinity excludes."""
    found = 0
    for term in pod.anti_affinity:
        matched = _nodes_of(_matching_all((term,), pods, namespaces))
        found |= topologies.nodes(term.topology_key, topologies.values(matched, term.topology_key))
    return found


def repelled_by_pods(pod: Requirements, terms: RepellingTerms, namespaces: Namespaces) -> NodeSet:
    """Return the nodes that the required anti-affinity of bound pods excludes."""
    found = 0
    for term in terms.about(pod.labels):
        if namespaces.includes(term, pod.namespace):
            found |= terms.near(term)
    return found


def _matching_all(terms: tuple[AffinityTerm, ...], pods: BoundPods, namespaces: Namespaces) -> Iterator[PodGroup]:
    """Yield the groups of pods that all terms match."""
    first, *others = terms
    if first.selector is None:
        return
    named = (
        [*first.namespaces] if first.namespace_selector is None else pods.namespaces(partial(namespaces.covers, first))
    )
    for namespace in named:
        if all(namespaces.covers(term, namespace) for term in others):
            for group in pods.matching(namespace, first.selector):
                if all(term.matches_labels(group.labels) for term in others):
                    yield group


def _nodes_of(groups: Iterable[PodGroup]) -> frozenset[int]:
    return frozenset[int]().union(*(group.nodes for group in groups))


def _matches_itself(pod: Requirements, namespaces: Namespaces) -> bool:
    return all(namespaces.covers(term, pod.namespace) and term.matches_labels(pod.labels) for term in pod.affinity)
