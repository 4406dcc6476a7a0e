"""Nodes that could serve a pod without a problem that findings report, such as a device plugin that does not run."""

from collections.abc import Mapping

from rules_engine.diagnosis.objects.gpu_objects import has_gpu_label
from rules_engine.diagnosis.pending.node_sets import NodeSets
from rules_engine.diagnosis.pending.request import Request
from rules_engine.diagnosis.pending.unoffered import CONFIG
from rules_engine.evaluation.nodes import Offered
from rules_engine.model.gpu.mig import MIG_RESOURCE
from rules_engine.model.gpu.resources import is_mig
from rules_engine.model.json.lenient import as_string_map
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, NodeObject
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.finding import Finding
from rules_engine.scheduling.requirements import NOT_READY, UNREACHABLE


def broken_nodes(
    request: Request, sets: NodeSets, cluster: ClusterObjects, findings: Mapping[str, list[Finding]]
) -> Mapping[str, list[Finding]]:
    """Return the nodes that would serve a request without the problems in their findings, with these findings."""
    placement = request.placement
    usable = sets.covering_nodes(request.gpus, Offered.AVAILABLE) & sets.nodes_tolerated_by(placement)
    allowed = sets.matching_nodes(placement) & sets.nodes_tolerated_by(placement, NOT_READY, UNREACHABLE) & ~usable
    allowed &= sets.covering_nodes(request.others, Offered.AVAILABLE) & ~sets.full
    return {
        node.name: findings[node.name]
        for number, (node, capacity) in enumerate(zip(cluster.nodes, sets.capacities, strict=True))
        if node.name in findings and allowed >> number & 1
        if all(_could_offer(node, capacity, resource, count) for resource, count in request.amounts.items())
    }


def _could_offer(node: NodeObject, capacity: Mapping[str, int], resource: str, count: int) -> bool:
    """Return True if a node has at least `count` free devices, or may get them by its labels."""
    if capacity.get(resource):
        view = node.cluster.node_view(node.name)
        used = view.used.get(resource) if view else None
        return capacity[resource] - (used.nanos // NANOS if used else 0) >= count
    if is_mig(resource):
        layout = as_string_map(node.metadata.get("labels")).get(CONFIG, "")
        # The name of a layout contains its profile, except for balanced and custom layouts, which may have any.
        return resource.removeprefix(MIG_RESOURCE) in layout if "g." in layout else layout not in ("", "all-disabled")
    # Only for NVIDIA cards do Diagnostics report a node that offers no device at all.
    return resource.startswith("nvidia.com/") and not any(capacity.values()) and has_gpu_label(node)
