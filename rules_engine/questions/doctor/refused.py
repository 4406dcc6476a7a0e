"""GPU pods that the kubelet of their node refused."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rules_engine.model.json.lenient import as_string_map, controller_reference, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject
from rules_engine.model.rules.finding import Finding, FindingSeverity, Remedy, Risk
from rules_engine.questions.doctor.gpu_objects import is_device, parse_timestamp
from rules_engine.questions.doctor.holders import gpus_of
from rules_engine.questions.doctor.reasons import RefusedReason
from rules_engine.questions.doctor.wording import quote_message, shell_command

UNEXPECTED = "UnexpectedAdmissionError"
TOPOLOGY = "TopologyAffinityError"
OUT_OF = "OutOf"
"""Reasons of the status of pods that a kubelet refuses (pkg/kubelet/cm/admission, cm/topologymanager, lifecycle)."""

# Sources: NVIDIA's device plugin, which refuses with "maximum request size for shared resources is 1; found 2";
# pkg/kubelet/cm/devicemanager (manager.go, devicesToAllocate).
_SHARED = re.compile(r"maximum request size for shared resources is (\d+)")
_UNAVAILABLE = re.compile(r"requested number of devices unavailable for (\S+?)\. Requested: (\d+), Available: (\d+)")

SHARING_LABELS = ("nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas")


def find_refused(cluster: ClusterObjects, since: datetime) -> tuple[Finding, ...]:
    """Return a finding for each GPU pod that a node refused.

    A pod with a controller counts only if it was created since a time, since the controller has replaced it.
    """
    return tuple(
        _build_finding(pod, amounts, cluster)
        for pod in cluster.pods
        if text_member(pod.status, "phase") == "Failed"
        if text_member(pod.status, "reason").startswith((UNEXPECTED, TOPOLOGY, OUT_OF))
        if controller_reference(pod) is None or (parse_timestamp(pod.metadata, "creationTimestamp") or since) >= since
        if (amounts := gpus_of(pod))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _KubeletRefusal:
    """The reason why a kubelet refused a pod, with its explanation."""

    reason: RefusedReason
    message: str
    cause: str
    remedies: tuple[Remedy, ...]


def _parse_refusal(reason: str, message: str, requested: str) -> _KubeletRefusal:
    shared, unavailable = _SHARED.search(message), _UNAVAILABLE.search(message)
    if shared is not None:
        most = shared[1]
        return _KubeletRefusal(
            reason=RefusedReason.SHARED_GPUS,
            message=f"the pod requests {requested}, but a container gets {most} at most where GPUs are shared",
            cause="A share is a slot of time on a card, not a part of it: two shares may be of the same card.",
            remedies=(
                Remedy(
                    text=f"Request {most} in each container, or use nodes that do not share their GPUs.",
                    risk=Risk.MEDIUM,
                ),
            ),
        )
    resource = unavailable[1] if unavailable is not None else reason.removeprefix(OUT_OF)
    if is_device(resource):
        return _KubeletRefusal(
            reason=RefusedReason.DEVICES_UNAVAILABLE,
            message=f"the node has too little {resource} left for the pod",
            cause="Other pods hold the devices, or devices became unhealthy, since the pod was scheduled.",
            remedies=(Remedy(text="Create the pod again.", risk=Risk.MEDIUM),),
        )
    if reason == TOPOLOGY or "topology" in message.lower():
        return _KubeletRefusal(
            reason=RefusedReason.TOPOLOGY,
            message=f"the node cannot align {requested} with the other resources of the pod on its NUMA nodes",
            cause="The scheduler counts what is free on a whole node, the kubelet's topology manager by NUMA node.",
            remedies=(
                Remedy(text="Request what fits on one NUMA node.", risk=Risk.MEDIUM),
                Remedy(text="Change the topology manager's policy in the kubelet's configuration.", risk=Risk.HIGH),
            ),
        )
    if reason.startswith(OUT_OF):
        return _KubeletRefusal(
            reason=RefusedReason.OTHER,
            message=f"the node has too little {resource} left for the pod",
            cause="Other pods used it since the pod was scheduled.",
            remedies=(Remedy(text="Create the pod again.", risk=Risk.MEDIUM),),
        )
    return _KubeletRefusal(
        reason=RefusedReason.OTHER,
        message="the node refused the pod",
        cause="The kubelet could not allocate what the pod requests.",
        remedies=(Remedy(text="Look at the device plugin of the node."),),
    )


def _build_finding(pod: PodObject, amounts: Mapping[str, int], cluster: ClusterObjects) -> Finding:
    reason, message, node = text_member(pod.status, "reason"), text_member(pod.status, "message"), pod.node_name
    refusal = _parse_refusal(reason, message, " and ".join(f"{count} {name}" for name, count in amounts.items()))
    look = Remedy(text="Look at the node and its events.", command=shell_command("kubectl", "describe", "node", node))
    return Finding(
        reason=refusal.reason,
        severity=FindingSeverity.ERROR,
        object=pod.object_name,
        message=refusal.message,
        cause=refusal.cause,
        evidence=(
            f"{reason} on node {node}",
            *([quote_message(message)] if message else []),
            *_sharing_lines(node, cluster),
        ),
        remedies=(*refusal.remedies, look),
    )


def _sharing_lines(node: str, cluster: ClusterObjects) -> list[str]:
    node_object = cluster.find("Node", node)
    labels = as_string_map(node_object.metadata.get("labels")) if node_object is not None else {}
    return [f"{label}={labels[label]} on node {node}" for label in SHARING_LABELS if label in labels]
