"""The filter PodTopologySpread, for constraints that must hold (plugins/podtopologyspread/filtering.go)."""

from collections.abc import Mapping

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.filters.bound_pods import BoundPods, SelectedPods
from rules_engine.cluster.scheduling.filters.topologies import Topologies
from rules_engine.cluster.scheduling.requirements import Requirements, SpreadConstraint
from rules_engine.cluster.scheduling.scheduling import NO_TOPOLOGY, NOT_SPREAD


def exclude_by_spread(
    pod: Requirements, pods: BoundPods, topologies: Topologies, every: NodeSet, *, selected: NodeSet, repelled: NodeSet
) -> Mapping[str, NodeSet]:
    """Return the nodes that the pod's constraints exclude, by reason; the first constraint that excludes one decides.

    `selected`: the nodes of its selector and node affinity; `repelled`: the nodes with an untolerated taint.
    """
    # Only nodes that have the labels of all constraints are counted.
    counted = every
    for constraint in pod.spread:
        counted &= topologies.having(constraint.topology_key)
    without = skewed = 0
    for constraint in pod.spread:
        left = every & ~(without | skewed)
        without |= left & ~topologies.having(constraint.topology_key)
        eligible = counted
        if constraint.honors_affinity:
            eligible &= selected
        if constraint.honors_taints:
            eligible &= ~repelled
        skewed |= left & _nodes_over_skew(constraint, pod, pods, topologies, eligible)
    return {NO_TOPOLOGY: without, NOT_SPREAD: skewed}


def _nodes_over_skew(
    constraint: SpreadConstraint, pod: Requirements, pods: BoundPods, topologies: Topologies, eligible: NodeSet
) -> NodeSet:
    """Return the nodes of the domains where one more pod would exceed the maximum skew."""
    selector, key = constraint.selector, constraint.topology_key
    if not selector:
        # A selector that is empty counts no pod (countPodsMatchSelector), and yet matches the pod itself.
        return 0
    counts = pods.by_domain(SelectedPods(pod.namespace, selector), key, eligible)
    domains = topologies.count(key, eligible)
    # The minimum over domains with an eligible node; 0 if there are too few such domains.
    least = counts.least(domains) if domains >= constraint.min_domains else 0
    own = 1 if selector.matches(pod.labels) else 0
    # A domain without a matching pod never has too many: the maximum skew is positive.
    return counts.above(constraint.max_skew + least - own)
