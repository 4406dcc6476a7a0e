"""The pods of a DaemonSet: one for each node that it selects and tolerates, as its controller makes them.

Source: kubernetes/pkg/controller/daemon (daemon_controller.go, NodeShouldRunDaemonPod; util/daemonset_util.go).
"""

from collections.abc import Iterator, Mapping, Sequence

from rules_engine.cluster.nodes import NodeIndex, matching_nodes, numbers_of
from rules_engine.cluster.scheduling.requirements import NODE_NAME, REQUIRED, with_state_taints
from rules_engine.language.cel import Budget
from rules_engine.model.json.lenient import as_list, as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError, TooLargeError
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.placement import Placement

_TOLERATED = {
    "not-ready": "NoExecute",
    "unreachable": "NoExecute",
    "disk-pressure": "NoSchedule",
    "memory-pressure": "NoSchedule",
    "pid-pressure": "NoSchedule",
    "unschedulable": "NoSchedule",
}
"""Taints of a node's state (node.kubernetes.io/…) that the controller tolerates, with their effect."""


def daemon_pods(pod: Mapping[str, Json], nodes: Sequence[Node]) -> Iterator[Mapping[str, Json]]:
    """Yield the pod of each of these nodes that has one; for a placement that cannot be read, the pod itself."""
    spec = as_mapping(pod.get("spec"))
    names = {**_TOLERATED, **({"network-unavailable": "NoSchedule"} if spec.get("hostNetwork") is True else {})}
    added: list[Json] = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect} for name, effect in names.items()
    ]
    spec = {**spec, "tolerations": [*as_list(spec.get("tolerations")), *added]}
    try:
        placement = Placement.parse(spec)
    except (PodError, TooLargeError):  # its caller reports it
        yield pod
        return
    index = NodeIndex.of([*map(with_state_taints, nodes)])
    for number in numbers_of(matching_nodes(index, placement, Budget())):
        yield {**pod, "spec": _on_node(spec, nodes[number].name)}


def _on_node(spec: dict[str, Json], name: str) -> dict[str, Json]:
    """Return the spec of a pod that only this node can run."""
    affinity = as_mapping(spec.get("affinity"))
    own = as_mapping(affinity.get("nodeAffinity"))
    terms = object_items(as_mapping(own.get(REQUIRED)).get("nodeSelectorTerms")) or [{}]
    field: Json = [{"key": NODE_NAME, "operator": "In", "values": [name]}]
    required: Json = {"nodeSelectorTerms": [{**term, "matchFields": field} for term in terms]}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**own, REQUIRED: required}}}
