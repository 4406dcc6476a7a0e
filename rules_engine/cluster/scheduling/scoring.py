"""Model of kube-scheduler's scores on nodes and bound pods that change.

Source: Kubernetes 1.36, pkg/scheduler (schedule_one.go, framework/plugins, apis/config/v1/default_plugins.go). The
plugins ImageLocality and VolumeBinding are not modelled; DynamicResources does not score claims that have devices.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache, partial

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.filters.bound_pods import SelectedPods
from rules_engine.cluster.scheduling.filters.pod_affinity import AffinePods, BoundTerms
from rules_engine.cluster.scheduling.filters.taints import TaintGroups
from rules_engine.cluster.scheduling.preferences import HOSTNAME, Preferences
from rules_engine.cluster.scheduling.requirements import SpreadConstraint
from rules_engine.cluster.scheduling.scheduler import KubeScheduler
from rules_engine.cluster.scheduling.scores.allocation import AllocationScores, NodeStates, Ranking
from rules_engine.cluster.scheduling.scores.node_preferences import (
    SOFT_EFFECTS,
    affinity_score,
    affinity_weights,
    count_untolerated,
    toleration_score,
)
from rules_engine.cluster.scheduling.scores.partition import Partition, add_scores
from rules_engine.cluster.scheduling.scores.pod_affinity import pod_affinity_score, terms_of
from rules_engine.cluster.scheduling.scores.spread import CountedConstraint, spread_score
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.rules.simulation import SchedulerOptions

MAX_KINDS = 10_000
"""Different pods whose compiled preferences are cached; when there are more, all are dropped. One takes a few
kilobytes."""

MAX_RANKINGS = 256
"""Rankings of nodes for pods of equal requests; when there are more, all are dropped. One takes 140 kB with 5,000
nodes."""

_NO_PODS: Mapping[int, NodeSet] = {}


class Plugin(StrEnum):
    """Score plugins of the default profile."""

    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    NODE_RESOURCES_FIT = "NodeResourcesFit"
    POD_TOPOLOGY_SPREAD = "PodTopologySpread"
    INTER_POD_AFFINITY = "InterPodAffinity"
    BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"
    DYNAMIC_RESOURCES = "DynamicResources"


WEIGHTS: Mapping[Plugin, int] = {
    Plugin.TAINT_TOLERATION: 3,
    Plugin.NODE_AFFINITY: 2,
    Plugin.NODE_RESOURCES_FIT: 1,
    Plugin.POD_TOPOLOGY_SPREAD: 2,
    Plugin.INTER_POD_AFFINITY: 2,
    Plugin.BALANCED_ALLOCATION: 1,
    Plugin.DYNAMIC_RESOURCES: 2,
}


class _CompiledPreferences:
    """A pod's preferences, compiled: equal pods share them."""

    def __init__(self, pod: Preferences, allocation: AllocationScores) -> None:
        self.pod = pod  # kept alive, since its identity is the key of this
        self.amounts = allocation.amounts(pod.requirements.requests, pod.non_zero)
        self.scored = allocation.amounts(pod.requirements.requests, pod.scored)
        self.terms = terms_of(pod)
        self.taints: Partition | None = None
        self.node_affinity: Partition | None = None
        self.counted: tuple[NodeSet, ...] = ()
        """The nodes whose pods each constraint counts."""


class Scores:
    """The scores of nodes by the pods that are bound to them."""

    def __init__(self, scheduler: KubeScheduler, options: SchedulerOptions) -> None:
        """Take a scheduler without bound pods. Each change is made to the scheduler before this."""
        nodes = scheduler.nodes
        self._scheduler = scheduler
        self._allocation = AllocationScores(options)
        self._states = NodeStates(nodes, self._allocation)
        self._soft_taints = TaintGroups(nodes, SOFT_EFFECTS)
        self._terms = BoundTerms(scheduler.topologies)
        self._kinds: dict[int, _CompiledPreferences] = {}
        self._ranking = lru_cache(MAX_RANKINGS)(partial(Ranking, self._states))

    def count(self, number: int, pod: Preferences, sign: int) -> None:
        """Count a pod on a node, or with the sign -1 no longer."""
        kind = self._kind(pod)
        self._states.add(number, kind.amounts, sign)
        for weighted in kind.terms:
            self._terms.add(number, weighted.term, weighted.weight, sign)

    def change_node(self, number: int, old: Node, new: Node) -> None:
        """Replace a node by one of the same name and labels."""
        if new.allocatable != old.allocatable:
            self._states.change(number, new)
        if new.taints == old.taints:
            return
        self._soft_taints.change_node(number, old, new)
        for kind in self._kinds.values():
            # Constraints that honour taints count the nodes without them.
            kind.taints, kind.counted = None, ()

    def top(self, pod: Preferences, feasible: NodeSet) -> NodeSet:
        """Return the feasible nodes with the highest total score."""
        if not feasible & (feasible - 1):
            return feasible
        kind = self._kind(pod)
        ranking = self._ranking(kind.scored)
        others: Partition | None = None
        for _, partition in self._normalize_scores(kind, feasible):
            if len(partition) > 1:
                others = partition if others is None else add_scores(others, partition)
        return ranking.top(feasible) if others is None else ranking.top_with(others, feasible)

    def _find_untolerated(self, kind: _CompiledPreferences) -> Partition:
        """Return the nodes by the number of soft taints that a pod does not tolerate."""
        if kind.taints is None:
            kind.taints = count_untolerated(self._soft_taints, kind.pod.requirements.placement.tolerations)
        return kind.taints

    def _normalize_scores(self, kind: _CompiledPreferences, feasible: NodeSet) -> Iterator[tuple[Plugin, Partition]]:
        """Yield the scores, times their weights, of plugins that compare the feasible nodes with each other."""
        yield _apply_plugin_weight(Plugin.TAINT_TOLERATION, toleration_score(self._find_untolerated(kind), feasible))
        if kind.node_affinity is not None:
            yield _apply_plugin_weight(Plugin.NODE_AFFINITY, affinity_score(kind.node_affinity, feasible))
        if kind.pod.spread:
            constraints = [*self._constraints(kind)]
            topologies, by_default = self._scheduler.topologies, kind.pod.by_default
            score = spread_score(constraints, topologies, feasible, by_default=by_default)
            yield _apply_plugin_weight(Plugin.POD_TOPOLOGY_SPREAD, score)
        # kube-scheduler skips this plugin if no pod counts, which is the same as scores of 0.
        pod, includes = kind.pod.requirements, self._scheduler.namespaces.includes
        bound = [each for each in self._terms.matching(pod.labels) if includes(each.term, pod.namespace)]
        sums = (*self._own_terms(kind.pod), *((1, each.domains.by_sum) for each in bound))
        yield _apply_plugin_weight(Plugin.INTER_POD_AFFINITY, pod_affinity_score(sums, feasible))
        by_devices = self._scheduler.devices.scores(pod, feasible)
        if best := max(by_devices, default=0):
            shares: dict[int, NodeSet] = {}
            for sum_of_alternatives, nodes in by_devices.items():
                share = sum_of_alternatives * 100 // best
                shares[share] = shares.get(share, 0) | nodes
            yield _apply_plugin_weight(Plugin.DYNAMIC_RESOURCES, shares)

    def _kind(self, pod: Preferences) -> _CompiledPreferences:
        # By identity, since a hash of all preferences takes longer than the rest.
        kind = self._kinds.get(id(pod))
        if kind is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            kind = self._kinds[id(pod)] = _CompiledPreferences(pod, self._allocation)
            if pod.node_affinity is not None:
                kind.node_affinity = affinity_weights(pod.node_affinity, self._scheduler.index)
        return kind

    def _constraints(self, kind: _CompiledPreferences) -> Iterator[CountedConstraint]:
        """Yield the constraints of a pod, each with the nodes by the number of pods that it counts."""
        pod, pods = kind.pod, self._scheduler.pods
        if not kind.counted:
            kind.counted = tuple([self._nodes_to_count(pod, constraint) for constraint in pod.spread])
        for constraint, nodes in zip(pod.spread, kind.counted, strict=True):
            key, counts = constraint.topology_key, _NO_PODS
            # A selector that is empty counts no pod (countPodsMatchSelector).
            if constraint.selector:
                selected = SelectedPods(pod.requirements.namespace, constraint.selector)
                tally = pods.by_node(selected) if key == HOSTNAME else pods.by_domain(selected, key, nodes)
                counts = tally.by_sum
            yield CountedConstraint(constraint, counts)

    def _nodes_to_count(self, pod: Preferences, constraint: SpreadConstraint) -> NodeSet:
        """Return the nodes whose pods a constraint counts."""
        scheduler, placement = self._scheduler, pod.requirements.placement
        nodes = scheduler.index.every
        if not pod.by_default:
            for other in pod.spread:
                nodes &= scheduler.topologies.having(other.topology_key)
        if constraint.honors_affinity:
            nodes &= scheduler.selected(placement.node_selector, placement.terms)
        if constraint.honors_taints:
            nodes &= ~scheduler.taints.untolerated(placement.tolerations).every
        return nodes

    def _own_terms(self, pod: Preferences) -> Iterator[tuple[int, Mapping[int, NodeSet]]]:
        """Yield the weights of a pod's preferred terms, each with the nodes by their domain's number of pods."""
        scheduler = self._scheduler
        for preferred in pod.pod_affinity:
            key = preferred.term.topology_key
            affine = AffinePods((preferred.term,), scheduler.namespaces)
            yield preferred.weight, scheduler.pods.by_domain(affine, key, scheduler.topologies.having(key)).by_sum


def _apply_plugin_weight(plugin: Plugin, partition: Partition) -> tuple[Plugin, Partition]:
    return plugin, {score * WEIGHTS[plugin]: nodes for score, nodes in partition.items()}
