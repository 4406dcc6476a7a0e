"""Controllers of a live cluster: the pod templates of ReplicaSets, StatefulSets, DaemonSets and Jobs."""

from collections.abc import Mapping
from marshal import dumps, loads
from typing import Any

from msgspec import Struct

from rules_engine.model.json.lenient import (
    Object,
    as_mapping,
    controller_reference,
    integer_member,
    object_items,
    text_member,
)
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.pod_defaults import CONTAINER_LISTS

_GROUPS: Mapping[str, str] = {
    "DaemonSet": "apps",
    "Job": "batch",
    "ReplicaSet": "apps",
    "ReplicationController": "",
    "StatefulSet": "apps",
}
"""Kinds that create pods from a template, with their API groups."""

REVISION_LABEL = "controller-revision-hash"
"""The label of a pod with the revision of its StatefulSet or DaemonSet (apps/v1, ControllerRevisionHashLabelKey)."""


class Owner(Struct, frozen=True):
    """The kind and name of the object that owns pods, such as the Deployment of a ReplicaSet."""

    kind: str
    name: str


class Controller(Struct, frozen=True):
    """A controller or one revision of it: the outermost owner, and the members of its template that pods lose."""

    owner: Owner
    template: dict[str, Any]


class Controllers:
    """The controllers that a first pass over the objects of a cluster found."""

    def __init__(self) -> None:
        self._encoded: dict[str, bytes] = {}
        """Encoded, since a large cluster has a hundred thousand templates."""

    def take(self, item: dict[str, Json]) -> None:
        """Keep an object if it is a controller or a revision of one."""
        kind = text_member(item, "kind")
        metadata = as_mapping(item.get("metadata"))
        if kind == "ControllerRevision":
            owner = controller_reference(item)
            template = as_mapping(as_mapping(as_mapping(item.get("data")).get("spec")).get("template"))
            if owner is not None:
                self._keep(
                    _revision_key(text_member(owner, "uid"), text_member(metadata, "name")), _owner_of(owner), template
                )
        elif is_builtin_controller(item, kind) and not _is_scaled_down(item):
            above = controller_reference(item)
            owner = above if above is not None else {"kind": kind, "name": text_member(metadata, "name")}
            template = as_mapping(as_mapping(item.get("spec")).get("template"))
            self._keep(text_member(metadata, "uid"), _owner_of(owner), template)

    def _keep(self, key: str, owner: Owner, template: Object) -> None:
        if key and template:
            self._encoded[key] = dumps((owner.kind, owner.name, _restored_members(template)))

    def of(self, pod: dict[str, Json]) -> Controller | None:
        """Return the controller of a pod, in the revision that created the pod if it is known; None if not found."""
        owner = controller_reference(pod)
        if owner is None:
            return None
        uid = text_member(owner, "uid")
        current = self._find(uid)
        revision = text_member(as_mapping(as_mapping(pod.get("metadata")).get("labels")), REVISION_LABEL)
        # A StatefulSet writes the whole name of the revision, a DaemonSet only the hash at the end of the name.
        for name in (revision, f"{text_member(owner, 'name')}-{revision}") if revision else ():
            revised = self._find(_revision_key(uid, name))
            if revised is not None:
                return revised if current is None else Controller(current.owner, revised.template)
        return current

    def _find(self, key: str) -> Controller | None:
        encoded = self._encoded.get(key)
        if encoded is None:
            return None
        kind, name, template = loads(encoded)  # noqa: S302 - written by _keep
        return Controller(Owner(kind, name), template)


def _restored_members(template: Object) -> dict[str, Json]:
    """Return the members of a template that `restore_from_template` reads."""
    metadata, spec = as_mapping(template.get("metadata")), as_mapping(template.get("spec"))
    kept: dict[str, Json] = {name: spec[name] for name in ("nodeName", "resources") if name in spec}
    for member in CONTAINER_LISTS:
        kept[member] = [
            {name: each[name] for name in ("name", "resources", "restartPolicy") if name in each}
            for each in object_items(spec.get(member))
        ]
    return {
        "metadata": {name: metadata[name] for name in ("annotations", "labels") if name in metadata},
        "spec": kept,
    }


def _owner_of(reference: Object) -> Owner:
    return Owner(text_member(reference, "kind"), text_member(reference, "name"))


def _revision_key(uid: str, name: str) -> str:
    return f"{uid}/{name}" if uid else ""


def is_builtin_controller(item: Object, kind: str) -> bool:
    """Return True for an object of, or a reference to, a built-in controller: other groups have equal kinds."""
    version: Json = item.get("apiVersion", "")
    return kind in _GROUPS and (not version or str(version).rpartition("/")[0] == _GROUPS[kind])


def _is_scaled_down(item: Object) -> bool:
    """Return True for a ReplicaSet without pods: a Deployment keeps up to ten old ReplicaSets."""
    spec, status = as_mapping(item.get("spec")), as_mapping(item.get("status"))
    return (
        text_member(item, "kind") == "ReplicaSet"
        and not integer_member(spec, "replicas", 1)
        and not integer_member(status, "replicas")
    )
