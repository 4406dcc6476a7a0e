"""Labels, names and other members that controllers add to the pod of a template.

Sources: kubernetes/pkg/registry/batch/job/strategy.go (generateSelector), pkg/controller/job/job_controller.go
(manageJob), pkg/controller/deployment/sync.go (getNewReplicaSet), pkg/controller/statefulset/stateful_set_utils.go
(newStatefulSetPod), pkg/controller/daemon/util/daemonset_util.go (CreatePodTemplate).
"""

import json
from hashlib import sha256
from uuid import NAMESPACE_URL, uuid5

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
from rules_engine.model.kubernetes.api_defaults import with_containers

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
TEMPLATE_HASH = "pod-template-hash"
POD_INDEX = "apps.kubernetes.io/pod-index"
POD_NAME = "statefulset.kubernetes.io/pod-name"
ORDINAL_LABELS = (COMPLETION_INDEX, POD_INDEX, POD_NAME)
"""Labels that differ between the pods of one template."""

_REVISION = "controller-revision-hash"
_FINALIZER = "batch.kubernetes.io/job-tracking"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_HASH_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"


def created_pod(kind: str, root: Object, pod: dict[str, Json], owner: str) -> dict[str, Json]:
    """Return the first pod that Kubernetes' controller of an object submits. `owner`: the object's name.

    Random parts, such as the hash of a template, are stand-ins: equal for equal templates.
    """
    metadata = {name: value for name, value in as_mapping(pod.get("metadata")).items() if name != "name"}
    made: dict[str, Json] = {**pod, "metadata": {**metadata, "generateName": f"{owner}-"}}
    match kind:
        case "Job":
            made = _of_job(root, made, owner)
        case "CronJob":
            # The name of a Job ends in the minute for which it was planned.
            name, template = f"{owner}-00000000", as_mapping(as_mapping(root.get("spec")).get("jobTemplate"))
            made = _of_job({"spec": template.get("spec")}, _with_metadata(made, generateName=f"{name}-"), name)
        case "Deployment":
            digest = _hash(made)
            made = _with_labels(_with_metadata(made, generateName=f"{owner}-{digest}-"), {TEMPLATE_HASH: digest})
        case "StatefulSet":
            made = _of_stateful_set(root, made, owner)
        case "DaemonSet":
            generation = str(integer_member(as_mapping(root.get("metadata")), "generation", 1))
            made = _with_labels(made, {_REVISION: _hash(pod), "pod-template-generation": generation})
    return _with_owner(kind, root, made, owner)


def _of_job(root: Object, pod: dict[str, Json], owner: str) -> dict[str, Json]:
    spec = as_mapping(root.get("spec"))
    if spec.get("manualSelector") is not True:
        uid = _uid("Job", root, owner)
        labels = {"job-name": owner, "batch.kubernetes.io/job-name": owner}
        labels |= {"controller-uid": uid, "batch.kubernetes.io/controller-uid": uid}
        pod = _with_labels(pod, {**labels, **as_string_map(as_mapping(pod["metadata"]).get("labels"))})
    finalizers = as_list(as_mapping(pod["metadata"]).get("finalizers"))
    if _FINALIZER not in finalizers:
        pod = _with_metadata(pod, finalizers=[*finalizers, _FINALIZER])
    if spec.get("completionMode") != "Indexed":
        return pod
    indexed = {**pod, "spec": with_containers(as_mapping(pod.get("spec")), _with_index)}
    return with_ordinal(_with_labels(indexed, {COMPLETION_INDEX: ""}), f"{owner}-0")


def _with_index(_member: str, container: Object) -> Json:
    """Return a container with the variable of the completion index."""
    field: Json = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    variables = as_list(container.get("env"))
    if any(text_member(each, "name") == _INDEX_VARIABLE for each in object_items(variables)):
        return {**container}
    return {**container, "env": [*variables, {"name": _INDEX_VARIABLE, "valueFrom": field}]}


def _of_stateful_set(root: Object, pod: dict[str, Json], owner: str) -> dict[str, Json]:
    spec = as_mapping(root.get("spec"))
    name = f"{owner}-0"
    pod = _with_labels(pod, {_REVISION: f"{owner}-{_hash(pod)}", POD_NAME: name, POD_INDEX: "0"})
    claims = claim_templates(root)
    volumes: list[Json] = [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in claims
    ]
    own = as_mapping(pod.get("spec"))
    others = [{**each} for each in object_items(own.get("volumes")) if text_member(each, "name") not in claims]
    added: dict[str, Json] = {"volumes": [*volumes, *others]} if claims else {}
    service = text_member(spec, "serviceName")
    return with_ordinal({**pod, "spec": {**own, **added, **({"subdomain": service} if service else {})}}, name)


def claim_templates(root: Object) -> dict[str, Object]:
    """Return the claims that a StatefulSet makes for each of its pods, by name."""
    claims = object_items(as_mapping(root.get("spec")).get("volumeClaimTemplates"))
    return {text_member(as_mapping(claim.get("metadata")), "name"): claim for claim in claims}


def has_ordinal(pod: Object) -> bool:
    """Return True if the pods of a template differ by their ordinals."""
    labels = as_mapping(as_mapping(pod.get("metadata")).get("labels"))
    return COMPLETION_INDEX in labels or POD_INDEX in labels


def with_ordinal(pod: Object, name: str) -> dict[str, Json]:
    """Return the pod of a template with a name; if it ends in an ordinal, with what depends on it."""
    metadata, spec = dict(as_mapping(pod.get("metadata"))), dict(as_mapping(pod.get("spec")))
    labels, index = dict(as_mapping(metadata.get("labels"))), name.rpartition("-")[2]
    if COMPLETION_INDEX in labels:
        metadata["generateName"] = f"{name}-"
        metadata["annotations"] = {**as_mapping(metadata.get("annotations")), COMPLETION_INDEX: index}
        labels[COMPLETION_INDEX] = index
    else:
        metadata["name"] = name
    if POD_INDEX in labels:
        first = text_member(labels, POD_NAME)
        labels |= {POD_NAME: name, POD_INDEX: index}
        volumes: list[Json] = [_of_ordinal(each, first, name) for each in object_items(spec.get("volumes"))]
        if volumes:
            spec["volumes"] = volumes
    if has_ordinal(pod):
        metadata["labels"] = labels
        spec["hostname"] = name
    return {**pod, "metadata": metadata, "spec": spec}


def _of_ordinal(volume: Object, first: str, name: str) -> Json:
    """Return a volume of a StatefulSet's pod in place of the first pod's: its claim ends in the pod's name."""
    claim = text_member(as_mapping(volume.get("persistentVolumeClaim")), "claimName")
    if claim != f"{text_member(volume, 'name')}-{first}":
        return {**volume}
    return {**volume, "persistentVolumeClaim": {"claimName": claim.removesuffix(first) + name}}


def _with_metadata(pod: dict[str, Json], **members: Json) -> dict[str, Json]:
    return {**pod, "metadata": {**as_mapping(pod.get("metadata")), **members}}


def _with_labels(pod: dict[str, Json], labels: Object) -> dict[str, Json]:
    return _with_metadata(pod, labels={**as_mapping(as_mapping(pod.get("metadata")).get("labels")), **labels})


def _with_owner(kind: str, root: Object, pod: dict[str, Json], owner: str) -> dict[str, Json]:
    """Return a pod with the reference to its controller, which may be one that the object's controller creates."""
    metadata = as_mapping(pod["metadata"])
    prefix = text_member(metadata, "generateName")[:-1]
    owner_kind = {"Deployment": "ReplicaSet", "CronJob": "Job"}.get(kind, kind)
    reference: dict[str, Json] = {
        "apiVersion": text_member(root, "apiVersion"),
        "kind": owner_kind,
        "name": owner if owner_kind == kind else prefix,
        "uid": _uid(owner_kind, root, owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return _with_metadata(pod, ownerReferences=[reference])


def _uid(kind: str, root: Object, owner: str) -> str:
    """Return the uid of an object, else a stand-in."""
    metadata = as_mapping(root.get("metadata"))
    own = text_member(metadata, "uid") if text_member(root, "kind") == kind else ""
    return own or str(uuid5(NAMESPACE_URL, f"{kind}/{text_member(metadata, 'namespace')}/{owner}"))


def _hash(pod: Object) -> str:
    """Return a stand-in for the hash of a template: ten characters that the API server uses in such names."""
    digest = sha256(json.dumps(pod, sort_keys=True).encode()).digest()
    return "".join(_HASH_CHARACTERS[byte % len(_HASH_CHARACTERS)] for byte in digest[:10])
