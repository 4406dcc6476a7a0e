"""Values of objects that are never kept: they often hold secrets, or are of no use."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED, Kept, reduce_value
from rules_engine.model.kubernetes.native_objects import OFFERS

MemberPath: TypeAlias = tuple[str, ...]
"""The names of a member and of the members that contain it; items of lists have no name."""

MARK = "gpurules.io/removed-values"
"""Annotation of a pod whose values were removed: their names, joined by commas. Rules do not see it."""

CAPTURED = "gpurules.io/captured"
"""Annotation of a list that gpu-rules captured: the time. It has all objects of its kinds, apart from PARTIAL."""

PARTIAL = "gpurules.io/partial"
"""Annotation of such a list: a namespace, and the kinds of which it has only the objects there."""

_HANDLER: Kept = {"exec": {"command": None}, "httpGet": {"httpHeaders": {"value": None}}}

_CONTAINER: Kept = {
    "env": {"value": None},
    "command": None,
    "args": None,
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _HANDLER),
    "lifecycle": dict.fromkeys(("postStart", "preStop"), _HANDLER),
}

_METADATA: Kept = {"managedFields": None, "annotations": {LAST_APPLIED: None}}

POD: Kept = {
    "metadata": _METADATA,
    "spec": dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), _CONTAINER),
}
"""The values of a pod, or of a template, that are removed."""

_TEMPLATES: Mapping[str, MemberPath] = {
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "Workload": ("spec", "podSets", "template"),
    "ReplicationController": ("spec", "template"),
    "ControllerRevision": ("data", "spec", "template"),
}
"""The paths of the templates of pods in other kinds that are read; items of lists have no name."""

_REVISION: Kept = {
    "apiVersion": None,
    "kind": None,
    "metadata": None,
    "revision": None,
    "data": {"spec": {"template": None}},
}
"""The members that are kept of a ControllerRevision."""

_REDUCED: Mapping[str, Kept] = {
    "PersistentVolume": {
        "apiVersion": None,
        "kind": None,
        "metadata": {"name": None, "resourceVersion": None, "labels": None, "deletionTimestamp": None},
        "spec": dict.fromkeys(
            ("nodeAffinity", "claimRef", "storageClassName", "capacity", "accessModes", "volumeMode")
        ),
        "status": {"phase": None},
    },
    "ServiceAccount": {
        "apiVersion": None,
        "kind": None,
        "metadata": {"name": None, "namespace": None, "resourceVersion": None},
        "automountServiceAccountToken": None,
        "imagePullSecrets": None,
    },
    "StorageClass": {  # the parameters of some provisioners have keys
        "apiVersion": None,
        "kind": None,
        "metadata": {
            "name": None,
            "resourceVersion": None,
            "creationTimestamp": None,
            "annotations": {"storageclass.kubernetes.io/is-default-class": None},
        },
        "provisioner": None,
        "volumeBindingMode": None,
        "allowedTopologies": None,
    },
    OFFERS: {
        "apiVersion": None,
        "kind": None,
        "metadata": {"name": None, "resourceVersion": None},
        "spec": {"omitted": None},
    },
    "ConfigMap.cluster-autoscaler-status": {
        "apiVersion": None,
        "kind": None,
        "metadata": {"name": None, "namespace": None, "resourceVersion": None},
        "data": {"status": None},
    },
}
"""The members that are kept of kinds of which most is never read."""


def remove_values(item: Mapping[str, Json], kind: str) -> dict[str, Json]:
    """Return an object of the API without these values; a pod or pod template that had such a value is marked."""
    if kind in _REDUCED:
        return cast("dict[str, Json]", reduce_value(dict(item), _REDUCED[kind]))
    if kind == "Pod":
        return _without_pod_values(item)
    kept = cast("dict[str, Json]", without_fields(dict(item), {"metadata": _METADATA}, {}))
    if kind == "ControllerRevision":  # of other controllers, its data may be anything
        kept = cast("dict[str, Json]", reduce_value(kept, _REVISION))
    return _replace_at(kept, _TEMPLATES[kind]) if kind in _TEMPLATES else kept


def _without_pod_values(pod: Mapping[str, Json]) -> dict[str, Json]:
    removed = dict[str, None]()
    kept = cast("dict[str, Json]", without_fields(dict(pod), POD, removed))
    if removed:
        metadata = as_mapping(kept.get("metadata"))
        names = dict.fromkeys([*removed_values(kept), *removed])
        annotations = {**as_mapping(metadata.get("annotations")), MARK: ",".join(names)}
        kept["metadata"] = {**metadata, "annotations": annotations}
    return kept


def _replace_at(value: dict[str, Json], path: MemberPath) -> dict[str, Json]:
    """Return a value whose template at a path has lost its values."""
    name, *below = path
    member = value.get(name)
    if isinstance(member, list) and below:
        return {**value, name: [_replace_at(item, tuple(below)) for item in member if isinstance(item, dict)]}
    if not isinstance(member, dict):
        return value
    return {**value, name: _replace_at(member, tuple(below)) if below else _without_pod_values(member)}


def removed_values(pod: Mapping[str, Json]) -> Mapping[str, MemberPath]:
    """Return the paths of the values that were removed from a pod, by their names."""
    mark = text_member(as_mapping(as_mapping(pod.get("metadata")).get("annotations")), MARK)
    return {name: _POD_PATHS[name] for name in mark.split(",") if name in _POD_PATHS}


def without_mark(pod: Mapping[str, Json]) -> dict[str, Json]:
    """Return a pod as rules see it."""
    metadata = as_mapping(pod.get("metadata"))
    annotations = as_mapping(metadata.get("annotations"))
    if MARK not in annotations:
        return dict(pod)
    others: dict[str, Json] = {name: text for name, text in annotations.items() if name != MARK}
    if others or LAST_APPLIED in text_member(annotations, MARK):
        return {**pod, "metadata": {**metadata, "annotations": others}}
    # The pod had no annotations before, and rules may read their presence.
    return {**pod, "metadata": {name: member for name, member in metadata.items() if name != "annotations"}}


def field_paths(fields: Mapping[str, Kept]) -> Mapping[str, MemberPath]:
    """Return the paths of members that are None, by their names with dots."""
    return MappingProxyType({".".join(path): path for path in _paths(fields)})


def without_fields(value: Json, fields: Kept, found: dict[str, None], prefix: str = "") -> Json:
    """Return a value without some fields; the names of the removed fields are added to `found`."""
    if isinstance(value, list):
        return [without_fields(item, fields, found, prefix) for item in value]
    if not isinstance(value, dict) or fields is None or value.keys().isdisjoint(fields):
        return value
    kept: dict[str, Json] = {}
    for name, member in value.items():
        if name not in fields:
            kept[name] = member
        elif fields[name] is None:
            found[prefix + name] = None
        else:
            kept[name] = without_fields(member, fields[name], found, f"{prefix}{name}.")
    return kept


def _paths(fields: Mapping[str, Kept], *path: str) -> Iterator[MemberPath]:
    for name, below in fields.items():
        if below is None:
            yield *path, name
        else:
            yield from _paths(below, *path, name)


_POD_PATHS = field_paths(cast("Mapping[str, Kept]", POD))
