"""The pods of a DaemonSet: one for each node that it selects and tolerates, as its controller makes them.

Source: kubernetes/pkg/controller/daemon (daemon_controller.go, NodeShouldRunDaemonPod; util/daemonset_util.go).
"""

from collections.abc import Iterator
from dataclasses import replace

from rules_engine.cluster.nodes import NodeIndex, matching_nodes, numbers_of
from rules_engine.cluster.scheduling.requirements import NODE_NAME, REQUIRED, with_state_taints
from rules_engine.language.cel import Budget
from rules_engine.model.json.lenient import as_list, as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.placement import Placement
from rules_engine.model.rules.simulation import PodGroup

_TOLERATED = {
    "not-ready": "NoExecute",
    "unreachable": "NoExecute",
    "disk-pressure": "NoSchedule",
    "memory-pressure": "NoSchedule",
    "pid-pressure": "NoSchedule",
    "unschedulable": "NoSchedule",
}
"""Taints of a node's state (node.kubernetes.io/…) that the controller tolerates, with their effect."""


def daemon_pods(group: PodGroup, objects: ClusterObjects) -> Iterator[PodGroup]:
    """Yield the pod of each node of a cluster. Raises PodError for a malformed placement."""
    spec = as_mapping(group.pod.get("spec"))
    names = {**_TOLERATED, **({"network-unavailable": "NoSchedule"} if spec.get("hostNetwork") is True else {})}
    added: list[Json] = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect} for name, effect in names.items()
    ]
    spec = {**spec, "tolerations": [*as_list(spec.get("tolerations")), *added]}
    nodes = [*map(with_state_taints, objects.empty_nodes)]
    for number in numbers_of(matching_nodes(NodeIndex.of(nodes), Placement.parse(spec), Budget())):
        yield replace(group, pod={**group.pod, "spec": _on_node(spec, nodes[number].name)}, parallel=1, total=1)


def _on_node(spec: dict[str, Json], name: str) -> dict[str, Json]:
    """Return the spec of a pod that only this node can run."""
    affinity = as_mapping(spec.get("affinity"))
    own = as_mapping(affinity.get("nodeAffinity"))
    terms = object_items(as_mapping(own.get(REQUIRED)).get("nodeSelectorTerms")) or [{}]
    field: Json = [{"key": NODE_NAME, "operator": "In", "values": [name]}]
    required: Json = {"nodeSelectorTerms": [{**term, "matchFields": field} for term in terms]}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**own, REQUIRED: required}}}
