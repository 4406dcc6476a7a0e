"""Sections of a one-shot diagnosis: GPU nodes, device plugins and GPU pods."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from rules_engine.accelerators.nodes import is_operand
from rules_engine.accelerators.resources import is_gpu, requests_gpus_by_annotation
from rules_engine.cluster.devices.offers import without_device_offers
from rules_engine.cluster.gpu_nodes import gpus_of
from rules_engine.model.json.lenient import as_mapping, integer_member
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.cluster_objects import (
    AUTOSCALER_STATUS,
    POD_GROUPS,
    ClusterObjects,
    NodeObject,
    PodObject,
)
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.native_objects import OFFERS
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.questions.doctor import gpu_objects
from rules_engine.questions.doctor.drivers import drivers_of
from rules_engine.questions.doctor.holders import binding_time
from rules_engine.questions.doctor.values import Amounts, DevicePlugin, GpuNode, GpuPod, UnreadyPod

InScope = Callable[[ObjectName], bool]
"""A function that is True for the name of an object in the scope of the diagnosis."""

DevicePods = Sequence[tuple[PodObject, Mapping[str, int]]]
"""The pods that request GPUs or RDMA devices, with the amounts; none for GPUs by annotation."""


def device_pods(cluster: ClusterObjects) -> DevicePods:
    """Return the pods that request GPUs or RDMA devices, finished ones as well."""
    pods = ((pod, gpu_objects.devices_of(pod)) for pod in cluster.pods)
    return [(pod, devices) for pod, devices in pods if devices or requests_gpus_by_annotation(pod)]


def gpu_nodes(cluster: ClusterObjects, in_scope: InScope) -> tuple[GpuNode, ...]:
    """Return the nodes that have GPUs, by name."""
    drivers = drivers_of(cluster)
    nodes = []
    for node, view in zip(cluster.nodes, drivers.view.nodes, strict=True):
        offered = {name: each for name, each in drivers.offered(view).items() if gpu_objects.is_device(name)}
        if (gpus_of(node) or any(map(is_gpu, offered))) and in_scope(node.object_name):
            nodes.append(_gpu_node(node, view, offered))
    return tuple(sorted(nodes, key=lambda node: node.name))


def _gpu_node(node: NodeObject, view: Node, offered: Mapping[str, tuple[int, int]]) -> GpuNode:
    """Return a node; `offered`: the devices of drivers, and how many are in use."""
    capacity, allocatable = (
        gpu_objects.device_amounts(as_mapping(node.status.get(member))) for member in ("capacity", "allocatable")
    )
    gpus = gpus_of(node)
    most = {resource: amount for resource, (amount, _) in offered.items()}
    capacity, allocatable = {**capacity, **most}, {**allocatable, **most}
    allocated = None
    if not node.cluster.unread("Pod"):
        used = without_device_offers(view).used
        held = {name: each.whole for name, each in used.items() if each.nanos and gpu_objects.is_device(name)}
        allocated = {**held, **{resource: in_use for resource, (_, in_use) in offered.items()}}
    return GpuNode(
        name=node.name,
        product=(gpus.product or gpus.vendor) if gpus else "",
        ready=view.ready,
        cordoned=view.unschedulable,
        resources={
            resource: Amounts(
                capacity=capacity.get(resource, 0 if "capacity" in node.status else None),
                allocatable=allocatable.get(resource, 0),
                allocated=in_use,
                free=None if in_use is None else allocatable.get(resource, 0) - in_use,
            )
            for resource in sorted({*capacity, *allocatable, *(allocated or {})})
            for in_use in [None if allocated is None else allocated.get(resource, 0)]
        },
    )


def gpu_pods(pods: DevicePods, in_scope: InScope) -> tuple[GpuPod, ...]:
    """Return the unfinished pods that hold GPUs, by node."""
    holders = [
        GpuPod(
            name=pod.object_name,
            node=pod.node_name,
            status=gpu_objects.status_of(pod),
            amounts=dict(sorted(devices.items())),
            since=binding_time(pod),
        )
        for pod, devices in pods
        if pod.node_name and not is_finished(pod) and any(map(is_gpu, devices)) and in_scope(pod.object_name)
    ]
    return tuple(sorted(holders, key=lambda pod: (pod.node, pod.name)))


def plugin_pods(cluster: ClusterObjects) -> Mapping[ObjectName, Sequence[PodObject]]:
    """Return the pods of each DaemonSet that GPU nodes need."""
    names: Iterable[ObjectName] = (each.object_name for each in cluster.daemon_sets)
    if "DaemonSet" in cluster.absent:
        names = (name for name in cluster.pods_by_controller if name.kind == "DaemonSet")
    return {name: cluster.pods_of(name) for name in names if is_operand(name.name)}


def device_plugins(cluster: ClusterObjects, pods: Mapping[ObjectName, Sequence[PodObject]]) -> tuple[DevicePlugin, ...]:
    """Return the DaemonSets that GPU nodes need, by name."""
    return tuple(
        DevicePlugin(
            name=each.object_name,
            desired=max(integer_member(each.status, "desiredNumberScheduled"), 0),
            ready=max(integer_member(each.status, "numberReady"), 0),
            unready=tuple(
                UnreadyPod(name=pod.object_name, node=pod.node_name, status=gpu_objects.status_of(pod))
                for pod in sorted(pods[each.object_name], key=lambda pod: pod.object_name)
                if pod.condition("Ready").get("status") != "True"
            ),
        )
        for each in sorted(cluster.daemon_sets, key=lambda each: each.object_name)
        if each.object_name in pods
    )


UNKNOWN_FACTS: Mapping[str, str] = {
    "Node": "what nodes offer and why pods are not scheduled",
    "Pod": "what is allocated and free, which pods wait and whether device plugins run",
    "Event": "recent errors, the scheduler's message and pods that were never created",
    "DaemonSet": "which device plugins there are",
    "ReplicaSet": "which ReplicaSets lack pods",
    "StatefulSet": "which StatefulSets lack pods",
    "Job": "which Jobs lack pods",
    "PersistentVolumeClaim": "whether a pod waits for a volume claim that is not bound",
    "PersistentVolume": "which nodes reach the volumes of a pod",
    "StorageClass": "whether a volume claim is bound before its pod has a node",
    "RuntimeClass": "whether the runtime class of a pod exists",
    "ResourceQuota": "which quota is exhausted",
    "DeviceClass": "which resources drivers serve",
    "ResourceSlice": "which devices drivers offer",
    "ResourceClaim": "which devices of drivers are allocated",
    "ResourceClaimTemplate": "what pods request by templates of claims",
    "DeviceTaintRule": "which devices of drivers repel pods",
    "Namespace": "which rules match a pod by the labels of its namespace",
    OFFERS: "which rules native policies have no offers for",
    "Workload": "what Kueue says of a waiting workload",
    **dict.fromkeys(POD_GROUPS, "what the scheduler of a group of pods says of it"),
    "NodePool": "which nodes Karpenter may add",
    AUTOSCALER_STATUS: "which nodes the cluster-autoscaler may add",
}
"""The facts that are unknown without the objects of a kind."""
