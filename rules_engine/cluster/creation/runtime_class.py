"""RuntimeClass: the overhead, node selector and tolerations of a pod's class.

Source: kubernetes/plugin/pkg/admission/runtimeclass/admission.go (setOverhead, setScheduling, validateOverhead).
"""

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError, read_amounts
from rules_engine.model.json.lenient import Object, as_list, as_mapping, text_member


def mutate(creation: PodCreation) -> None:
    """Add what the class of the pod requires."""
    runtime_class = _find_class(creation)
    overhead = _overhead(runtime_class)
    if overhead:
        if creation.spec.get("overhead"):
            _compare_overhead(creation, overhead)
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
    if runtime_class or not creation.spec.get("runtimeClassName"):
        overhead = _overhead(runtime_class)
        if not overhead and creation.spec.get("overhead") is not None:
            raise RefusedError("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        _compare_overhead(creation, overhead)


def _find_class(creation: PodCreation) -> Object:
    name = text_member(creation.spec, "runtimeClassName")
    return creation.find_named("RuntimeClass", name, f'pod rejected: RuntimeClass "{name}" not found') if name else {}


def _overhead(runtime_class: Object) -> Object:
    return as_mapping(as_mapping(runtime_class.get("overhead")).get("podFixed"))


def _compare_overhead(creation: PodCreation, overhead: Object) -> None:
    if read_amounts(creation.spec.get("overhead")) != read_amounts({**overhead}):
        raise RefusedError("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
