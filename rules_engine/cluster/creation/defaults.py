"""Defaults of the API server for members that a pod does not set, and its check of amounts of the pod level.

Sources: kubernetes/pkg/apis/core/v1/defaults.go; pkg/apis/core/validation/validation.go (requests of the pod level).
"""

from collections.abc import Mapping

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.pod_defaults import CONTAINER_LISTS, with_default_requests
from rules_engine.model.kubernetes.quantity import Quantity

_SPEC: Object = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
}
_CONTAINER: Object = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE: Object = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_VOLUMES: Mapping[str, Object] = {
    "secret": {"defaultMode": 420},
    "configMap": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "hostPath": {"type": ""},
}


def set_defaults(creation: PodCreation) -> None:
    """Set the members that every pod has."""
    creation.pod = with_default_requests({**creation.pod})
    spec: dict[str, Json] = {**_SPEC, **creation.spec}
    for member in CONTAINER_LISTS:
        if member in spec:
            containers: list[Json] = []
            for each in object_items(spec[member]):
                policy = {"imagePullPolicy": "Always" if _is_latest(text_member(each, "image")) else "IfNotPresent"}
                probes = {name: {**_PROBE, **as_mapping(each[name])} for name in _PROBES if name in each}
                containers.append({**_CONTAINER, **policy, **each, **probes, **_ports(each, spec)})
            spec[member] = containers
    if "volumes" in spec:
        spec["volumes"] = [
            {
                name: {**_VOLUMES.get(name, {}), **value} if isinstance(value, dict) else value
                for name, value in each.items()
            }
            for each in object_items(spec["volumes"])
        ]
    creation.pod = {**creation.pod, "spec": spec}


def _is_latest(image: str) -> bool:
    """Return True if an image has the tag `latest`, or no tag and no digest."""
    name = image.rpartition("/")[2]
    return "@" not in name and name.partition(":")[2] in ("", "latest")


def _ports(container: Object, spec: Object) -> dict[str, Json]:
    on_host = spec.get("hostNetwork") is True
    ports: list[Json] = [
        {"protocol": "TCP", **({"hostPort": each.get("containerPort")} if on_host else {}), **each}
        for each in object_items(container.get("ports"))
    ]
    return {"ports": ports} if ports else {}


def check_pod_level(creation: PodCreation) -> None:
    """Refuse a request of the pod level below the sum of its containers."""
    if not creation.spec.get("resources"):
        return
    pod = Pod.parse(dict(creation.pod))
    for name, level in pod.requests.items():
        amounts = [container.requests.get(name, Quantity(0)) for container in pod.containers]
        total = Quantity(pod.aggregate([amount.nanos for amount in amounts]), next(filter(None, amounts), level).format)
        if level < total:
            place = f'spec.resources.requests[{name}]: Invalid value: "{level}"'
            raise RefusedError(f"{place}: must be greater than or equal to aggregate container requests of {total}")
