"""Taints that stand for a node's state.

Source: pkg/controller/nodelifecycle/node_lifecycle_controller.go (doNoScheduleTaintingPass, processTaintBaseEviction).
"""

from dataclasses import replace

from rules_engine.model.kubernetes.cluster import Node, Taint

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
"""Taints of nodes that are cordoned or not Ready (k8s.io/api/core/v1, well_known_taints.go)."""

CORDON = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
"""The taint of a cordoned node; a pod that tolerates it may run there."""

_EFFECTS = ("NoSchedule", "NoExecute")


def with_state_taints(node: Node) -> Node:
    """Return a node with the taints that the node lifecycle controller sets for its state, and without others of these.

    A node that is not Ready stays unreachable if it has a taint that says so; this is not told apart otherwise.
    """
    wanted = [CORDON] if node.unschedulable else []
    if not node.ready:
        key = UNREACHABLE if any(taint.key == UNREACHABLE for taint in node.taints) else NOT_READY
        wanted += [Taint(key=key, effect=effect) for effect in _EFFECTS]
    places = {(taint.key, taint.effect) for taint in wanted}
    kept = [taint for taint in node.taints if not _is_of_state(taint) or (taint.key, taint.effect) in places]
    present = {(taint.key, taint.effect) for taint in kept}
    taints = (*kept, *(taint for taint in wanted if (taint.key, taint.effect) not in present))
    return node if taints == node.taints else replace(node, taints=taints)


def _is_of_state(taint: Taint) -> bool:
    key, effect = taint.key, taint.effect
    return (key, effect) == (CORDON.key, CORDON.effect) or (key in (NOT_READY, UNREACHABLE) and effect in _EFFECTS)
