"""Controllers of a live cluster: the pod templates of ReplicaSets, StatefulSets, DaemonSets and Jobs."""

from collections.abc import Mapping

from msgspec import Struct

from rules_engine.model.json.lenient import Object, as_mapping, controller_reference, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ApiObject, PodObject

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

    @classmethod
    def of(cls, reference: Object) -> "Owner":
        return cls(text_member(reference, "kind"), text_member(reference, "name"))


class Controller(Struct, frozen=True):
    """A controller or one revision of it: the outermost owner, and the template."""

    owner: Owner
    template: Object


def find_controller(pod: PodObject) -> Controller | None:
    """Return the controller of a pod, in the revision that created the pod if it is known; None if not found."""
    reference = controller_reference(pod)
    if reference is None or not is_builtin_controller(reference):
        return None
    owner = Owner.of(reference)
    found = pod.cluster.find(owner.kind, owner.name, pod.namespace)
    revision = text_member(as_mapping(pod.metadata.get("labels")), REVISION_LABEL)
    template: Object = {}
    if found is not None and _is_same(found.metadata, reference):
        owner = Owner.of(controller_reference(found) or {"kind": owner.kind, "name": owner.name})
        template = as_mapping(found.spec.get("template"))
    # A StatefulSet writes the whole name of the revision, a DaemonSet only the hash at the end of the name.
    for name in (revision, f"{text_member(reference, 'name')}-{revision}") if revision else ():
        template = _revised_template(pod.cluster.find("ControllerRevision", name, pod.namespace), reference) or template
    return Controller(owner, template) if template else None


def _revised_template(revision: ApiObject | None, reference: Object) -> Object:
    """Return the template of a revision of the controller to which a pod refers; an empty one if it is none."""
    owner = None if revision is None else controller_reference(revision)
    if revision is None or owner is None or Owner.of(owner) != Owner.of(reference) or not _is_same(owner, reference):
        return {}
    return as_mapping(as_mapping(as_mapping(revision.get("data")).get("spec")).get("template"))


def _is_same(one: Object, other: Object) -> bool:
    """Return False for the uids of two objects; the one of an inventory may have none."""
    uids = {text_member(one, "uid"), text_member(other, "uid")} - {""}
    return len(uids) < 2


def is_builtin_controller(reference: Object) -> bool:
    """Return True for a reference to a built-in controller: other groups have equal kinds."""
    kind = text_member(reference, "kind")
    version: Json = reference.get("apiVersion", "")
    return kind in _GROUPS and (not version or str(version).rpartition("/")[0] == _GROUPS[kind])
