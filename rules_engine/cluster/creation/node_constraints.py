"""Plugins that decide on which nodes a pod may run.

Sources: kubernetes/plugin/pkg/admission, admission.go in podnodeselector (Admit), defaulttolerationseconds,
extendedresourcetoleration (Admit) and runtimeclass (setOverhead, setScheduling, validateOverhead).
"""

from collections.abc import Sequence, Set

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError, read_amounts
from rules_engine.cluster.nodes import is_extended_resource
from rules_engine.cluster.scheduling.requirements import NOT_READY, UNREACHABLE
from rules_engine.model.json.lenient import (
    Object,
    as_list,
    as_mapping,
    controller_reference,
    integer_member,
    object_items,
    text_member,
)
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import CONTAINER_LISTS
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects, PodObject, once

EXTENDED_RESOURCE_TOLERATION = "ExtendedResourceToleration"
UNKNOWN_PLUGIN = (
    f"whether the admission plugin {EXTENDED_RESOURCE_TOLERATION} is on (--admission {EXTENDED_RESOURCE_TOLERATION})"
)
_SELECTOR_ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"


def add_namespace_selector(creation: PodCreation) -> None:
    """Add the node selector of the namespace's annotation.

    The plugin is optional: where a namespace has the annotation, it counts as on. The selectors in its own file are not
    in the input.
    """
    namespace = creation.objects.find("Namespace", creation.namespace)
    text = text_member(as_mapping(namespace.metadata.get("annotations")), _SELECTOR_ANNOTATION) if namespace else ""
    parts = [part.split("=") for part in text.split(",")] if text else []
    if invalid := [part for part in parts if len(part) != 2]:
        raise RefusedError(f"invalid selector: [{' '.join(invalid[0])}]")
    selector: dict[str, Json] = {key.strip(): value.strip() for key, value in parts}
    _add_node_selector(creation, selector, "pod node label selector conflicts with its namespace node label selector")


def _add_node_selector(creation: PodCreation, selector: Object, refusal: str) -> None:
    """Add to the pod's node selector. `refusal`: the message if the pod has another `{own}` value of a `{key}`."""
    own = as_mapping(creation.spec.get("nodeSelector"))
    for key, value in selector.items():
        if own.get(key, value) != value:
            raise RefusedError(refusal.format(key=key, value=value, own=own[key]))
    if selector:
        creation.add_to_spec(nodeSelector={**own, **selector})


def add_default_tolerations(creation: PodCreation) -> None:
    """Let the pod stay on a node that is not ready or unreachable for five minutes."""
    own = object_items(creation.spec.get("tolerations"))
    tolerated = {text_member(each, "key") for each in own if text_member(each, "effect") in ("", "NoExecute")}
    default: dict[str, Json] = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    lacking = [key for key in (NOT_READY, UNREACHABLE) if not tolerated & {"", key}]
    creation.add_tolerations([{"key": key, **default} for key in lacking])


def add_resource_tolerations(creation: PodCreation) -> None:
    """Let the pod tolerate taints that have the name of an extended resource that it requests.

    The plugin is optional. Where nothing shows whether it is on, and a node has such a taint, this is noted as unknown.
    """
    lacking = _lacking_tolerations(creation.spec)
    is_on = _is_on(creation.objects)
    if is_on:
        # One that another toleration covers is added, too.
        creation.add_tolerations([{**each} for each in _resource_tolerations(creation.spec)])
    elif is_on is None and not _taint_keys(creation.objects).isdisjoint(text_member(each, "key") for each in lacking):
        creation.unknown.append(UNKNOWN_PLUGIN)


@once
def _taint_keys(objects: ClusterObjects) -> Set[str]:
    return {text_member(taint, "key") for node in objects.nodes for taint in object_items(node.spec.get("taints"))}


def _lacking_tolerations(spec: Object) -> list[Object]:
    """Return the tolerations that the plugin adds to a pod, without those that the pod's own tolerations cover."""
    own = object_items(spec.get("tolerations"))
    return [each for each in _resource_tolerations(spec) if not any(_covers(other, each) for other in own)]


def _resource_tolerations(spec: Object) -> list[Object]:
    names = {
        name
        for member in CONTAINER_LISTS
        for container in object_items(spec.get(member))
        for name in as_mapping(as_mapping(container.get("resources")).get("limits"))  # to which requests are equal
    }
    extended = sorted(filter(is_extended_resource, names))
    return [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in extended]


def _merge_tolerations(tolerations: Sequence[Object]) -> list[Object]:
    """Return tolerations without those that another one covers; of equal ones, the first (MergeTolerations)."""
    merged: list[Object] = []
    for index, each in enumerate(tolerations):
        later = [other for other in tolerations[index + 1 :] if other != each]
        if not any(_covers(other, each) for other in (*merged, *later)):
            merged.append(each)
    return merged


def _covers(wide: Object, narrow: Object) -> bool:
    """Return True if one toleration tolerates all that another does (kubernetes/pkg/util/tolerations, isSuperset)."""
    if wide == narrow:
        return True
    key, effect, value = ([text_member(each, name) for each in (wide, narrow)] for name in ("key", "effect", "value"))
    exists, narrow_exists = (text_member(each, "operator") == "Exists" for each in (wide, narrow))
    if (key[0] != key[1] and (key[0] or not exists)) or effect[0] not in ("", effect[1]):
        return False
    seconds, narrow_seconds = (integer_member(each, "tolerationSeconds", 2**63) for each in (wide, narrow))
    if effect[0] == "NoExecute" and narrow_seconds > seconds:
        return False
    return exists or (not narrow_exists and value[0] == value[1])


@once
def _is_on(objects: ClusterObjects) -> bool | None:
    """Return True if the plugin is on, by the option or by a running pod; None if nothing shows it.

    A pod of a template that has no such toleration shows it, unless a webhook of others did that.
    """
    if EXTENDED_RESOURCE_TOLERATION in objects.plugins:
        return True
    shown = [found for pod in objects.pods if (found := _shows_plugin(pod)) is not None]
    return any(shown) if shown else None


def _shows_plugin(pod: PodObject) -> bool | None:
    """Return whether the plugin has added a toleration to a pod; None if the pod does not show it."""
    owner = controller_reference(pod) or {}
    controller = pod.cluster.find(text_member(owner, "kind"), text_member(owner, "name"), pod.namespace)
    template = as_mapping(as_mapping((controller.spec if controller else {}).get("template")).get("spec"))
    lacking = _lacking_tolerations(template)
    return lacking[0] in as_list(pod.spec.get("tolerations")) if lacking else None


def add_runtime_class(creation: PodCreation) -> None:
    """Add what the class of the pod requires."""
    runtime_class = _find_class(creation)
    overhead = _overhead(runtime_class)
    if overhead and not creation.spec.get("overhead"):  # else it is checked
        creation.add_to_spec(overhead={**overhead})
    scheduling = as_mapping(runtime_class.get("scheduling"))
    refusal = "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
    _add_node_selector(creation, as_mapping(scheduling.get("nodeSelector")), refusal)
    if scheduling:
        own, added = (object_items(each.get("tolerations")) for each in (creation.spec, scheduling))
        creation.add_to_spec(tolerations=[{**each} for each in _merge_tolerations([*own, *added])])


def check_runtime_class(creation: PodCreation) -> None:
    """Refuse an overhead that is not the class's."""
    runtime_class = _find_class(creation)
    if runtime_class or not creation.spec.get("runtimeClassName"):
        overhead = _overhead(runtime_class)
        if not overhead and creation.spec.get("overhead") is not None:
            raise RefusedError("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        if read_amounts(creation.spec.get("overhead")) != read_amounts({**overhead}):
            raise RefusedError("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")


def _find_class(creation: PodCreation) -> Object:
    name = text_member(creation.spec, "runtimeClassName")
    return creation.find_named("RuntimeClass", name, f'pod rejected: RuntimeClass "{name}" not found') if name else {}


def _overhead(runtime_class: Object) -> Object:
    return as_mapping(as_mapping(runtime_class.get("overhead")).get("podFixed"))
