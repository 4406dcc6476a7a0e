"""Values of objects that are never kept: they often hold secrets, or are of no use."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import LAST_APPLIED, Kept, keep_at, merge_fields, reduce_value
from rules_engine.model.kubernetes.native_objects import OFFERS

Path: TypeAlias = tuple[str, ...]
"""The names of a member and of those that contain it; items of lists have no name."""

MARK = "gpurules.io/removed-values"
"""Annotation of a pod whose values were removed: their names, joined by commas. Rules do not see it."""

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

_OBJECT: Kept = merge_fields({"metadata": _METADATA}, keep_at(("spec", "template"), POD))

_REMOVED: Mapping[str, Kept] = {
    "Pod": POD,
    "CronJob": merge_fields({"metadata": _METADATA}, keep_at(("spec", "jobTemplate", "spec", "template"), POD)),
    "ControllerRevision": merge_fields({"metadata": _METADATA}, keep_at(("data", "spec", "template"), POD)),
    "ConfigMap": {"metadata": _METADATA, "data": None, "binaryData": None},
    "Secret": {"metadata": _METADATA, "data": None, "stringData": None},
}
"""The values that are removed, by kind; of other kinds, those of a template in the spec."""

_CUSTOM_RESOURCES: Mapping[str, Kept] = {
    OFFERS: {"apiVersion": None, "kind": None, "metadata": {"name": None}, "spec": {"omitted": None}},
}
"""The members that are kept of custom resources."""


def remove_values(item: Mapping[str, Json], kind: str) -> dict[str, Json]:
    """Return an object of the API without these values; a pod that had one is marked."""
    if kind in _CUSTOM_RESOURCES:
        return cast("dict[str, Json]", reduce_value(dict(item), _CUSTOM_RESOURCES[kind]))
    found = dict[str, None]()
    kept = cast("dict[str, Json]", without_fields(dict(item), _REMOVED.get(kind, _OBJECT), found))
    if kind == "Pod" and found:
        metadata = as_mapping(kept.get("metadata"))
        names = dict.fromkeys([*found, *removed_values(kept)])
        annotations = {**as_mapping(metadata.get("annotations")), MARK: ",".join(names)}
        kept["metadata"] = {**metadata, "annotations": annotations}
    return kept


def removed_values(pod: Mapping[str, Json]) -> Mapping[str, Path]:
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
    # Most pods had no annotations before; rules may read their presence.
    kept = {name: member for name, member in metadata.items() if name != "annotations"}
    return {**pod, "metadata": {**kept, "annotations": others} if others else kept}


def field_paths(fields: Mapping[str, Kept]) -> Mapping[str, Path]:
    """Return the paths of members that are None, by their names with dots."""
    return MappingProxyType({".".join(path): path for path in _paths(fields)})


def without_fields(value: Json, fields: Kept, found: dict[str, None], prefix: str = "") -> Json:
    """Return a value without some fields; the names of those that it has are added to `found`."""
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


def _paths(fields: Mapping[str, Kept], *path: str) -> Iterator[Path]:
    for name, below in fields.items():
        if below is None:
            yield *path, name
        else:
            yield from _paths(below, *path, name)


_POD_PATHS = field_paths(cast("Mapping[str, Kept]", POD))
