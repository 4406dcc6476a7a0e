"""What the API server sets in a pod and not in the template of one: default requests, and generated names."""

import re
from types import MappingProxyType

from rules_engine.model.json.lenient import Object, mapping, text
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


MAX_BASE = 58
"""Characters of a generateName that are used: five random ones follow, and a label has at most 63."""

_RANDOM = re.compile("[bcdfghjklmnpqrstvwxz2456789]{5}")


def generated_name(base: str) -> str:
    """Return a name that the API server may generate."""
    return f"{base[:MAX_BASE]}xxxxx"


def is_generated(name: str, base: str) -> bool:
    """Return True if the API server may have generated a name. Pods of StatefulSets have another one and a base."""
    base = base[:MAX_BASE]
    return bool(base) and name.startswith(base) and _RANDOM.fullmatch(name, len(base)) is not None


def submitted_names(kind: str, owner: str) -> dict[str, Json]:
    """Return the names in the metadata of the first pod that the controller of an object submits.

    The controller of a StatefulSet names its pods by their ordinals; other names are generated after /mutate.
    """
    return {"generateName": f"{owner}-", **({"name": f"{owner}-0"} if kind == "StatefulSet" else {})}


def with_generated_name(pod: Json) -> Json:
    """Return a pod with the name that the API server generates for one that has a generateName only."""
    metadata = mapping(mapping(pod).get("metadata"))
    base = text(metadata, "generateName")
    if not base or text(metadata, "name"):
        return pod
    return {**mapping(pod), "metadata": {**metadata, "name": generated_name(base)}}
