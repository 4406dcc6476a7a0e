"""RuntimeClass: the overhead, node selector and tolerations of a pod's class.

Source: kubernetes/plugin/pkg/admission/runtimeclass/admission.go (setOverhead, setScheduling, validateOverhead).
"""

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import Object, as_list, as_mapping, text_member
from rules_engine.model.kubernetes.quantity import Quantity

_MISMATCH = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


def mutate(creation: PodCreation) -> None:
    """Add what the class of the pod requires."""
    runtime_class = _find_class(creation)
    if runtime_class is None:
        return
    overhead = as_mapping(as_mapping(runtime_class.get("overhead")).get("podFixed"))
    if overhead:
        if creation.spec.get("overhead") and not _are_equal(overhead, as_mapping(creation.spec["overhead"])):
            raise RefusedError(_MISMATCH)
        creation.add_to_spec(overhead={**overhead})
    scheduling = as_mapping(runtime_class.get("scheduling"))
    selector, own = as_mapping(scheduling.get("nodeSelector")), as_mapping(creation.spec.get("nodeSelector"))
    for key, value in selector.items():
        if own.get(key, value) != value:
            place = "runtimeClass.scheduling.nodeSelector"
            raise RefusedError(f"conflict: {place}[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own[key]}")
    if selector:
        creation.add_to_spec(nodeSelector={**own, **selector})
    creation.add_tolerations(as_list(scheduling.get("tolerations")))


def validate(creation: PodCreation) -> None:
    """Refuse an overhead that is not the class's."""
    runtime_class = _find_class(creation)
    if runtime_class is None and text_member(creation.spec, "runtimeClassName"):
        return
    own = creation.spec.get("overhead")
    overhead = as_mapping(as_mapping((runtime_class or {}).get("overhead")).get("podFixed"))
    if not overhead and own is not None:
        raise RefusedError("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if not _are_equal(overhead, as_mapping(own)):
        raise RefusedError(_MISMATCH)


def _find_class(creation: PodCreation) -> Object | None:
    name = text_member(creation.spec, "runtimeClassName")
    if not name:
        return None
    try:
        return creation.find_named("RuntimeClass", name)
    except RefusedError:
        raise RefusedError(f'pod rejected: RuntimeClass "{name}" not found') from None


def _are_equal(one: Object, other: Object) -> bool:
    amounts = [{name: Quantity.parse(str(amount)) for name, amount in each.items()} for each in (one, other)]
    return amounts[0] == amounts[1]
