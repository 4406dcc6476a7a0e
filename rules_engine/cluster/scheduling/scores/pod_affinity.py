"""The score plugin InterPodAffinity (plugins/interpodaffinity/scoring.go)."""

from collections.abc import Iterable, Iterator, Mapping

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.filters.pod_affinity import Namespaces
from rules_engine.cluster.scheduling.filters.selector_index import SelectorIndex
from rules_engine.cluster.scheduling.filters.topologies import Domains, Topologies
from rules_engine.cluster.scheduling.preferences import Preferences, WeightedTerm
from rules_engine.cluster.scheduling.requirements import AffinityTerm
from rules_engine.cluster.scheduling.scores.partition import (
    MAX_SCORE,
    Partition,
    add_scores,
    merge_groups,
    nodes_in_no_group,
)

HARD_WEIGHT = 1
"""Weight of bound pods' required affinity (apis/config/v1/defaults.go, hardPodAffinityWeight)."""


def terms_of(pod: Preferences) -> Iterator[WeightedTerm]:
    """Yield the terms of a bound pod that other pods' scores depend on."""
    for term in pod.requirements.affinity:
        yield WeightedTerm(HARD_WEIGHT, term)
    yield from pod.pod_affinity


class BoundTerm:
    """A term of bound pods, with the sum of the weights that these pods give it, by domain."""

    def __init__(self, term: AffinityTerm, domains: Domains) -> None:
        self.term = term
        self.domains = domains
        self.pods = 0


class BoundTerms:
    """The terms of bound pods' affinity, which follow each pod that is bound or released."""

    def __init__(self, topologies: Topologies, namespaces: Namespaces) -> None:
        self._topologies = topologies
        self._namespaces = namespaces
        self._terms: dict[AffinityTerm, BoundTerm] = {}
        self._index: SelectorIndex[BoundTerm] = SelectorIndex()
        self.version = 0
        """A number that changes when there are other terms than before."""

    def add(self, number: int, terms: Iterable[WeightedTerm], sign: int) -> None:
        """Add the terms of a pod on a node, or remove them."""
        for weighted in terms:
            term = weighted.term
            bound_term = self._terms.get(term)
            if bound_term is None:
                key = term.topology_key
                domains = Domains(self._topologies, key, self._topologies.having(key))
                bound_term = self._terms[term] = BoundTerm(term, domains)
                self._index.add(term.selector, bound_term)
                self.version += 1
            bound_term.pods += sign
            bound_term.domains.change(number, sign * weighted.weight)
            if not bound_term.pods:
                del self._terms[term]
                self._index.remove(term.selector, bound_term)
                self.version += 1

    def matching(self, pod: Preferences) -> Iterator[BoundTerm]:
        """Yield the terms that match a pod."""
        namespace = pod.requirements.namespace
        for bound_term in self._index.matching(pod.requirements.labels):
            if self._namespaces.includes(bound_term.term, namespace):
                yield bound_term


def pod_affinity_score(sums: Iterable[tuple[int, Mapping[int, NodeSet]]], nodes: NodeSet) -> Partition:
    """Return the score by node, from weights, each with the nodes by a sum that it multiplies."""
    scores: Mapping[int, NodeSet] = {0: nodes}
    for weight, by_sum in sums:
        groups = merge_groups(
            (weight * total, members) for total, members in (*by_sum.items(), (0, nodes_in_no_group(by_sum, nodes)))
        )
        scores = add_scores(scores, groups)
    least, most = min(scores), max(scores)
    return merge_groups((_normalize_score(score - least, most - least), members) for score, members in scores.items())


def _normalize_score(above: int, width: int) -> int:
    return int(float(MAX_SCORE) * (above / width)) if width else 0
