"""Changes of pods that may help them to start. Nothing is tried here."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from operator import itemgetter
from typing import TypeAlias

from msgspec import Struct

from rules_engine.cluster.creation.priority import SYSTEM_CLASSES, priority_classes
from rules_engine.cluster.nodes import numbers_of, union
from rules_engine.cluster.scheduling.cycle import SchedulablePod, SchedulingCycle
from rules_engine.cluster.scheduling.preferences import PREFERRED
from rules_engine.cluster.scheduling.requirements import REQUIRED
from rules_engine.cluster.scheduling.schedulable_pod import NEVER
from rules_engine.cluster.scheduling.scheduling import Filter
from rules_engine.cluster.state_taints import state_of
from rules_engine.language.cel import CostExceeded
from rules_engine.model.json.edits import Edits, JsonText, apply_edits
from rules_engine.model.json.lenient import Object, as_list, as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes.cluster import Taint
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.pod import Container, Pod
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.simulation import PodGroup

MAX_NEEDS = 4
"""Needs of nodes that are tried: those of the nodes on which the most pods fit."""

MAX_CLASSES = 4
"""PriorityClasses that are tried, the lowest first: clusters have a few."""

PodEdit: TypeAlias = Callable[[Object], Object]


class ChangeKind(StrEnum):
    """A kind of change.

    Rung: another resource; Nodes: other nodes; Softer: a preference in place of a requirement; Requests: less cpu or
    memory; Replicas: fewer pods; Devices: fewer; Priority: another PriorityClass; Ends: other pods end before;
    Combined: two of the others, except Replicas and Ends.
    """

    RUNG = "Rung"
    NODES = "Nodes"
    SOFTER = "Softer"
    REQUESTS = "Requests"
    REPLICAS = "Replicas"
    DEVICES = "Devices"
    PRIORITY = "Priority"
    ENDS = "Ends"
    COMBINED = "Combined"


class PodChange(Struct, frozen=True):
    """A change of pods in one or more sizes, the smallest first; `variant` returns the text and the edit of a size."""

    kind: ChangeKind
    variant: Callable[[int], tuple[str, PodEdit]]
    sizes: int = 1

    @classmethod
    def of(cls, kind: ChangeKind, text: str, edit: PodEdit) -> "PodChange":
        """Return a change of one size."""
        return cls(kind, lambda _: (text, edit))


class NodeNeed(Struct, frozen=True):
    """A placement that nodes require and a pod lacks.

    `selector`: values of its nodeSelector, None: without the label. `affinity`: the pod must drop its required node
    affinity.
    """

    taints: tuple[Taint, ...]
    selector: tuple[tuple[str, str | None], ...]
    affinity: bool

    @property
    def size(self) -> int:
        """The number of things that the pod lacks."""
        return len(self.taints) + len(self.selector) + self.affinity

    @property
    def text(self) -> str:
        parts = [f"a toleration of {taint.text}" for taint in self.taints]
        parts += [f"nodeSelector {key}: {value}" for key, value in self.selector if value is not None]
        absent = [f"nodeSelector {key}" for key, value in self.selector if value is None]
        if self.affinity:
            absent.append("required node affinity")
        both = (("with", parts), ("without", absent))
        return " and ".join(f"{word} {' and '.join(each)}" for word, each in both if each)

    def apply(self, pod: Object) -> Object:
        """Return the pod with what it lacks."""
        edits: dict[JsonPath, Mapping[str, str | None]] = {("spec", "nodeSelector"): dict(self.selector)}
        if self.taints:
            added: list[Json] = [
                {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
                for taint in self.taints
            ]
            own = as_list(as_mapping(pod.get("spec")).get("tolerations"))
            edits["spec",] = {"tolerations": JsonText.of([*own, *added])}
        if self.affinity:
            edits["spec", "affinity", "nodeAffinity"] = {REQUIRED: None}
        return as_mapping(apply_edits(dict(pod), edits))


_CHANGEABLE = (
    Filter.TAINT_TOLERATION,
    Filter.NODE_AFFINITY,
    Filter.NODE_RESOURCES_FIT,
    Filter.NODE_PORTS,
    Filter.POD_TOPOLOGY_SPREAD,
    Filter.INTER_POD_AFFINITY,
)
"""Filters that may pass with what the pod lacks, once other pods are evicted, or with a second change."""


def find_needs(cycle: SchedulingCycle, pod: SchedulablePod, waiting: int) -> Sequence[NodeNeed]:
    """Return what a pod lacks for nodes that taints and labels exclude, the simplest first.

    `waiting`: the number of pods that wait. If there are many needs, they are those on whose nodes the most pods fit.
    """
    try:
        scheduling, placement = cycle.explain(pod), pod.requirements.placement
    except CostExceeded:
        return ()
    by_filter = {name: union([*excluded.values()]) for name, excluded in scheduling.excluded.items()}
    unselected = by_filter.get(Filter.NODE_AFFINITY, 0)
    blocked = union([nodes for name, nodes in by_filter.items() if name not in _CHANGEABLE])
    repelling = cycle.scheduler.taints.repelling(placement.tolerations)
    blocked |= union([nodes for taint, nodes in repelling.items() if state_of(taint.key)])
    nodes = (by_filter.get(Filter.TAINT_TOLERATION, 0) | unselected) & ~blocked
    counts: Counter[NodeNeed] = Counter()
    fitting: Counter[NodeNeed] = Counter()
    for number in numbers_of(nodes):
        node = cycle.scheduler.nodes[number]
        taints = tuple(taint for taint, repelled in repelling.items() if repelled >> number & 1)
        wrong = [(key, node.labels.get(key)) for key, value in placement.node_selector if node.labels.get(key) != value]
        need = NodeNeed(taints, tuple(wrong), affinity=bool(unselected >> number & 1 and not wrong))
        # The controller of a DaemonSet sets the affinity to one node.
        if need.affinity and pod.requirements.node_names is not None:
            continue
        counts[need] += 1
        fitting[need] += cycle.fitting(pod, number)
    most = sorted(counts, key=lambda need: (-min(fitting[need], waiting), need.size, -counts[need]))[:MAX_NEEDS]
    return sorted(most, key=lambda need: (need.size, -counts[need]))


_AFFINITIES = {"podAntiAffinity": "pod anti-affinity", "podAffinity": "pod affinity"}


def softer_changes(groups: Sequence[PodGroup]) -> Iterator[PodChange]:
    """Yield preferences in place of the requirements that the pods have towards other pods."""
    specs = [as_mapping(group.pod.get("spec")) for group in groups]
    for member, words in _AFFINITIES.items():
        if any(as_mapping(as_mapping(spec.get("affinity")).get(member)).get(REQUIRED) for spec in specs):
            text = f"with preferred instead of required {words}"
            yield PodChange.of(ChangeKind.SOFTER, text, partial(_prefer, member=member))
    constraints = [each for spec in specs for each in object_items(spec.get("topologySpreadConstraints"))]
    if any(each.get("whenUnsatisfiable") == "DoNotSchedule" for each in constraints):
        yield PodChange.of(ChangeKind.SOFTER, "with whenUnsatisfiable: ScheduleAnyway", _spread_anyway)


def _prefer(pod: Object, member: str) -> Object:
    rules = as_mapping(as_mapping(as_mapping(pod.get("spec")).get("affinity")).get(member))
    required: list[Json] = [{"weight": 100, "podAffinityTerm": term} for term in as_list(rules.get(REQUIRED))]
    preferred = JsonText.of([*as_list(rules.get(PREFERRED)), *required])
    return _edited(pod, {("spec", "affinity", member): {REQUIRED: None, PREFERRED: preferred}} if required else {})


def _spread_anyway(pod: Object) -> Object:
    # The API server refuses minDomains with ScheduleAnyway.
    softer = {"whenUnsatisfiable": "ScheduleAnyway", "minDomains": None}
    constraints = as_list(as_mapping(pod.get("spec")).get("topologySpreadConstraints"))
    return _edited(pod, {("spec", "topologySpreadConstraints", index): softer for index, _ in enumerate(constraints)})


_STEPS = {
    "cpu": (Quantity.parse("1"), Quantity.parse("100m")),
    "memory": (Quantity.parse("1Gi"), Quantity.parse("64Mi")),
}
"""The steps of smaller requests: the first if the request is at least twice that, else the second."""


def request_changes(groups: Sequence[PodGroup]) -> Iterator[PodChange]:
    """Yield smaller requests of cpu and memory by the container of each pod that requests the most."""
    for resource, (large, small) in _STEPS.items():
        largest = [_largest(group.pod, resource) for group in groups]
        most = max([amount for _, amount in largest], default=0)
        step = large if most >= 2 * large.nanos else small
        if (sizes := -(-most // step.nanos) - 1) > 0:
            names = " and ".join(dict.fromkeys(container.name for container, _ in largest if container))
            yield PodChange(ChangeKind.REQUESTS, partial(_smaller_request, resource, step, sizes, names), sizes)


def _smaller_request(resource: str, step: Quantity, sizes: int, names: str, size: int) -> tuple[str, PodEdit]:
    amount = step * (sizes - size)
    text = f"with requests.{resource}: {amount} in container {names}"
    return text, partial(_request_less, resource=resource, amount=amount)


def _largest(pod: Object, resource: str) -> tuple[Container | None, int]:
    """Return the container that requests the most of a resource, and its request in nanos."""
    requests = [(each, each.requested(resource)) for each in Pod.parse(dict(pod)).containers]
    return max([(each, amount.nanos) for each, amount in requests if amount], key=itemgetter(1), default=(None, 0))


def _request_less(pod: Object, resource: str, amount: Quantity) -> Object:
    container, most = _largest(pod, resource)
    if container is None or most <= amount.nanos:
        return pod
    return _edited(pod, {container.requests_path: {resource: str(amount)}})


def class_changes(objects: ClusterObjects, priority: int) -> Iterator[PodChange]:
    """Yield the PriorityClasses of the cluster above a priority whose pods preempt others, the lowest first."""
    classes = {
        each.value: name
        for name, each in sorted(priority_classes(objects).items(), reverse=True)
        if each.value > priority and each.policy != NEVER and name not in SYSTEM_CLASSES
    }
    for _, name in sorted(classes.items())[:MAX_CLASSES]:
        # The others follow from the class.
        edits: Edits = {("spec",): {"priorityClassName": name, "priority": None, "preemptionPolicy": None}}
        edit = partial(_edited, edits=edits)
        yield PodChange.of(ChangeKind.PRIORITY, f"with priorityClassName: {name}", edit)


def _edited(pod: Object, edits: Edits) -> Object:
    return as_mapping(apply_edits(dict(pod), edits))
