"""Priority: the number of a pod's PriorityClass.

Source: kubernetes/plugin/pkg/admission/priority/admission.go (admitPod).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import integer_member, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import PRIORITY_CLASS, ClusterObjects
from rules_engine.model.problems.source import truncate


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass. `policy`: its preemptionPolicy, "" for the default. `default`: of pods that set none."""

    value: int
    policy: str = ""
    default: bool = False


SYSTEM_CLASSES: Mapping[str, PriorityClass] = {
    "system-cluster-critical": PriorityClass(2_000_000_000),
    "system-node-critical": PriorityClass(2_000_001_000),
}
"""PriorityClasses of every cluster (pkg/apis/scheduling/v1/helpers.go)."""


def priority_classes(objects: ClusterObjects) -> Mapping[str, PriorityClass]:
    """Return the PriorityClasses of a cluster by name."""
    classes = dict(SYSTEM_CLASSES)
    for item in objects.of(PRIORITY_CLASS):
        policy, default = text_member(item, "preemptionPolicy"), item.get("globalDefault") is True
        classes[item.name] = PriorityClass(integer_member(item, "value"), policy, default)
    return classes


def add_to_pods(objects: ClusterObjects) -> ClusterObjects:
    """Return the objects with a priority in each pod: pods of a cluster have one, hand-written pods may not."""
    if all("priority" in pod.spec for pod in objects.pods):
        return objects
    creations = [PodCreation(pod=pod, namespace=pod.namespace, objects=objects) for pod in objects.pods]
    for creation in creations:
        if "priority" not in creation.spec:
            with suppress(RefusedError):
                mutate(creation)
    return objects.with_objects({"Pod": [{**creation.pod} for creation in creations]})


def mutate(creation: PodCreation) -> None:
    """Set the priority of the pod's class. A pod without a class may have a priority already, from a Simulation."""
    spec, classes = creation.spec, priority_classes(creation.objects)
    name = text_member(spec, "priorityClassName")
    if not name and "priority" not in spec:
        # Of several defaults, the lowest counts.
        name = min(((each.value, key) for key, each in classes.items() if each.default), default=(0, ""))[1]
    found = classes.get(name)
    if name and found is None:
        if not creation.objects.unread(PRIORITY_CLASS):
            raise RefusedError(f"no PriorityClass with name {truncate(name)} was found")
        creation.unknown.append(f"PriorityClass {name}, which was not read: the pods count with priority 0")
        return
    members: dict[str, Json] = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority", **spec}
    if found is not None:
        if spec.get("priority", found.value) != found.value:
            computed = f"priority admission controller computed {found.value} from the given PriorityClass name"
            given = f"the integer value of priority ({spec['priority']})"
            raise RefusedError(f"{given} must not be provided in pod spec; {computed}")
        policy = spec.get("preemptionPolicy") or found.policy or "PreemptLowerPriority"
        members |= {"priorityClassName": name, "priority": found.value, "preemptionPolicy": policy}
    creation.add_to_spec(**members)
