"""States of a server for tests: active rules, and a cluster."""

from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster
from rules_engine.rules.evaluation import RuleSet
from rules_engine.server.cluster.source import ClusterSource, FixedCluster
from rules_engine.server.state import ServedRules, ServerState


def state_of(
    rules: RuleSet | ServedRules | None = None,
    cluster: Cluster | ClusterSource = UNKNOWN_CLUSTER,
    *,
    stopping: bool = False,
) -> ServerState:
    """Return the state of a server; without arguments, one without rules that has not read its cluster."""
    served = rules if isinstance(rules, ServedRules) else ServedRules(rule_set=RuleSet() if rules is None else rules)
    state = ServerState(served, FixedCluster(cluster) if isinstance(cluster, Cluster) else cluster)
    state.stopping = stopping
    return state
