"""Volume claims of pods: bound ones become the node affinity of their volumes, others are unknown.

Source: kubernetes/pkg/scheduler/framework/plugins/volumebinding/binder.go (checkBoundClaims).
"""

from collections.abc import Sequence

from rules_engine.cluster.scheduling.requirements import BOUND_VOLUME
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects


def with_volumes(pod: Object, namespace: str, objects: ClusterObjects) -> Object:
    """Return a pod of a namespace with the volumes of its bound claims in place of the claims."""
    spec = as_mapping(pod.get("spec"))
    found = [(volume, _find_volume(volume, namespace, objects)) for volume in object_items(spec.get("volumes"))]
    volumes: list[Json] = [
        {**volume} if isinstance(bound, str) else {"name": volume.get("name"), BOUND_VOLUME: {**bound}}
        for volume, bound in found
    ]
    return {**pod, "spec": {**spec, "volumes": volumes}} if volumes else pod


def unknown_claims(pod: Object, namespace: str, objects: ClusterObjects) -> Sequence[str]:
    """Return the claims of a pod that have no known volume, each with the reason."""
    volumes = object_items(as_mapping(pod.get("spec")).get("volumes"))
    found = [_find_volume(volume, namespace, objects) for volume in volumes]
    return [reason for reason in found if isinstance(reason, str) and reason]


def _find_volume(volume: Object, namespace: str, objects: ClusterObjects) -> Object | str:
    """Return the spec of the PersistentVolume of a pod's volume; else why it is not known, or "" without a claim."""
    if "ephemeral" in volume:
        return f"volume claim of the ephemeral volume {text_member(volume, 'name')}, which does not exist yet"
    if "persistentVolumeClaim" not in volume:
        return ""
    name = text_member(as_mapping(volume["persistentVolumeClaim"]), "claimName")
    title, claim = f"claim {namespace}/{name}", objects.find("PersistentVolumeClaim", name, namespace)
    if claim is None:
        return f"volume {title}, which was not read"
    if claim.metadata.get("deletionTimestamp") is not None:
        return f"volume {title}, which is being deleted"
    bound = objects.find("PersistentVolume", text_member(claim.spec, "volumeName"))
    owner = as_mapping(bound.spec.get("claimRef")) if bound else {"namespace": namespace, "name": name}
    is_bound = claim.spec.get("volumeName") and text_member(claim.status, "phase") == "Bound"
    if not is_bound or (owner.get("namespace"), owner.get("name")) != (namespace, name):
        return f"volume {title}, which is not bound"
    return bound.spec if bound else f"volume of {title}, which was not read"
