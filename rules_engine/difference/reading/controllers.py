"""Controllers of a live cluster: the pod templates of ReplicaSets, StatefulSets, DaemonSets and Jobs.

The templates are kept in a temporary file, since a large cluster has more than fit in memory.
"""

import os
from collections.abc import Mapping
from marshal import dumps, loads
from typing import Any

from msgspec import Struct

from rules_engine.difference.reading.spool import Spool
from rules_engine.model.json.lenient import Object, controller, integer, mapping, text
from rules_engine.model.json.patch import Json

MAX_DECODED = 256
"""Controllers that are remembered decoded: kubectl lists the pods of one next to each other."""

_GROUPS: Mapping[str, str] = {
    "DaemonSet": "apps",
    "Job": "batch",
    "ReplicaSet": "apps",
    "ReplicationController": "",
    "StatefulSet": "apps",
}
"""Kinds that create pods of a template, with their API groups."""

REVISION_LABEL = "controller-revision-hash"
"""The label of a pod with the revision of its StatefulSet or DaemonSet (apps/v1, ControllerRevisionHashLabelKey)."""


class Owner(Struct, frozen=True):
    """The kind and name of the object that owns pods, for their line: the Deployment of a ReplicaSet."""

    kind: str
    name: str


class Controller(Struct, frozen=True):
    """A controller, or one revision of it: its outermost owner and the template of its pods."""

    owner: Owner
    template: dict[str, Any]


class Controllers:
    """The controllers that a first pass over the objects of a cluster found."""

    def __init__(self) -> None:
        self._file = Spool()
        self._places: dict[str, tuple[int, int]] = {}
        """Offset and size of each one in the file."""
        self._decoded: dict[str, Controller] = {}

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def flush(self) -> None:
        """Write all that is kept to the file, so that `of` finds it. Raises OSError if the disk is full."""
        self._file.flush()

    def take(self, item: dict[str, Json]) -> None:
        """Keep an object if it is a controller, or a revision of one. Raises OSError if the disk is full."""
        kind = text(item, "kind")
        metadata = mapping(item.get("metadata"))
        if kind == "ControllerRevision":
            owner = controller(item)
            template = mapping(mapping(mapping(item.get("data")).get("spec")).get("template"))
            if owner is not None:
                self._keep(_revision(text(owner, "uid"), text(metadata, "name")), _owner_of(owner), template)
        elif is_controller(item, kind) and not _is_scaled_down(item):
            above = controller(item)
            owner = above if above is not None else {"kind": kind, "name": text(metadata, "name")}
            template = mapping(mapping(item.get("spec")).get("template"))
            self._keep(text(metadata, "uid"), _owner_of(owner), template)

    def _keep(self, key: str, owner: Owner, template: Object) -> None:
        if not key or not template:
            return
        # "$patch" is an instruction to who restores the revision, and no member of a template.
        members = {name: member for name, member in template.items() if name != "$patch"}
        written = dumps((owner.kind, owner.name, members))
        self._places[key] = self._file.size, len(written)
        self._file.write(written)

    def of(self, pod: dict[str, Json]) -> Controller | None:
        """Return the controller of a pod, in the revision that created the pod if that is known; None if it is not."""
        owner = controller(pod)
        if owner is None:
            return None
        uid = text(owner, "uid")
        own = self._found(uid)
        revision = text(mapping(mapping(pod.get("metadata")).get("labels")), REVISION_LABEL)
        # A StatefulSet writes the whole name of the revision, a DaemonSet only the hash at its end.
        for name in (revision, f"{text(owner, 'name')}-{revision}") if revision else ():
            found = self._found(_revision(uid, name))
            if found is not None:
                return found if own is None else Controller(own.owner, found.template)
        return own

    def _found(self, key: str) -> Controller | None:
        found = self._decoded.get(key)
        place = self._places.get(key)
        if found is not None or place is None:
            return found
        at, size = place
        # Forked processes share the offset of the file.
        kind, name, template = loads(os.pread(self._file.fileno(), size, at))  # noqa: S302 - written by _keep
        found = Controller(Owner(kind, name), template)
        if len(self._decoded) >= MAX_DECODED:
            self._decoded.clear()
        self._decoded[key] = found
        return found


def _owner_of(reference: Object) -> Owner:
    return Owner(text(reference, "kind"), text(reference, "name"))


def _revision(uid: str, name: str) -> str:
    return f"{uid}/{name}" if uid else ""


def is_controller(item: Object, kind: str) -> bool:
    """Return True for an object or a reference of Kubernetes' own controllers: other groups have equal kinds."""
    version: Json = item.get("apiVersion", "")
    return kind in _GROUPS and (not version or str(version).rpartition("/")[0] == _GROUPS[kind])


def _is_scaled_down(item: Object) -> bool:
    """Return True for a ReplicaSet without pods: a Deployment keeps ten of them."""
    spec, status = mapping(item.get("spec")), mapping(item.get("status"))
    return text(item, "kind") == "ReplicaSet" and not integer(spec, "replicas", 1) and not integer(status, "replicas")
