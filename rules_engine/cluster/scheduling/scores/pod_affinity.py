"""The score plugin InterPodAffinity (plugins/interpodaffinity/scoring.go)."""

from collections.abc import Iterable, Mapping, Sequence

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.preferences import Preferences, WeightedTerm
from rules_engine.cluster.scheduling.scores.partition import (
    MAX_SCORE,
    Partition,
    add_scores,
    merge_groups,
    nodes_in_no_group,
)

HARD_WEIGHT = 1
"""Weight of bound pods' required affinity (apis/config/v1/defaults.go, hardPodAffinityWeight)."""


def terms_of(pod: Preferences) -> Sequence[WeightedTerm]:
    """Return the terms of a bound pod that other pods' scores depend on."""
    return (*(WeightedTerm(HARD_WEIGHT, term) for term in pod.requirements.affinity), *pod.pod_affinity)


def pod_affinity_score(sums: Iterable[tuple[int, Mapping[int, NodeSet]]], nodes: NodeSet) -> Partition:
    """Return the score by node, from weights, each with the nodes by a sum that it multiplies."""
    scores: Mapping[int, NodeSet] = {0: nodes}
    for weight, by_sum in sums:
        groups = merge_groups(
            (weight * total, members) for total, members in (*by_sum.items(), (0, nodes_in_no_group(by_sum, nodes)))
        )
        scores = add_scores(scores, groups)
    least, width = min(scores), max(scores) - min(scores) or 1
    return merge_groups(
        (int(float(MAX_SCORE) * ((score - least) / width)), members) for score, members in scores.items()
    )
