"""Pods that request GPUs, DaemonSets that GPU nodes need, and times of objects."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from rules_engine.accelerators.resources import is_gpu, is_rdma
from rules_engine.model.json.lenient import Object, as_mapping, controller_reference, object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, PodObject, owner_name, requests_of
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.quantity import NANOS, QuantityError, parse_quantity

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""A time before all others, for comparisons with objects without a time."""

MAX_OWNERS = 4
"""Controllers above a pod: a ReplicaSet and its Deployment, or a Job, its JobSet and what submits that."""


def workload_of(cluster: ClusterObjects, name: ObjectName) -> ObjectName | None:
    """Return the workload of a pod, as far as the controllers above it were read; None without a controller."""
    pod = cluster.find(name.kind, name.name, name.namespace) if name.kind == "Pod" else None
    owners = [] if pod is None else [owner.object_name for owner in controllers_of(pod)]
    return owners[-1] if owners else None


def controllers_of(item: ApiObject) -> Iterator[ApiObject]:
    """Yield the controllers above an object, from below; one that was not read has its name and UID only."""
    for _ in range(MAX_OWNERS):
        reference = controller_reference(item)
        if reference is None or text_member(reference, "kind") == "Node":  # the kubelet's own pods
            return
        name, cluster = owner_name(reference, item), item.cluster
        found = cluster.find(name.kind, name.name, name.namespace)
        if found is None or not is_named(found, text_member(reference, "uid")):
            found = ApiObject({"kind": name.kind, "metadata": {**reference, "namespace": item.namespace}})
            found.cluster = cluster
        item = found
        yield item


def is_named(item: ApiObject, uid: str) -> bool:
    """Return False if a reference with a UID means another object of the same name."""
    return len({uid, text_member(item.metadata, "uid")} - {""}) < 2


def is_device(resource: str) -> bool:
    """Return True for the name of a resource of GPUs or RDMA devices."""
    return is_gpu(resource) or is_rdma(resource)


def device_amounts(quantities: Object) -> Mapping[str, int]:
    """Return the GPUs and RDMA devices in a node's capacity or allocatable, in whole units."""
    amounts = {}
    for resource, quantity in quantities.items():
        if is_device(resource):
            try:
                amounts[resource] = parse_quantity(str(quantity)).whole
            except QuantityError:
                continue  # the API server writes no malformed quantity
    return amounts


def devices_of(pod: PodObject) -> Mapping[str, int]:
    """Return the GPUs and RDMA devices that a pod requests."""
    # Only pods that name a device are parsed: most do not.
    if not any(map(is_device, resource_names(pod.spec))):
        return {}
    return {name: nanos // NANOS for name, nanos in requests_of(pod).items() if nanos and is_device(name)}


def resource_names(spec: Object) -> Iterator[str]:
    """Yield the names of the resources that the containers of a pod's spec request."""
    for container in (*object_items(spec.get("containers")), *object_items(spec.get("initContainers"))):
        resources = as_mapping(container.get("resources"))
        yield from as_mapping(resources.get("limits"))
        yield from as_mapping(resources.get("requests"))


def container_statuses(pod: PodObject) -> list[Object]:
    """Return the statuses of a pod's containers, init containers first."""
    status = pod.status
    return [*object_items(status.get("initContainerStatuses")), *object_items(status.get("containerStatuses"))]


def status_of(pod: PodObject) -> str:
    """Return the status of a pod nearly as `kubectl get pods` prints it.

    The status is Terminating, else the reason why a container does not run, else the pod's reason, else its phase.
    """
    if pod.metadata.get("deletionTimestamp"):
        return "Terminating"
    for container in container_statuses(pod):
        state = as_mapping(container.get("state"))
        ended = as_mapping(state.get("terminated"))
        reason = text_member(as_mapping(state.get("waiting")), "reason") or (
            text_member(ended, "reason") if ended.get("exitCode") else ""
        )
        if reason and reason != "PodInitializing":
            return reason
    return text_member(pod.status, "reason") or text_member(pod.status, "phase")


def parse_timestamp(value: Object, name: str) -> datetime | None:
    """Parse a member that is a timestamp (RFC 3339), and return it in UTC; None if it is not valid."""
    try:
        time = datetime.fromisoformat(text_member(value, name))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # astimezone overflows in the first hours of year 1 and the last of 9999
        return None


def last_seen(event: Object) -> datetime | None:
    """Return the time at which an Event was last seen."""
    return (
        parse_timestamp(as_mapping(event.get("series")), "lastObservedTime")
        or parse_timestamp(event, "lastTimestamp")
        or parse_timestamp(event, "eventTime")
        or parse_timestamp(event, "firstTimestamp")
        or parse_timestamp(as_mapping(event.get("metadata")), "creationTimestamp")
    )
