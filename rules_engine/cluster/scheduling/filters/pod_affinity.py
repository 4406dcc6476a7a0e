"""The filter InterPodAffinity: required affinity and anti-affinity (plugins/interpodaffinity/filtering.go)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.filters.bound_pods import BoundPods, LabelGroup
from rules_engine.cluster.scheduling.filters.selector_index import SelectorIndex
from rules_engine.cluster.scheduling.filters.topologies import Domains, Topologies
from rules_engine.cluster.scheduling.requirements import AffinityTerm, Footprint, Requirements
from rules_engine.language.cel import Budget
from rules_engine.model.json.patch import EMPTY
from rules_engine.model.kubernetes.cluster import NAMESPACE_NAME_LABEL
from rules_engine.model.rules.rule import LabelSelector


class Namespaces:
    """Namespaces with their labels; `known` False: they were not read, and namespace selectors cannot be evaluated."""

    __slots__ = ("_labels", "known")

    def __init__(self, labels: Mapping[str, Mapping[str, str]] | None) -> None:
        """Take the labels by namespace; a namespace that is not listed has none but its name."""
        self.known = labels is not None
        self._labels = {name: {**own_labels, NAMESPACE_NAME_LABEL: name} for name, own_labels in (labels or {}).items()}

    def covers(self, term: AffinityTerm, namespace: str) -> bool:
        """Return True if a term of a pod that is not bound yet selects pods of a namespace."""
        # The scheduler compares the selector with no labels too, whatever the namespace: its change of the term is
        # lost (plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty).
        selector = term.namespace_selector
        return self.includes(term, namespace) or (selector is not None and selector.matches(EMPTY))

    def includes(self, term: AffinityTerm, namespace: str) -> bool:
        """Return True if a term of a bound pod selects pods of a namespace."""
        selector = term.namespace_selector
        return namespace in term.namespaces or (
            selector is not None and selector.matches(self._labels.get(namespace, {NAMESPACE_NAME_LABEL: namespace}))
        )


class BoundTerm:
    """A term of bound pods, with the sum of the weights that these pods give it, by domain."""

    def __init__(self, term: AffinityTerm, domains: Domains) -> None:
        self.term = term
        self.domains = domains
        self.pods = 0


class BoundTerms:
    """The terms of bound pods' affinity, which follow each pod that is bound or released."""

    def __init__(self, topologies: Topologies, budget: Budget | None = None) -> None:
        """Take a budget, of which each term that is compared costs a unit; None: comparisons are not limited."""
        self._topologies = topologies
        self._terms: dict[AffinityTerm, BoundTerm] = {}
        self._index: SelectorIndex[BoundTerm] = SelectorIndex(budget)

    def add(self, number: int, term: AffinityTerm, weight: int, sign: int) -> None:
        """Add a term of a pod on a node, or remove it with the sign -1."""
        bound_term = self._terms.get(term)
        if bound_term is None:
            key = term.topology_key
            domains = Domains(self._topologies, key, self._topologies.having(key))
            bound_term = self._terms[term] = BoundTerm(term, domains)
            self._index.add(term.selector, bound_term)
        bound_term.pods += sign
        bound_term.domains.change(number, sign * weight)
        if not bound_term.pods:
            del self._terms[term]
            self._index.remove(term.selector, bound_term)

    def matching(self, labels: Mapping[str, str]) -> Iterator[BoundTerm]:
        """Yield the terms whose selector matches the labels. Raises CostExceeded."""
        return self._index.matching(labels)


@dataclass(frozen=True, slots=True)
class AffinePods:
    """The pods that match every term."""

    terms: tuple[AffinityTerm, ...]
    namespaces: Namespaces = field(compare=False)

    @property
    def selector(self) -> LabelSelector | None:
        return self.terms[0].selector

    def includes(self, pod: Footprint) -> bool:
        covers = self.namespaces.covers
        return all(covers(term, pod.namespace) and term.matches_labels(pod.labels) for term in self.terms)

    def groups(self, pods: BoundPods) -> Iterator[LabelGroup]:
        first, *others = self.terms
        if first.selector is None:
            return
        covers = self.namespaces.covers
        selected_namespaces = (
            [*first.namespaces] if first.namespace_selector is None else pods.namespaces(partial(covers, first))
        )
        for namespace in selected_namespaces:
            if all(covers(term, namespace) for term in others):
                for group in pods.matching(namespace, first.selector):
                    if all(term.matches_labels(group.labels) for term in others):
                        yield group

    def nodes(self, pods: BoundPods, topologies: Topologies, key: str) -> NodeSet:
        """Return the nodes of the domains of a label in which these pods run."""
        return pods.by_domain(self, key, topologies.having(key)).nodes


def exclude_by_affinity(
    pod: Requirements, pods: BoundPods, namespaces: Namespaces, topologies: Topologies, every: NodeSet
) -> NodeSet:
    """Return the nodes that the pod's required affinity excludes."""
    present = near = every
    any_domain = False
    affine = AffinePods(pod.affinity, namespaces)
    for term in pod.affinity:
        present &= topologies.having(term.topology_key)
        nodes = affine.nodes(pods, topologies, term.topology_key)
        any_domain |= nodes != 0
        near &= nodes
    # The first pod of a group that has affinity to itself may run wherever the labels are.
    if not any_domain and affine.includes(pod):
        return every & ~present
    return every & ~near
