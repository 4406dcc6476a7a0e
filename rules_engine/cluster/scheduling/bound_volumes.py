"""Volumes that are bound to the claims of pods, the nodes that reach them, and the pods that use them."""

from collections.abc import Mapping, Sequence

from rules_engine.cluster.scheduling.requirements import POD_VOLUME
from rules_engine.cluster.scheduling.scheduling import OTHER_VOLUME_NODE
from rules_engine.model.json.lenient import Object, as_list, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, PodObject, once


def find_bound(claim: Object, key: str, objects: ClusterObjects) -> dict[str, Json]:
    """Return the volume of a claim that names one, as POD_VOLUME, or what is `unknown` of it; `key`: namespace/name."""
    volume_name = text_member(as_mapping(claim.get("spec")), "volumeName")
    bound = objects.find("PersistentVolume", volume_name)
    if text_member(as_mapping(claim.get("status")), "phase") != "Bound":
        return {"unknown": f"volume claim {key}, which is not bound"}
    if bound and owner_of(bound) != key:
        owner = f"the claimRef {owner_of(bound)}" if owner_of(bound) else "no claimRef"
        return {"unknown": f"volume claim {key}, whose PersistentVolume {volume_name} has {owner}"}
    if bound is None:
        return {"unknown": f"volume of claim {key}, which was not read"}
    return {"claim": key, "candidates": {"": node_selector(bound)}, "otherwise": OTHER_VOLUME_NODE}


def node_selector(volume: ApiObject) -> Json:
    """Return the node selector of a PersistentVolume; None for all nodes."""
    return as_mapping(volume.spec.get("nodeAffinity")).get("required")


def owner_of(volume: ApiObject) -> str:
    """Return the claim of a PersistentVolume as namespace/name; "" if it has none."""
    owner = as_mapping(volume.spec.get("claimRef"))
    return f"{text_member(owner, 'namespace')}/{text_member(owner, 'name')}" if owner else ""


def with_bound_volumes(pod: PodObject) -> Object:
    """Return a pod with POD_VOLUME in place of the claims whose bound volumes were read."""
    volumes: list[Json] = []
    for volume in object_items(pod.spec.get("volumes")):
        name = text_member(as_mapping(volume.get("persistentVolumeClaim")), "claimName")
        claim = pod.cluster.find("PersistentVolumeClaim", name, pod.namespace)
        found = {} if claim is None else find_bound(claim, f"{pod.namespace}/{name}", pod.cluster)
        volumes.append({"name": name, POD_VOLUME: found} if "candidates" in found else {**volume})
    return {**pod, "spec": {**pod.spec, "volumes": volumes}} if volumes else pod


def claim_names(pod: PodObject) -> Sequence[str]:
    """Return the names of a pod's volume claims, including those of its ephemeral volumes."""
    names = [
        f"{pod.name}-{text_member(volume, 'name')}"
        if "ephemeral" in volume
        else text_member(as_mapping(volume.get("persistentVolumeClaim")), "claimName")
        for volume in object_items(pod.spec.get("volumes"))
    ]
    return [*dict.fromkeys(filter(None, names))]


@once
def _users_of_claims(cluster: ClusterObjects) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the pods on nodes by the namespace and the name of their claims."""
    users: dict[tuple[str, str], list[str]] = {}
    for pod in (pod for node in cluster.nodes for pod in cluster.pods_on(node.name)):
        for name in claim_names(pod):
            users.setdefault((pod.namespace, name), []).append(f"{pod.namespace}/{pod.name}")
    return users


def users_of(claim: ApiObject) -> Sequence[str]:
    """Return the pods on nodes that use a claim which only one pod at a time may use (ReadWriteOncePod)."""
    if "ReadWriteOncePod" not in as_list(claim.spec.get("accessModes")):
        return ()
    return _users_of_claims(claim.cluster).get((claim.namespace, claim.name), ())
