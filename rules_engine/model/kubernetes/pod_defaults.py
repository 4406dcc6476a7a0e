"""Requests that the API server sets in a pod before webhooks are called, and not in the template of one."""

from types import MappingProxyType

from rules_engine.model.json.lenient import Object, mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Format, Quantity

LISTS = ("containers", "initContainers")

_AGGREGATED = {"cpu": Format.DECIMAL_SI, "memory": Format.BINARY_SI}
"""Resources whose request of the whole pod is by default the aggregate of its containers' requests."""

_HUGE_PAGES = "hugepages-"

_NOTHING: Object = MappingProxyType({})


def with_defaults(pod: dict[str, Json]) -> dict[str, Json]:
    """Return a pod with its default requests; what is malformed stays as it is."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    found = dict(spec)
    for member in LISTS:
        containers = spec.get(member)
        if isinstance(containers, list):
            found[member] = [
                {**item, "resources": of_container(item["resources"])}
                if isinstance(item, dict) and "resources" in item
                else item
                for item in containers
            ]
    if "resources" in spec:
        found["resources"] = of_whole_pod(spec)
    return {**pod, "spec": found}


def of_container(resources: Json) -> Json:
    """Return the resources of a container, whose requests default to its limits (v1, SetDefaults_Pod)."""
    members = mapping(resources)
    limits, requests = members.get("limits"), members.get("requests")
    if not limits or not isinstance(limits, dict) or not isinstance(requests, dict | None):
        return resources
    return {**members, "requests": {**limits, **mapping(requests)}}


def of_whole_pod(spec: Object, observed: Object = _NOTHING) -> Json:
    """Return the resources of a whole pod with its default requests.

    `observed`: those of the live pod, for huge pages. Rules may have raised the others since.
    Source: k8s.io/kubernetes/pkg/apis/core/v1 (defaultPodRequests; KEP-2837).
    """
    level = mapping(spec.get("resources"))
    limits, requests = mapping(level.get("limits")), mapping(level.get("requests"))
    if not limits or not isinstance(level.get("requests"), dict | None):
        return spec.get("resources")
    try:
        aggregate = Pod.parse({"spec": {member: spec[member] for member in LISTS if member in spec}})
    except PodError:
        return spec.get("resources")
    defaulted: dict[str, Json] = dict(limits)
    for name, nanos in aggregate.effective_requests().items():
        if name in _AGGREGATED:
            defaulted[name] = str(Quantity(nanos, _AGGREGATED[name]))
    huge = {
        kind: {name: amount for name, amount in mapping(observed.get(kind)).items() if name.startswith(_HUGE_PAGES)}
        for kind in ("limits", "requests")
    }
    return {
        **level,
        "limits": {**huge["limits"], **limits},
        "requests": {**defaulted, **huge["requests"], **requests},
    }
