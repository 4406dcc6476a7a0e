"""Nodes that could serve a pod but for what findings say about them, such as a device plugin that does not run."""

from collections.abc import Mapping

from rules_engine.diagnosis.objects.gpu_objects import has_gpu_label
from rules_engine.diagnosis.pending.node_sets import NodeSets
from rules_engine.diagnosis.pending.request import Request
from rules_engine.diagnosis.pending.unoffered import CONFIG
from rules_engine.evaluation.nodes import Offered
from rules_engine.model.gpu.mig import MIG_RESOURCE
from rules_engine.model.gpu.resources import is_mig
from rules_engine.model.json.lenient import strings
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, NodeObject
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.finding import Finding
from rules_engine.scheduling.requirements import NOT_READY, UNREACHABLE


def broken_nodes(
    request: Request, sets: NodeSets, cluster: ClusterObjects, findings: Mapping[str, list[Finding]]
) -> Mapping[str, list[Finding]]:
    """Return the nodes that cannot serve a request now and could without the findings about them, with these."""
    placement = request.placement
    usable = sets.covering(request.gpus, Offered.AVAILABLE) & sets.tolerated(placement)
    allowed = sets.matching(placement) & sets.tolerated(placement, NOT_READY, UNREACHABLE) & ~usable
    allowed &= sets.covering(request.others, Offered.AVAILABLE) & ~sets.full
    return {
        node.name: findings[node.name]
        for number, (node, capacity) in enumerate(zip(cluster.nodes, sets.capacities, strict=True))
        if node.name in findings and allowed >> number & 1
        if all(_could_offer(node, capacity, resource, count) for resource, count in request.amounts.items())
    }


def _could_offer(node: NodeObject, capacity: Mapping[str, int], resource: str, count: int) -> bool:
    """Return True if a node has, or by its labels may get, so many devices that no pod holds."""
    if capacity.get(resource):
        view = node.cluster.node_view(node.name)
        held = view.used.get(resource) if view else None
        return capacity[resource] - (held.nanos // NANOS if held else 0) >= count
    if is_mig(resource):
        layout = strings(node.metadata.get("labels")).get(CONFIG, "")
        # The name of a layout has its profile, unless it is balanced or one of the cluster's own.
        return resource.removeprefix(MIG_RESOURCE) in layout if "g." in layout else layout not in ("", "all-disabled")
    # Only a node of NVIDIA's cards has findings if it offers no device at all.
    return resource.startswith("nvidia.com/") and not any(capacity.values()) and has_gpu_label(node)
