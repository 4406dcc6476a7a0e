"""States of nodes and the taints that a cluster gives to them, and the time that pods stay on a node that is not ready.

Source: Kubernetes 1.36, pkg/controller/nodelifecycle, pkg/controller/tainteviction, and the admission plugin
DefaultTolerationSeconds.
"""

from collections.abc import Sequence
from dataclasses import replace

from rules_engine.model.cluster import Node, Taint
from rules_engine.model.json.lenient import Object, integer, objects, text
from rules_engine.model.simulation import Milliseconds, NodeState

DEFAULT_GRACE: Milliseconds = 300_000
"""The time that a pod without a toleration of its own stays on a node that is not ready."""

_FOREVER = 2**63 - 1
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_NO_EXECUTE = "NoExecute"
_NOT_READY_TAINTS = (Taint(key=_NOT_READY, effect="NoSchedule"), Taint(key=_NOT_READY, effect=_NO_EXECUTE))
_CORDON_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def in_state(node: Node, state: NodeState) -> Node:
    """Return a node after it was put in a state. One that becomes ready stays cordoned, and the other way round."""
    match state:
        case NodeState.NOT_READY:
            return replace(node, ready=False, taints=_with(node.taints, _NOT_READY_TAINTS))
        case NodeState.READY:
            taints = tuple(taint for taint in node.taints if taint.key not in (_NOT_READY, _UNREACHABLE))
            return replace(node, ready=True, taints=taints)
        case NodeState.UNCORDONED:
            taints = tuple(taint for taint in node.taints if taint.key != _CORDON_TAINT.key)
            return replace(node, unschedulable=False, taints=taints)
        case NodeState.CORDONED | NodeState.DRAINED:
            return replace(node, unschedulable=True, taints=_with(node.taints, (_CORDON_TAINT,)))


def _with(taints: Sequence[Taint], more: Sequence[Taint]) -> tuple[Taint, ...]:
    return (*taints, *(taint for taint in more if taint not in taints))


def grace_of(spec: Object) -> Milliseconds | None:
    """Return the time that a pod stays on a node that is not ready; None: it is never evicted."""
    about = [
        found
        for found in objects(spec.get("tolerations"))
        if text(found, "key") in ("", _NOT_READY) and text(found, "effect") in ("", _NO_EXECUTE)
    ]
    if not about:
        return DEFAULT_GRACE
    for found in about:
        equal = text(found, "key") == _NOT_READY and not text(found, "value")
        if text(found, "operator") == "Exists" or (text(found, "operator") in ("", "Equal") and equal):
            return (
                None if found.get("tolerationSeconds") is None else max(integer(found, "tolerationSeconds"), 0) * 1000
            )
    return 0
