"""Defaults that the API server sets in pods: members, requests that templates have not, and generated names."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Format, Quantity

CONTAINER_LISTS = ("containers", "initContainers")

_AGGREGATE_FORMATS = {"cpu": Format.DECIMAL_SI, "memory": Format.BINARY_SI}
"""Resources whose pod-level request defaults to the aggregate of the containers' requests, with its format."""

_HUGE_PAGES = "hugepages-"

_NOTHING: Object = MappingProxyType({})


def with_containers(spec: Object, change: Callable[[str, Object], Json]) -> dict[str, Json]:
    """Return a spec with other containers. `change`: of the member that lists a container, and the container."""
    members = [member for member in CONTAINER_LISTS if spec.get(member)]
    return {**spec, **{member: [change(member, item) for item in object_items(spec[member])] for member in members}}


def with_default_requests(pod: dict[str, Json]) -> dict[str, Json]:
    """Return a pod with its default requests; malformed parts stay as they are."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    with_requests = dict(spec)
    for member in CONTAINER_LISTS:
        containers = spec.get(member)
        if isinstance(containers, list):
            with_requests[member] = [
                {**item, "resources": default_container_resources(item["resources"])}
                if isinstance(item, dict) and "resources" in item
                else item
                for item in containers
            ]
    if "resources" in spec:
        with_requests["resources"] = default_pod_resources(spec)
    return {**pod, "spec": with_requests}


def _pull_policy(owner: Object) -> Json:
    """Return the default policy: Always for an image without tag and digest, and for the tag latest."""
    image = (text_member(owner, "image") or text_member(owner, "reference")).rpartition("/")[2]
    name, _, digest = image.partition("@")
    tag = name.partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _empty_dir(volume: Object) -> Json:
    """Return the source of a volume without one."""
    return None if volume.keys() - {"name"} else {}


_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = (*((probe,) for probe in _PROBES), ("lifecycle", "postStart"), ("lifecycle", "preStop"))
_PROBE: Mapping[str, Json] = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}

_Default: TypeAlias = "Json | Callable[[Object], Json]"
_Tree: TypeAlias = "Mapping[str, _Tree | tuple[_Default]]"

_CONTAINER: Mapping[tuple[str, ...], _Default] = {
    ("imagePullPolicy",): _pull_policy,
    ("resources",): {},
    ("terminationMessagePath",): "/dev/termination-log",
    ("terminationMessagePolicy",): "File",
    ("ports", "protocol"): "TCP",
    ("env", "valueFrom", "fieldRef", "apiVersion"): "v1",
    ("env", "valueFrom", "resourceFieldRef", "divisor"): "0",
    **{(probe, name): value for probe in _PROBES for name, value in _PROBE.items()},
    **{(*handler, "httpGet", "path"): "/" for handler in _HANDLERS},
    **{(*handler, "httpGet", "scheme"): "HTTP" for handler in _HANDLERS},
}

_MEMBERS: Mapping[tuple[str, ...], _Default] = {
    ("spec", "restartPolicy"): "Always",
    ("spec", "dnsPolicy"): "ClusterFirst",
    ("spec", "schedulerName"): "default-scheduler",
    ("spec", "securityContext"): {},
    ("spec", "terminationGracePeriodSeconds"): 30,
    ("spec", "enableServiceLinks"): True,
    ("spec", "volumes", "emptyDir"): _empty_dir,
    ("spec", "volumes", "hostPath", "type"): "",
    ("spec", "volumes", "image", "pullPolicy"): _pull_policy,
    ("spec", "volumes", "ephemeral", "volumeClaimTemplate", "spec", "volumeMode"): "Filesystem",
    ("spec", "volumes", "downwardAPI", "items", "fieldRef", "apiVersion"): "v1",
    ("spec", "volumes", "projected", "sources", "downwardAPI", "items", "fieldRef", "apiVersion"): "v1",
    ("spec", "volumes", "projected", "sources", "serviceAccountToken", "expirationSeconds"): 3600,
    **{("spec", "volumes", kind, "defaultMode"): 0o644 for kind in ("configMap", "downwardAPI", "projected", "secret")},
    **{("spec", member, *path): value for member in CONTAINER_LISTS for path, value in _CONTAINER.items()},
}
"""Default values by the path of their members; a parent that is absent stays so."""


def _tree(members: Mapping[tuple[str, ...], _Default]) -> _Tree:
    """Return default values by the names of their members; each is a tuple, unlike the members of a parent."""
    tree: dict[str, Any] = {}
    for (*parents, name), value in members.items():
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = (value,)
    return tree


_TREE = _tree(_MEMBERS)


def with_default_members(pod: Json) -> Json:
    """Return a pod with the members that the API server sets in every pod.

    Source: pkg/apis/core/v1/defaults.go; without requests, host ports and volumes of clouds.
    """
    return _with_defaults(pod, _TREE)


def _with_defaults(value: Json, tree: _Tree) -> Json:
    """Return a value with defaults. Each object is visited once: pods of 1 MiB may have 100,000 volumes."""
    if isinstance(value, list):
        # Lists within lists, as no pod of an API server has them, may be nested deeply.
        return [item if isinstance(item, list) else _with_defaults(item, tree) for item in value]
    if not isinstance(value, dict):
        return value
    members: dict[str, Json] = {}
    for name, below in tree.items():
        member = value.get(name)
        if not isinstance(below, tuple):
            if member is not None:
                members[name] = _with_defaults(member, below)
        elif member in (None, ""):
            found = below[0](value) if callable(below[0]) else below[0]
            if found is not None:
                members[name] = found
    return {**value, **members} if members else value


def default_container_resources(resources: Json) -> Json:
    """Return the resources of a container with requests that default to its limits (v1, SetDefaults_Pod)."""
    members = as_mapping(resources)
    limits, requests = members.get("limits"), members.get("requests")
    if not limits or not isinstance(limits, dict) or not isinstance(requests, dict | None):
        return resources
    return {**members, "requests": {**limits, **as_mapping(requests)}}


def default_pod_resources(spec: Object, observed: Object = _NOTHING) -> Json:
    """Return the pod-level resources with their default requests.

    `observed`: the pod-level resources of the live pod. Only its huge pages are used: rules may have raised the others.
    Source: k8s.io/kubernetes/pkg/apis/core/v1 (defaultPodRequests; KEP-2837).
    """
    level = as_mapping(spec.get("resources"))
    limits, requests = as_mapping(level.get("limits")), as_mapping(level.get("requests"))
    if not limits or not isinstance(level.get("requests"), dict | None):
        return spec.get("resources")
    try:
        aggregate = Pod.parse({"spec": {member: spec[member] for member in CONTAINER_LISTS if member in spec}})
    except PodError:
        return spec.get("resources")
    defaulted: dict[str, Json] = dict(limits)
    for name, nanos in aggregate.effective_requests().items():
        if name in _AGGREGATE_FORMATS:
            defaulted[name] = str(Quantity(nanos, _AGGREGATE_FORMATS[name]))
    huge = {
        kind: {name: amount for name, amount in as_mapping(observed.get(kind)).items() if name.startswith(_HUGE_PAGES)}
        for kind in ("limits", "requests")
    }
    return {**level, "limits": {**huge["limits"], **limits}, "requests": {**defaulted, **huge["requests"], **requests}}


MAX_BASE = 58
"""Characters of a generateName that are used: five random characters follow, and a label has at most 63."""

_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
"""Characters of random suffixes and hashes (apimachinery, pkg/util/rand), as a regular expression."""

_RANDOM_SUFFIX = re.compile(f"{_SAFE}{{5}}")

_GENERATED_END = re.compile(rf"-(?:{_SAFE}{{5,10}}|[0-9]{{8,10}})\Z")
"""A random suffix, the hash of a ReplicaSet's template, or the minutes since 1970 of a CronJob's Job."""


def generate_name(base: str) -> str:
    """Return a name such as the API server generates."""
    return f"{base[:MAX_BASE]}xxxxx"


def is_generated_name(name: str, base: str) -> bool:
    """Return True if the API server may have generated a name. Names of StatefulSet pods end in an ordinal instead."""
    base = base[:MAX_BASE]
    return bool(base) and name.startswith(base) and _RANDOM_SUFFIX.fullmatch(name, len(base)) is not None


def without_generated_end(name: str) -> str:
    """Return a name with `*` in place of an end that looks generated: names of one Deployment or CronJob are equal."""
    return _GENERATED_END.sub("-*", name)


def with_generated_name(pod: Json) -> Json:
    """Return a pod with a name: one such as the API server generates if the pod has a generateName only."""
    metadata = as_mapping(as_mapping(pod).get("metadata"))
    base = text_member(metadata, "generateName")
    if not base or text_member(metadata, "name"):
        return pod
    return {**as_mapping(pod), "metadata": {**metadata, "name": generate_name(base)}}
