"""Defaults of the API server for members that a pod does not set, and its check of amounts of the pod level.

Sources: kubernetes/pkg/apis/core/v1/defaults.go; pkg/apis/core/validation/validation.go (requests of the pod level).
"""

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError, aggregate
from rules_engine.model.json.lenient import Object, as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import with_containers, with_default_members, with_default_requests
from rules_engine.model.kubernetes.pod import Pod

TEMPLATE = "spec.template."
"""Beginning of the refusal of a workload, for its template."""

_WORKLOADS = ("v1", "apps/v1", "batch/v1")
"""API versions of workloads whose templates the API server checks."""


def set_defaults(creation: PodCreation) -> None:
    """Set the members that every pod has."""
    pod = as_mapping(with_default_members(with_default_requests({**creation.pod})))
    spec = as_mapping(pod.get("spec"))
    creation.pod = {
        **pod,
        "spec": with_containers(spec, _with_host_ports) if spec.get("hostNetwork") is True else {**spec},
    }


def _with_host_ports(_member: str, container: Object) -> Json:
    ports: list[Json] = [
        {**port, "hostPort": port.get("hostPort") or port.get("containerPort")}
        for port in object_items(container.get("ports"))
    ]
    return {**container, "ports": ports} if ports else {**container}


def check_template(creation: PodCreation) -> None:
    """Refuse a pod whose workload the API server refuses. Templates have no default requests."""
    owners = object_items(creation.metadata.get("ownerReferences"))
    if any(owner.get("apiVersion") in _WORKLOADS for owner in owners):
        check_pod_level(creation, TEMPLATE)


def check_pod_level(creation: PodCreation, parent: str = "") -> None:
    """Refuse a request of the pod level below the sum of its containers. `parent`: the path of the pod."""
    if not creation.spec.get("resources"):
        return
    pod = Pod.parse(dict(creation.pod))
    for name, level in pod.requests.items():
        total = aggregate(pod, [container.requests.get(name) for container in pod.containers])
        if level < total:
            place = f'{parent}spec.resources.requests[{name}]: Invalid value: "{level}"'
            raise RefusedError(f"{place}: must be greater than or equal to aggregate container requests of {total}")
