"""States of nodes, and the time that pods stay on a node that is not ready.

Source: pkg/controller/tainteviction, plugin/pkg/admission/defaulttolerationseconds.
"""

from dataclasses import replace

from rules_engine.model.json.lenient import Object, integer_member, object_items, text_member
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.rules.simulation import Milliseconds, NodeState
from rules_engine.scheduling.requirements import NOT_READY, with_state_taints

DEFAULT_GRACE: Milliseconds = 300_000
"""Time that a pod without a toleration for it stays on a node that is not ready."""

_FOREVER = 2**63 - 1
_NO_EXECUTE = "NoExecute"


def node_in_state(node: Node, state: NodeState) -> Node:
    """Return a node in another state. A cordoned node that becomes ready stays cordoned, and vice versa."""
    match state:
        case NodeState.NOT_READY | NodeState.READY:
            changed = replace(node, ready=state is NodeState.READY)
        case _:
            changed = replace(node, unschedulable=state is not NodeState.UNCORDONED)
    return with_state_taints(changed)


def grace_period_of(spec: Object) -> Milliseconds | None:
    """Return the time that a pod stays on a node that is not ready; None: it is never evicted."""
    tolerations = [
        toleration
        for toleration in object_items(spec.get("tolerations"))
        if text_member(toleration, "key") in ("", NOT_READY) and text_member(toleration, "effect") in ("", _NO_EXECUTE)
    ]
    if not tolerations:
        return DEFAULT_GRACE
    for toleration in tolerations:
        equal = text_member(toleration, "key") == NOT_READY and not text_member(toleration, "value")
        if text_member(toleration, "operator") == "Exists" or (
            text_member(toleration, "operator") in ("", "Equal") and equal
        ):
            seconds = integer_member(toleration, "tolerationSeconds", _FOREVER)
            return None if seconds == _FOREVER else max(seconds, 0) * 1000
    return 0
