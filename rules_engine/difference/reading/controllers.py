"""Controllers of a live cluster: the pod templates of ReplicaSets, StatefulSets, DaemonSets and Jobs.

The templates are kept in a temporary file, since a large cluster has more than fit in memory.
"""

import os
from collections.abc import Mapping
from marshal import dumps, loads
from typing import Any

from msgspec import Struct

from rules_engine.difference.reading.spool import Spool
from rules_engine.model.json.lenient import Object, as_mapping, controller_reference, integer_member, text_member
from rules_engine.model.json.patch import Json

MAX_DECODED = 256
"""Controllers that are kept decoded: kubectl lists the pods of one controller next to each other."""

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
    """A controller or one revision of it: the outermost owner and the template of the pods."""

    owner: Owner
    template: dict[str, Any]


class Controllers:
    """The controllers that a first pass over the objects of a cluster found."""

    def __init__(self) -> None:
        self._file = Spool()
        self._places: dict[str, tuple[int, int]] = {}
        """Offset and size of each controller in the file."""
        self._decoded: dict[str, Controller] = {}

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def flush(self) -> None:
        """Write buffered controllers to the file, so that `of` finds them. Raises OSError if the disk is full."""
        self._file.flush()

    def take(self, item: dict[str, Json]) -> None:
        """Keep an object if it is a controller or a revision of one. Raises OSError if the disk is full."""
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
        if not key or not template:
            return
        # "$patch" instructs whoever restores the revision; it is not a member of the template.
        members = {name: member for name, member in template.items() if name != "$patch"}
        encoded = dumps((owner.kind, owner.name, members))
        self._places[key] = self._file.size, len(encoded)
        self._file.write(encoded)

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
        stored = self._decoded.get(key)
        place = self._places.get(key)
        if stored is not None or place is None:
            return stored
        at, size = place
        # Forked processes share the offset of the file.
        kind, name, template = loads(os.pread(self._file.fileno(), size, at))  # noqa: S302 - written by _keep
        stored = Controller(Owner(kind, name), template)
        if len(self._decoded) >= MAX_DECODED:
            self._decoded.clear()
        self._decoded[key] = stored
        return stored


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
