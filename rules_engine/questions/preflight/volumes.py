"""Volume claims of pods: the PersistentVolumes that they have, or that may be bound to them.

Sources: kubernetes/pkg/scheduler/framework/plugins/volumebinding/{volume_binding,binder}.go (podHasPVCs,
checkBoundClaims, checkVolumeProvisions); component-helpers/storage/volume/pv_helpers.go (FindMatchingVolume);
plugin/pkg/admission/storage/storageclass/setdefault/admission.go.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from rules_engine.cluster.creation.pod_creation import read_amounts
from rules_engine.cluster.scheduling.bound_volumes import find_bound, node_selector, owner_of, users_of
from rules_engine.cluster.scheduling.preferences import ZONE
from rules_engine.cluster.scheduling.requirements import POD_VOLUME, read_selector
from rules_engine.cluster.scheduling.scheduling import NO_VOLUME, UNBOUND_CLAIMS
from rules_engine.model.json.lenient import (
    Object,
    as_list,
    as_mapping,
    as_string_map,
    integer_member,
    object_items,
    text_member,
)
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, once
from rules_engine.model.wording import join_names
from rules_engine.questions.simulate.admission import Template

NO_PROVISIONER = "kubernetes.io/no-provisioner"
MAX_CANDIDATES = 1000
"""PersistentVolumes that may be bound to one claim: each is looked at on each node for each pod."""

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def with_volumes(pod: Object, template: Template, objects: ClusterObjects) -> Object:
    """Return a pod of a template with POD_VOLUME in place of its claims, the smallest first, as they are bound.

    Further members: `size`: what the claim requests, in bytes; `note`: what has to provision the volume, in one of
    several `zones`; `unknown`: what is not known of it.
    """
    spec = as_mapping(pod.get("spec"))
    found = [(volume, _find_volume(volume, template, objects)) for volume in object_items(spec.get("volumes"))]
    found.sort(key=lambda each: integer_member(each[1] or {}, "size"))
    volumes: list[Json] = [
        {**volume} if each is None else {"name": volume.get("name"), POD_VOLUME: each} for volume, each in found
    ]
    return {**pod, "spec": {**spec, "volumes": volumes}} if volumes else pod


def found_volumes(pod: Object) -> Sequence[Object]:
    """Return what is found for the claims of a pod."""
    volumes = object_items(as_mapping(pod.get("spec")).get("volumes"))
    return [as_mapping(volume[POD_VOLUME]) for volume in volumes if POD_VOLUME in volume]


def unknown_volumes(pods: Sequence[Object]) -> Iterator[str]:
    """Yield what is not known of the volumes of a workload's pods."""
    found = [each for pod in pods for each in found_volumes(pod)]
    shared = Counter(text_member(each, "claim") for each in found)
    for each in found:
        claim = text_member(each, "claim")
        if "unknown" in each:
            yield text_member(each, "unknown")
        elif claim and shared[claim] > 1 and each.get("zones"):
            yield f"zone of volume claim {claim}, which several pods have"


def _find_volume(volume: Object, template: Template, objects: ClusterObjects) -> dict[str, Json] | None:
    """Return what is found for a pod's volume; None without a claim."""
    name = text_member(volume, "name")
    if "ephemeral" in volume:
        made = as_mapping(as_mapping(volume["ephemeral"]).get("volumeClaimTemplate"))
        return _find_unbound(made, name, "", f"ephemeral volume {name}", objects)
    if "persistentVolumeClaim" not in volume:
        return None
    claim_name = text_member(as_mapping(volume["persistentVolumeClaim"]), "claimName")
    key, claim = f"{template.namespace}/{claim_name}", template.claims.get(name)
    title = f"volume claim {key}" if claim is None else f"volume claim {name} of the StatefulSet"
    found = objects.find("PersistentVolumeClaim", claim_name, template.namespace)
    if found is None and objects.unread("PersistentVolumeClaim", template.namespace):
        why = "which was not read" if claim is None else "which may exist already: persistentvolumeclaims were not read"
        return {"unknown": f"{title}, {why}"}
    if found is not None and (users := users_of(found)):
        return {"unknown": f"{title}, which is for one pod at a time, and {join_names(users)} use it"}
    claim = found or claim
    if claim is None or as_mapping(claim.get("metadata")).get("deletionTimestamp") is not None:
        why = f'persistentvolumeclaim "{claim_name}" {"not found" if claim is None else "is being deleted"}'
        return {"claim": key, "candidates": {}, "otherwise": why}
    if not text_member(as_mapping(claim.get("spec")), "volumeName"):
        return _find_unbound(claim, name, key, title, objects)
    return find_bound(claim, key, objects)


def _find_unbound(claim: Object, volume: str, key: str, title: str, objects: ClusterObjects) -> dict[str, Json]:
    """Return what may be bound to a claim. `key`: namespace/name, or "" for one that only one pod has."""
    spec = as_mapping(claim.get("spec"))
    name = _class_name(spec, objects)
    storage_class: Object = objects.find("StorageClass", name or "") or {}
    if name != "" and not storage_class and objects.unread("StorageClass"):
        return {"unknown": f"{f'StorageClass {name}' if name else 'default class'} of {title}, which was not read"}
    provisions = text_member(storage_class, "provisioner") not in ("", NO_PROVISIONER)
    if not provisions and objects.unread("PersistentVolume"):
        return {"unknown": f"PersistentVolumes for {title}, which were not read"}
    owners = {"", key}
    volumes = [each for each in _available(objects) if owner_of(each) in owners and _matches(each, spec, name or "")]
    candidates = {each.name: node_selector(each) for each in sorted(volumes, key=lambda each: not owner_of(each))}
    if len(candidates) > MAX_CANDIDATES:
        return {"unknown": f"{title}, for which there are more than {MAX_CANDIDATES:,} volumes"}
    size = _storage(as_mapping(spec.get("resources")).get("requests"))
    found: dict[str, Json] = {"claim": key, "candidates": candidates, "otherwise": NO_VOLUME, "size": size}
    if provisions:
        topologies = [
            [{**each, "operator": "In"} for each in object_items(term.get("matchLabelExpressions"))]
            for term in object_items(storage_class.get("allowedTopologies"))
        ]
        terms: list[Json] = [{"matchExpressions": [*each]} for each in topologies]
        candidates[""] = {"nodeSelectorTerms": terms} if terms else None
        zones = {as_mapping(node.metadata.get("labels")).get(ZONE) for node in objects.nodes}
        found |= {"note": f"StorageClass {name} has to provision volume {volume}", "zones": len(zones) > 1}
    if text_member(storage_class, "volumeBindingMode") != "WaitForFirstConsumer":
        found["otherwise"] = UNBOUND_CLAIMS
        if found.get("zones") or len({*map(str, candidates.values())}) > 1:
            found["unknown"] = f"zone of {title}, which is bound before the pod has a node"
    return found


@once
def _available(objects: ClusterObjects) -> Sequence[ApiObject]:
    """Return the PersistentVolumes that are not bound yet, the smallest first."""
    volumes = [each for each in objects.of("PersistentVolume") if text_member(each.status, "phase") == "Available"]
    return sorted(volumes, key=lambda each: (_storage(each.spec.get("capacity")), each.name))


def _class_name(spec: Object, objects: ClusterObjects) -> str | None:
    """Return the name of a claim's StorageClass, by default the newest default class; None if there is no default."""
    if "storageClassName" in spec:
        return text_member(spec, "storageClassName")
    classes = sorted(objects.of("StorageClass"), key=lambda each: each.name)
    defaults = [each for each in classes if as_mapping(each.metadata.get("annotations")).get(DEFAULT_CLASS) == "true"]
    return max(defaults, key=lambda each: text_member(each.metadata, "creationTimestamp")).name if defaults else None


def _matches(volume: ApiObject, spec: Object, class_name: str) -> bool:
    """Return True if an available PersistentVolume can be bound to a claim."""
    own, selector = volume.spec, read_selector(spec.get("selector"))
    modes = [text_member(each, "volumeMode") or "Filesystem" for each in (own, spec)]
    return (
        volume.metadata.get("deletionTimestamp") is None
        and text_member(own, "storageClassName") == class_name
        and modes[0] == modes[1]
        and _storage(own.get("capacity")) >= _storage(as_mapping(spec.get("resources")).get("requests"))
        and all(mode in as_list(own.get("accessModes")) for mode in as_list(spec.get("accessModes")))
        and (selector is None or selector.matches(as_string_map(volume.metadata.get("labels"))))
    )


def _storage(amounts: Json) -> int:
    storage = read_amounts(amounts).get("storage")
    return storage.whole if storage else 0
