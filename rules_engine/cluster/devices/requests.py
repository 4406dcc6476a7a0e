"""The devices that a pod requests by extended resources, as kube-scheduler writes them into a claim.

Source: pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go (createRequestsAndMappings).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from rules_engine.cluster.devices.allocation import DeviceRequest
from rules_engine.model.json.lenient import as_list, as_mapping
from rules_engine.model.kubernetes.devices import DeviceClass
from rules_engine.model.kubernetes.pod import Pod, Role
from rules_engine.model.kubernetes.quantity import NANOS


class ExtendedResourceRequest(Struct, frozen=True, kw_only=True):
    """A container's request for a whole number of an extended resource.

    `index`: of the container, init containers first. `position`: of the resource among all that the container requests.
    `lasting`: the container is a sidecar or a regular one. Other init containers end, and their devices are used again.
    """

    resource: str
    index: int
    position: int
    count: int
    lasting: bool

    @property
    def name(self) -> str:
        return f"container-{self.index}-request-{self.position}"


def read_container_requests(pod: Pod) -> Iterator[ExtendedResourceRequest]:
    """Yield the requests of a pod's containers for extended resources, in order of their containers."""
    if not any("/" in resource for resource in pod.resources):
        return
    init = len(as_list(as_mapping(pod.original.get("spec")).get("initContainers")))
    for container in sorted(pod.containers, key=lambda each: each.role is Role.REGULAR):
        index = int(container.path[-1]) + (init if container.role is Role.REGULAR else 0)
        for position, resource in enumerate(sorted({*container.requests, *container.limits})):
            amount = container.requested(resource)
            if "/" in resource and amount and amount.nanos % NANOS == 0:
                yield ExtendedResourceRequest(
                    resource=resource,
                    index=index,
                    position=position,
                    count=amount.nanos // NANOS,
                    lasting=container.role is not Role.INIT,
                )


def create_requests(
    containers: Iterable[ExtendedResourceRequest], classes: Mapping[str, DeviceClass]
) -> Sequence[DeviceRequest]:
    """Return the requests of a claim for the resources of classes, in the order in which the scheduler allocates."""
    by_resource: dict[str, list[ExtendedResourceRequest]] = {name: [] for name in classes}
    for each in containers:
        if each.resource in by_resource:
            by_resource[each.resource].append(each)
    by_name = {
        each.name: DeviceRequest(classes[resource], count)
        for resource, requests in by_resource.items()
        for each, count in _devices_to_allocate(requests)
    }
    # As texts: container-10 precedes container-2.
    return [request for _, request in sorted(by_name.items())]


def _devices_to_allocate(requests: Sequence[ExtendedResourceRequest]) -> Iterator[tuple[ExtendedResourceRequest, int]]:
    """Yield the requests for one resource that need devices, with their number.

    An init container uses the devices of later containers. Of the init containers that need more, only the greediest
    gets additional devices.
    """
    lasting = [each for each in requests if each.lasting]
    yield from ((each, each.count) for each in lasting)
    own = [
        (each, each.count - sum(other.count for other in lasting if other.index >= each.index))
        for each in requests
        if not each.lasting
    ]
    greediest = max(own, key=lambda item: item[1], default=None)
    if greediest is not None and greediest[1] > 0:
        yield greediest
