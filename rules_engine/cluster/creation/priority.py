"""Priority: the number of a pod's PriorityClass.

Source: kubernetes/plugin/pkg/admission/priority/admission.go (admitPod).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import is_

from rules_engine.cluster.creation.pod_creation import PodCreation, RefusedError
from rules_engine.model.json.lenient import as_mapping, integer_member, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import PRIORITY_CLASS, ClusterObjects
from rules_engine.model.problems.source import truncate


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass; `policy` is its preemptionPolicy, "" for the default."""

    value: int
    policy: str = ""


SYSTEM_CLASSES: Mapping[str, PriorityClass] = {
    "system-cluster-critical": PriorityClass(2_000_000_000),
    "system-node-critical": PriorityClass(2_000_001_000),
}
"""PriorityClasses of every cluster (pkg/apis/scheduling/v1/helpers.go)."""


@dataclass(frozen=True, slots=True)
class Priorities:
    """The PriorityClasses of a cluster; `default`: the class of pods that set none, or ""."""

    classes: Mapping[str, PriorityClass]
    default: str = ""

    @classmethod
    def of(cls, objects: ClusterObjects) -> "Priorities":
        """Return the classes of a cluster. Of several defaults, the lowest counts, as in the API server."""
        items = objects.of(PRIORITY_CLASS)
        classes = {
            item.name: PriorityClass(integer_member(item, "value"), text_member(item, "preemptionPolicy"))
            for item in items
        }
        defaults = [item.name for item in items if item.get("globalDefault") is True]
        default = min(defaults, key=lambda name: (classes[name].value, name), default="")
        return cls({**SYSTEM_CLASSES, **classes}, default)

    def with_priority(self, pod: dict[str, Json]) -> dict[str, Json]:
        """Return a pod with the priority of its class, which the API server adds before it calls webhooks."""
        spec = as_mapping(pod.get("spec"))
        name = text_member(spec, "priorityClassName") or self.default
        priority_class = self.classes.get(name)
        if priority_class is None:
            return pod
        fields: dict[str, Json] = {"priorityClassName": name, "priority": priority_class.value}
        if priority_class.policy and not spec.get("preemptionPolicy"):
            fields["preemptionPolicy"] = priority_class.policy
        return {**pod, "spec": {**spec, **fields}}

    def add_to_pods(self, objects: ClusterObjects) -> ClusterObjects:
        """Return the objects with a priority in each pod: pods of a cluster have one, hand-written pods may not."""
        pods = [pod if "priority" in pod.spec else self.with_priority(pod) for pod in objects.pods]
        return objects if all(map(is_, pods, objects.pods)) else objects.with_objects({"Pod": pods})


def mutate(creation: PodCreation) -> None:
    """Set the priority of the pod's class. A pod without a class may have a priority already, from a Simulation."""
    spec, priorities = creation.spec, Priorities.of(creation.objects)
    name = text_member(spec, "priorityClassName") or ("" if "priority" in spec else priorities.default)
    found = priorities.classes.get(name)
    if name and found is None:
        if not creation.objects.unread(PRIORITY_CLASS):
            raise RefusedError(f"no PriorityClass with name {truncate(name)} was found")
        creation.unknown.append(f"PriorityClass {name}, which was not read: the pods count with priority 0")
        return
    if found is not None:
        if spec.get("priority", found.value) != found.value:
            computed = f"priority admission controller computed {found.value} from the given PriorityClass name"
            given = f"the integer value of priority ({spec['priority']})"
            raise RefusedError(f"{given} must not be provided in pod spec; {computed}")
        creation.pod = priorities.with_priority({**creation.pod})
    creation.add_to_spec(**{"priority": 0, "preemptionPolicy": "PreemptLowerPriority", **creation.spec})
