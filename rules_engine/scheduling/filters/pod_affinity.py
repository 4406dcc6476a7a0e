"""The filter InterPodAffinity: required affinity and anti-affinity (plugins/interpodaffinity/filtering.go)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

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

    def __init__(self, labels: Mapping[str, Mapping[str, str]] | None, unlisted: Iterable[str]) -> None:
        """Take the labels by namespace, and the names of further namespaces, which have none but their name."""
        self.known = labels is not None
        names = dict.fromkeys((*unlisted, *(labels or ())))
        self._labels = {name: {**(labels or {}).get(name, {}), NAMESPACE_NAME_LABEL: name} for name in names}

    def of_term(self, term: AffinityTerm) -> Iterable[str]:
        """Return the namespaces of a term of a pod that is not bound yet."""
        selector = term.namespace_selector
        if selector is None:
            return term.namespaces
        # The scheduler compares the selector with no labels too, whatever the namespace: its change of the term does
        # not last (plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty).
        if selector.matches(_NOTHING):
            return self._labels.keys() | term.namespaces
        return term.namespaces | {name for name, labels in self._labels.items() if selector.matches(labels)}

    def includes(self, term: AffinityTerm, namespace: str) -> bool:
        """Return True if a term of a bound pod is about pods of a namespace."""
        selector = term.namespace_selector
        return namespace in term.namespaces or (
            selector is not None and selector.matches(self._labels.get(namespace, {NAMESPACE_NAME_LABEL: namespace}))
        )


class RepellingTerms:
    """Terms of the bound pods' required anti-affinity, with the nodes of those pods, by a label that they require.

    Terms that are compared, and their nodes, cost a unit each.
    """

    def __init__(self, terms: Mapping[AffinityTerm, Sequence[int]], topologies: Topologies, budget: Budget) -> None:
        self._budget = budget
        self._nodes = terms
        self._topologies = topologies
        self._by_label: dict[tuple[str, str], list[AffinityTerm]] = {}
        self._others: list[AffinityTerm] = []
        for term in terms:
            places = [*_required(term.selector)]
            for place in places:
                self._by_label.setdefault(place, []).append(term)
            if not places:
                self._others.append(term)
        self._domains = lru_cache(CACHED_DOMAINS)(self._domains_of)

    def about(self, labels: Mapping[str, str]) -> Iterator[AffinityTerm]:
        """Yield the terms whose selector matches labels. Raises CostExceeded."""
        for listed in (self._others, *(self._by_label.get(label, ()) for label in labels.items())):
            self._budget.spend(len(listed))
            for term in listed:
                if term.matches_labels(labels):
                    yield term

    def nodes(self, term: AffinityTerm) -> NodeSet:
        """Return the nodes of the domains in which pods with this term run."""
        return self._topologies.nodes(term.topology_key, self._domains(term))

    def _domains_of(self, term: AffinityTerm) -> frozenset[str]:
        self._budget.spend(len(self._nodes[term]))
        return self._topologies.values(self._nodes[term], term.topology_key)


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
            found |= terms.nodes(term)
    return found


def _matching_all(terms: tuple[AffinityTerm, ...], pods: BoundPods, namespaces: Namespaces) -> Iterator[PodGroup]:
    """Yield the groups of pods that all terms match."""
    first, *others = terms
    if first.selector is None:
        return
    places = [(term, frozenset(namespaces.of_term(term))) for term in others]
    for namespace in namespaces.of_term(first):
        for group in pods.matching(namespace, first.selector):
            if all(namespace in among and term.matches_labels(group.labels) for term, among in places):
                yield group


def _nodes_of(groups: Iterable[PodGroup]) -> frozenset[int]:
    return frozenset[int]().union(*(group.nodes for group in groups))


def _matches_itself(pod: Requirements, namespaces: Namespaces) -> bool:
    return all(
        pod.namespace in frozenset(namespaces.of_term(term)) and term.matches_labels(pod.labels)
        for term in pod.affinity
    )
