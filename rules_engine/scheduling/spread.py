"""The filter PodTopologySpread, for constraints that must hold (plugins/podtopologyspread/filtering.go)."""

from collections.abc import Mapping, Sequence

from rules_engine.evaluation.nodes import NO_LABEL, Label, NodeSet
from rules_engine.scheduling.bound_pods import BoundPods
from rules_engine.scheduling.node_sets import numbers_of
from rules_engine.scheduling.reasons import NO_TOPOLOGY, NOT_SPREAD
from rules_engine.scheduling.requirements import Requirements, SpreadConstraint


def unspread(
    pod: Requirements,
    pods: BoundPods,
    labels: Mapping[str, Label],
    every: NodeSet,
    *,
    selected: NodeSet,
    repelled: NodeSet,
) -> Mapping[str, NodeSet]:
    """Return the nodes that the pod's constraints exclude, by reason; the first constraint that excludes one decides.

    `selected`: the nodes of its selector and node affinity; `repelled`: those with taints that it does not tolerate.
    """
    topologies = [labels.get(constraint.topology_key, NO_LABEL) for constraint in pod.spread]
    # Only nodes that have the labels of all constraints are counted.
    counted = every
    for topology in topologies:
        counted &= topology.present
    without = not_matched = 0
    left = every
    for constraint, topology in zip(pod.spread, topologies, strict=True):
        missing = left & ~topology.present
        without |= missing
        eligible = counted
        if constraint.honors_affinity:
            eligible &= selected
        if constraint.honors_taints:
            eligible &= ~repelled
        skewed = left & _skewed(constraint, pod, pods, topology, eligible)
        not_matched |= skewed
        left &= ~(missing | skewed)
    return {NO_TOPOLOGY: without, NOT_SPREAD: not_matched}


def _skewed(
    constraint: SpreadConstraint, pod: Requirements, pods: BoundPods, topology: Label, eligible: NodeSet
) -> NodeSet:
    """Return the nodes of the domains where one more pod would exceed the maximum skew."""
    selector = constraint.selector
    # A selector that is empty counts no pod (countPodsMatchSelector), and yet matches the pod itself.
    matched = pods.live_counts(pod.namespace, selector) if selector else {}
    own = 1 if selector is not None and selector.matches(pod.labels) else 0
    counts = _domains(topology, eligible, matched)
    least = min(counts.values()) if counts and len(counts) >= constraint.min_domains else 0
    found = 0
    # A domain that is not counted has no pods, and one more is never too many there.
    for value, count in counts.items():
        if count + own - least > constraint.max_skew:
            found |= topology.values[value]
    return found


def _domains(topology: Label, eligible: NodeSet, matched: Mapping[int, int]) -> Mapping[str, int]:
    """Return the number of matched pods on the eligible nodes of each domain that has one."""
    return {
        value: sum([matched.get(number, 0) for number in numbers]) if matched else 0
        for value, numbers in _members(topology, eligible)
    }


def _members(topology: Label, eligible: NodeSet) -> Sequence[tuple[str, Sequence[int]]]:
    """Return the eligible nodes of each domain that has one."""
    # As text, since shifting a set of 5,000 nodes for each of them takes ten times as long.
    digits = bin(eligible)[:1:-1]
    size = len(digits)
    found = []
    for value, numbers in topology.values.small.items():
        members: Sequence[int] = [number for number in numbers if number < size and digits[number] == "1"]
        if members:
            found.append((value, members))
    for value, nodes in topology.values.large.items():
        members = numbers_of(nodes & eligible)
        if members:
            found.append((value, members))
    return found
