"""Model of kube-scheduler's scores on nodes and bound pods that change.

Source: Kubernetes 1.36, pkg/scheduler (schedule_one.go, framework/plugins, apis/config/v1/default_plugins.go). The
plugins ImageLocality, VolumeBinding and DynamicResources are not modelled.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial

from rules_engine.evaluation.nodes import NodeSet, numbers_of, placed_index_of, selected_nodes
from rules_engine.model.cluster import Cluster, Node
from rules_engine.model.simulation import SchedulerOptions
from rules_engine.scheduling.filters.pod_affinity import Namespaces
from rules_engine.scheduling.filters.taints import Taints
from rules_engine.scheduling.filters.topologies import Topologies
from rules_engine.scheduling.preferences import HOSTNAME, Preferences
from rules_engine.scheduling.requirements import SpreadConstraint
from rules_engine.scheduling.scores.allocation import AllocationScores, Amounts, NodeStates, Ranking, by_node
from rules_engine.scheduling.scores.node_preferences import (
    SoftTaints,
    affinity_score,
    affinity_weights,
    soft_taints,
    toleration_score,
)
from rules_engine.scheduling.scores.partition import Partition, added, weighted
from rules_engine.scheduling.scores.pod_affinity import (
    BoundTerm,
    BoundTerms,
    covers,
    pod_affinity_score,
    terms_of,
)
from rules_engine.scheduling.scores.pod_counts import Counts, Domains, PodCounts
from rules_engine.scheduling.scores.spread import CountedConstraint, includes, spread_score

MAX_KINDS = 10_000
"""Different pods whose preferences are compiled at the same time; beyond it all are compiled anew. One takes a few
kilobytes."""

MAX_RANKINGS = 256
"""Rankings of nodes for pods of equal requests; the one that was used longest ago is dropped. One takes 140 kB with
5,000 nodes."""


class Plugin(StrEnum):
    """Score plugins of the default profile."""

    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    NODE_RESOURCES_FIT = "NodeResourcesFit"
    POD_TOPOLOGY_SPREAD = "PodTopologySpread"
    INTER_POD_AFFINITY = "InterPodAffinity"
    BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"


WEIGHTS: Mapping[Plugin, int] = {
    Plugin.TAINT_TOLERATION: 3,
    Plugin.NODE_AFFINITY: 2,
    Plugin.NODE_RESOURCES_FIT: 1,
    Plugin.POD_TOPOLOGY_SPREAD: 2,
    Plugin.INTER_POD_AFFINITY: 2,
    Plugin.BALANCED_ALLOCATION: 1,
}


class _Kind:
    """A pod's preferences, compiled: equal pods share them."""

    def __init__(self, pod: Preferences, amounts: Amounts) -> None:
        requirements = pod.requirements
        self.pod = pod  # kept alive, since its identity is the key of this
        self.amounts = amounts
        self.group = requirements.namespace, requirements.terminating, frozenset(requirements.labels.items())
        self.terms = tuple(terms_of(pod))
        self.taints: Partition | None = None
        self.node_affinity: Partition | None = None
        self.spread: tuple[CountedConstraint, ...] = ()
        self.own_terms: tuple[tuple[int, Domains], ...] = ()
        self.counts: tuple[Counts, ...] = ()
        """The counts that include such a pod once it is bound."""
        self.counts_version = -1
        self.about: tuple[BoundTerm, ...] = ()
        self.about_version = -1


class Scores:
    """The scores of nodes by the pods that are bound to them."""

    def __init__(
        self, nodes: Sequence[Node], namespaces: Mapping[str, Mapping[str, str]] | None, options: SchedulerOptions
    ) -> None:
        """Take the nodes without their pods, and the labels of namespaces, if known."""
        self._nodes = [*nodes]
        self._allocation = AllocationScores(options)
        self._states = NodeStates(nodes, self._allocation)
        self._index = placed_index_of(Cluster(nodes=tuple(nodes)))
        self._topologies = Topologies(self._index.places.labels, [node.labels for node in nodes])
        self._namespaces = Namespaces(namespaces)
        self._soft_taints = SoftTaints(nodes)
        self._taints: Taints | None = None
        self._pods = PodCounts(self._states.bits, self._topologies)
        self._terms = BoundTerms(self._topologies, self._namespaces)
        self._kinds: dict[int, _Kind] = {}
        self._rankings: OrderedDict[Amounts, Ranking] = OrderedDict()

    def bind(self, pod: Preferences, node: int) -> None:
        """Add a pod to a node."""
        self._count(pod, node, 1)

    def release(self, pod: Preferences, node: int) -> None:
        """Remove a pod from a node: the inverse of bind."""
        self._count(pod, node, -1)

    def change_node(self, number: int, node: Node) -> None:
        """Replace a node by one of the same name and labels."""
        before = self._nodes[number]
        self._nodes[number] = node
        if node.allocatable != before.allocatable:
            self._states.change(number, node)
        if node.taints == before.taints:
            return
        if soft_taints(node) != soft_taints(before):
            self._soft_taints = SoftTaints(self._nodes)
            for kind in self._kinds.values():
                kind.taints = None
        if self._taints is not None:
            # Constraints that honour taints have counted the nodes without them.
            self._taints = None
            self._forget()

    def top(self, pod: Preferences, feasible: NodeSet) -> NodeSet:
        """Return those of the feasible nodes that have the highest total score."""
        if not feasible & (feasible - 1):
            return feasible
        kind = self._kind(pod)
        ranking = self._ranking(kind.amounts)
        if self._is_indifferent(kind):
            return ranking.top(feasible)
        others: Partition | None = None
        for _, partition in self._normalised(kind, feasible):
            if len(partition) > 1:
                others = partition if others is None else added(others, partition)
        return ranking.top(feasible) if others is None else ranking.top_with(others, feasible)

    def of(self, pod: Preferences, feasible: NodeSet) -> Mapping[int, int]:
        """Return the total score of each feasible node."""
        found = dict.fromkeys(numbers_of(feasible), 0)
        for scores in self.by_plugin(pod, feasible).values():
            for node, score in scores.items():
                found[node] += score
        return found

    def by_plugin(self, pod: Preferences, feasible: NodeSet) -> Mapping[Plugin, Mapping[int, int]]:
        """Return the score of each feasible node, times its weight, by plugin; those that are skipped are left out."""
        kind = self._kind(pod)
        fit, balanced = by_node(self._states, kind.amounts, feasible)
        found = {Plugin.NODE_RESOURCES_FIT: fit}
        if balanced is not None:
            found[Plugin.BALANCED_ALLOCATION] = balanced
        for plugin, partition in self._normalised(kind, feasible):
            found[plugin] = {node: score for score, nodes in partition.items() for node in numbers_of(nodes)}
        return found

    def _is_indifferent(self, kind: _Kind) -> bool:
        """Return True if a pod prefers no node for anything but its resources."""
        return (
            len(self._untolerated(kind)) == 1
            and kind.node_affinity is None
            and not (kind.spread or kind.own_terms or self._about(kind))
        )

    def _untolerated(self, kind: _Kind) -> Partition:
        """Return the nodes by the number of soft taints that a pod does not tolerate."""
        if kind.taints is None:
            kind.taints = self._soft_taints.counts(kind.pod.requirements.placement.tolerations)
        return kind.taints

    def _about(self, kind: _Kind) -> tuple[BoundTerm, ...]:
        """Return the terms of bound pods that match a pod."""
        if kind.about_version != self._terms.version:
            kind.about = tuple(self._terms.about(kind.pod))
            kind.about_version = self._terms.version
        return kind.about

    def _normalised(self, kind: _Kind, feasible: NodeSet) -> Iterator[tuple[Plugin, Partition]]:
        """Yield the scores, times their weights, of plugins that compare the feasible nodes with each other."""
        yield _weighted(Plugin.TAINT_TOLERATION, toleration_score(self._untolerated(kind), feasible))
        if kind.node_affinity is not None:
            yield _weighted(Plugin.NODE_AFFINITY, affinity_score(kind.node_affinity, feasible))
        if kind.spread:
            score = spread_score(kind.spread, self._topologies, feasible, by_default=kind.pod.by_default)
            yield _weighted(Plugin.POD_TOPOLOGY_SPREAD, score)
        # kube-scheduler skips this plugin if no pod counts, which is the same as scores of 0.
        sums = (
            *((weight, domains.by_sum) for weight, domains in kind.own_terms),
            *((1, found.domains.by_sum) for found in self._about(kind)),
        )
        yield _weighted(Plugin.INTER_POD_AFFINITY, pod_affinity_score(sums, feasible))

    def _count(self, pod: Preferences, node: int, sign: int) -> None:
        kind = self._kind(pod)
        self._states.add(node, kind.amounts, sign)
        if kind.counts_version != self._pods.version:
            kind.counts = tuple(self._pods.matching(kind.group, pod.requirements.labels))
            kind.counts_version = self._pods.version
        for counts in kind.counts:
            counts.add(node, sign)
        self._pods.add(kind.group, pod.requirements.labels, node, sign)
        if kind.terms:
            self._terms.add(kind.terms, node, sign)

    def _ranking(self, amounts: Amounts) -> Ranking:
        found = self._rankings.get(amounts)
        if found is None:
            if len(self._rankings) >= MAX_RANKINGS:
                self._rankings.popitem(last=False)
            found = self._rankings[amounts] = Ranking(self._states, amounts)
        else:
            self._rankings.move_to_end(amounts)
        return found

    def _kind(self, pod: Preferences) -> _Kind:
        # By identity, since a hash of all preferences takes longer than the rest.
        found = self._kinds.get(id(pod))
        if found is None:
            if len(self._kinds) >= MAX_KINDS or self._pods.is_full:
                self._forget()
            found = self._kinds[id(pod)] = self._compiled(pod)
        return found

    def _compiled(self, pod: Preferences) -> _Kind:
        kind = _Kind(pod, self._allocation.requested(pod))
        if pod.node_affinity is not None:
            kind.node_affinity = affinity_weights(pod.node_affinity, self._index)
        kind.spread = tuple(self._counted(pod, constraint) for constraint in pod.spread)
        kind.own_terms = tuple(self._own_terms(pod))
        return kind

    def _counted(self, pod: Preferences, constraint: SpreadConstraint) -> CountedConstraint:
        namespace, selector = pod.requirements.namespace, constraint.selector
        # A selector that is empty counts no pod (countPodsMatchSelector).
        counts = self._pods.count((namespace, selector), selector or None, partial(includes, namespace))
        if constraint.topology_key == HOSTNAME:
            return CountedConstraint(constraint, counts, None)
        nodes = self._counted_nodes(pod, constraint)
        return CountedConstraint(constraint, counts, counts.domains(constraint.topology_key, nodes))

    def _counted_nodes(self, pod: Preferences, constraint: SpreadConstraint) -> NodeSet:
        """Return the nodes whose pods a constraint counts."""
        found, placement = self._index.every, pod.requirements.placement
        if not pod.by_default:
            for other in pod.spread:
                found &= self._topologies.having(other.topology_key)
        if constraint.honors_affinity:
            found &= selected_nodes(self._index, placement.node_selector, placement.terms)
        if constraint.honors_taints:
            if self._taints is None:
                self._taints = Taints(self._nodes)
            found &= ~self._taints.untolerated(placement.tolerations).every
        return found

    def _own_terms(self, pod: Preferences) -> Iterator[tuple[int, Domains]]:
        for weighted_term in pod.pod_affinity:
            term = weighted_term.term
            counts = self._pods.count(term, term.selector, partial(covers, self._namespaces, term))
            yield weighted_term.weight, counts.domains(term.topology_key, self._topologies.having(term.topology_key))

    def _forget(self) -> None:
        """Compile and count everything anew on its next use."""
        self._kinds.clear()
        self._pods.clear()


def _weighted(plugin: Plugin, partition: Partition) -> tuple[Plugin, Partition]:
    return plugin, weighted(partition, WEIGHTS[plugin])
