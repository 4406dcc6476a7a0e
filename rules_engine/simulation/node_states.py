"""States that nodes are put in, and the time that pods stay on a node that is not ready.

Source: pkg/controller/tainteviction, plugin/pkg/admission/defaulttolerationseconds.
"""

from dataclasses import replace

from rules_engine.model.json.lenient import Object, integer, objects, text
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.rules.simulation import Milliseconds, NodeState
from rules_engine.scheduling.requirements import NOT_READY, with_state_taints

DEFAULT_GRACE: Milliseconds = 300_000
"""The time that a pod without a toleration of its own stays on a node that is not ready."""

_FOREVER = 2**63 - 1
_NO_EXECUTE = "NoExecute"


def in_state(node: Node, state: NodeState) -> Node:
    """Return a node after it was put in a state. One that becomes ready stays cordoned, and the other way round."""
    match state:
        case NodeState.NOT_READY | NodeState.READY:
            changed = replace(node, ready=state is NodeState.READY)
        case _:
            changed = replace(node, unschedulable=state is not NodeState.UNCORDONED)
    return with_state_taints(changed)


def grace_of(spec: Object) -> Milliseconds | None:
    """Return the time that a pod stays on a node that is not ready; None: it is never evicted."""
    about = [
        found
        for found in objects(spec.get("tolerations"))
        if text(found, "key") in ("", NOT_READY) and text(found, "effect") in ("", _NO_EXECUTE)
    ]
    if not about:
        return DEFAULT_GRACE
    for found in about:
        equal = text(found, "key") == NOT_READY and not text(found, "value")
        if text(found, "operator") == "Exists" or (text(found, "operator") in ("", "Equal") and equal):
            seconds = integer(found, "tolerationSeconds", _FOREVER)
            return None if seconds == _FOREVER else max(seconds, 0) * 1000
    return 0
