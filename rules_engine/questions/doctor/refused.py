"""GPU pods that the kubelet of their node refused."""

import re
from collections.abc import Mapping
from datetime import datetime

from rules_engine.model.json.lenient import as_string_map, controller_reference, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.rules.finding import Finding
from rules_engine.questions.doctor.gpu_objects import LONG_AGO, devices_of, is_device, parse_timestamp
from rules_engine.questions.doctor.holders import Holders, binding_time, requested_gpus
from rules_engine.questions.doctor.reasons import RefusedReason
from rules_engine.questions.doctor.wording import quote_message
from rules_engine.rules.diagnostic.catalogue import Slots, new_finding

UNEXPECTED = "UnexpectedAdmissionError"
TOPOLOGY = "TopologyAffinityError"
OUT_OF = "OutOf"
"""Reasons of the status of pods that a kubelet refuses (pkg/kubelet/cm/admission, cm/topologymanager, lifecycle)."""

# Sources: NVIDIA's device plugin, which refuses with "maximum request size for shared resources is 1; found 2";
# pkg/kubelet/cm/devicemanager (manager.go, devicesToAllocate), lifecycle (predicate.go).
_SHARED = re.compile(r"maximum request size for shared resources is (\d+)")
_UNAVAILABLE = re.compile(r"requested number of devices unavailable for (\S+?)\. Requested: (\d+), Available: (\d+)")
_UNREGISTERED = re.compile(
    r"(?:unregistered device|no healthy .*unhealthy devices|resource:(?=.*, capacity: 0$)) ([^\s,]+)"
)

SHARING_LABELS = ("nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas")


def find_refused(cluster: ClusterObjects, since: datetime) -> tuple[Finding, ...]:
    """Return a finding for each GPU pod that a node refused.

    A pod with a controller counts only if it was created since a time, since the controller has replaced it.
    """
    holders = Holders(cluster)
    return tuple(
        _build_finding(pod, amounts, holders)
        for pod in cluster.pods
        if text_member(pod.status, "phase") == "Failed"
        if text_member(pod.status, "reason").startswith((UNEXPECTED, TOPOLOGY, OUT_OF))
        if controller_reference(pod) is None or (parse_timestamp(pod.metadata, "creationTimestamp") or since) >= since
        if (amounts := requested_gpus(pod))
    )


def _is_record_stale(pod: PodObject, resource: str, holders: Holders) -> bool:
    """Return True if the pods on the node of a refused pod leave what it requests, as they did when it was refused."""
    node, refused_at = pod.cluster.node_view(pod.node_name), binding_time(pod)
    if node is None or refused_at is None or pod.cluster.unread("Pod"):
        return False
    leaves_enough = 0 < devices_of(pod).get(resource, 0) <= node.available(resource).whole
    return leaves_enough and holders.last_changes.get(node.name, LONG_AGO) < refused_at


def _parse_refusal(pod: PodObject, message: str, amounts: str, holders: Holders) -> tuple[RefusedReason, str, Slots]:
    reason = text_member(pod.status, "reason")
    shared, unavailable, unregistered = (each.search(message) for each in (_SHARED, _UNAVAILABLE, _UNREGISTERED))
    if shared is not None:
        return RefusedReason.SHARED_GPUS, "", {"amounts": amounts, "most": shared[1]}
    named = unavailable or unregistered
    resource = named[1] if named is not None else reason.removeprefix(OUT_OF)
    if is_device(resource):
        case = "NotRegistered" if unregistered is not None else ""
        if unavailable is not None and _is_record_stale(pod, resource, holders):
            case = "StaleRecord"
        return RefusedReason.DEVICES_UNAVAILABLE, case, {"resource": resource}
    if reason == TOPOLOGY or "topology" in message.lower():
        return RefusedReason.TOPOLOGY, "", {"amounts": amounts}
    return RefusedReason.OTHER, "OutOfResource" if reason.startswith(OUT_OF) else "", {"resource": resource}


def _build_finding(pod: PodObject, amounts: Mapping[str, int], holders: Holders) -> Finding:
    message, node = quote_message(text_member(pod.status, "message")), pod.node_name
    joined = " and ".join(f"{count} {name}" for name, count in amounts.items())
    reason, case, slots = _parse_refusal(pod, message, joined, holders)
    return new_finding(
        reason,
        pod.object_name,
        case=case,
        slots={**slots, "node": node},
        evidence=(
            f"{text_member(pod.status, 'reason')} on node {node}",
            *([message] if message else []),
            *holders.evidence(str(slots.get("resource", "")), (node,)),
            *_sharing_lines(node, pod.cluster),
        ),
    )


def _sharing_lines(node: str, cluster: ClusterObjects) -> list[str]:
    node_object = cluster.find("Node", node)
    labels = as_string_map(node_object.metadata.get("labels")) if node_object is not None else {}
    return [f"{label}={labels[label]} on node {node}" for label in SHARING_LABELS if label in labels]
