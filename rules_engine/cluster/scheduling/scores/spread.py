"""The score plugin PodTopologySpread (plugins/podtopologyspread/scoring.go)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.filters.topologies import Topologies
from rules_engine.cluster.scheduling.preferences import HOSTNAME
from rules_engine.cluster.scheduling.requirements import SpreadConstraint
from rules_engine.cluster.scheduling.scores import partition
from rules_engine.cluster.scheduling.scores.partition import MAX_SCORE, Partition, merge_groups


@dataclass(frozen=True, slots=True)
class CountedConstraint:
    """A constraint, and the nodes by number of pods: in their domain, or for the hostname on the node."""

    constraint: SpreadConstraint
    counts: Mapping[int, NodeSet]


def spread_score(
    constraints: Sequence[CountedConstraint], topologies: Topologies, nodes: NodeSet, *, by_default: bool
) -> Partition:
    """Return the score by node. For a pod's own constraints, nodes without one of their labels have score 0."""
    scored = nodes
    if not by_default:
        for counted in constraints:
            scored &= topologies.having(counted.constraint.topology_key)
    if not scored:
        return {0: nodes}
    sums: Mapping[float, NodeSet] = {0.0: scored}
    for counted in constraints:
        # One after the other: sums of floats depend on their order.
        sums = partition.add_scores(sums, _weigh_counts(counted, topologies, scored))
    # Halves are rounded up.
    rounded = merge_groups((int(total) + (total % 1 >= 0.5), members) for total, members in sums.items())
    least, most = min(rounded), max(rounded)
    scores = merge_groups(
        (MAX_SCORE * (most + least - score) // most if most else MAX_SCORE, members)
        for score, members in rounded.items()
    )
    if nodes != scored:
        scores[0] = scores.get(0, 0) | nodes & ~scored
    return scores


def _weigh_counts(counted: CountedConstraint, topologies: Topologies, scored: NodeSet) -> dict[float, NodeSet]:
    """Return the nodes by their domain's number of pods times a weight, which grows with the number of domains."""
    key, skew = counted.constraint.topology_key, counted.constraint.max_skew
    labelled = scored & topologies.having(key)
    unlabelled = scored ^ labelled
    groups = partition.restrict_groups(counted.counts, labelled)
    if key == HOSTNAME:
        size = scored.bit_count()
    else:
        size = topologies.count(key, labelled)
        if unlabelled and not topologies.nodes(key, "") & labelled:
            # Nodes without the label form one domain, with the empty value.
            size += 1
    weight = log(size + 2)
    sums = {count * weight + (skew - 1): members for count, members in groups.items()}
    if others := partition.nodes_in_no_group(groups, labelled):
        sums[0 * weight + (skew - 1)] = others
    if unlabelled:
        sums[0.0] = sums.get(0.0, 0) | unlabelled
    return sums
