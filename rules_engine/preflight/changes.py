"""Changes of a workload, each played: with them, all of its pods start now."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from msgspec import Struct

from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.nodes import REPELLING_EFFECTS, NodeSet, Tolerated, numbers_of, union
from rules_engine.kinds.ladder.counts import DeviceCounts, edits_between
from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.json.edits import apply_edits
from rules_engine.model.json.lenient import as_list, as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Taint
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Replacement
from rules_engine.model.rules.simulation import Arrival, PodGroup
from rules_engine.model.wording import format_names
from rules_engine.preflight.reading import Submitted
from rules_engine.preflight.state import ClusterState, PlayedPod, Verdict
from rules_engine.scheduling.cycle import SchedulablePod, SchedulingCycle
from rules_engine.scheduling.scheduling import Filter

MAX_CHANGES = 6
"""Changes that an answer has."""

MAX_NEEDS = 4
"""Needs of nodes that are played, those of the fewest parts first, then those of the most nodes."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_COMPONENT_TAINTS = "node.kubernetes.io/"
"""Prefix of taints for the state of a node, which no manifest should tolerate to start."""


class ChangeKind(StrEnum):
    """Kinds of changes, the smallest first."""

    RUNG = "Rung"
    NODES = "Nodes"
    REPLICAS = "Replicas"
    DEVICES = "Devices"
    ENDS = "Ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change with which `pods` pods start, all that the workload then has. `ends`: the pods that end before."""

    kind: ChangeKind
    text: str
    pods: int
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RungResult:
    """The number of pods by verdict if the workload requests a resource of a ladder."""

    request: str
    pods: Mapping[Verdict, int]


class NodeNeed(Struct, frozen=True):
    """What a pod lacks for nodes that would run it otherwise.

    `selector`: values of its nodeSelector, None: without the label. `affinity`: it goes without required node affinity.
    """

    taints: tuple[Taint, ...]
    selector: tuple[tuple[str, str | None], ...]
    affinity: bool

    @property
    def text(self) -> str:
        parts = [
            f"a toleration of {taint.key}={taint.value}" if taint.value else f"a toleration of {taint.key}"
            for taint in self.taints
        ]
        parts += [f"nodeSelector {key}: {value}" for key, value in self.selector if value is not None]
        absent = [f"nodeSelector {key}" for key, value in self.selector if value is None]
        if self.affinity:
            absent.append("required node affinity")
        with_parts = [f"with {' and '.join(parts)}"] if parts else []
        return " and ".join([*with_parts, *([f"without {' and '.join(absent)}"] if absent else [])])

    def apply(self, pod: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the pod with what it lacks."""
        spec = {**as_mapping(pod.get("spec"))}
        if self.taints:
            tolerations: list[Json] = [
                {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
                for taint in self.taints
            ]
            spec["tolerations"] = [*as_list(spec.get("tolerations")), *tolerations]
        if self.selector:
            selector = {**as_mapping(spec.get("nodeSelector")), **dict(self.selector)}
            spec["nodeSelector"] = {key: value for key, value in selector.items() if value is not None}
        if self.affinity:
            affinity = as_mapping(spec.get("affinity"))
            rest = {key: value for key, value in as_mapping(affinity.get("nodeAffinity")).items() if key != _REQUIRED}
            spec["affinity"] = {**affinity, "nodeAffinity": rest}
        return {**pod, "spec": spec}


def find_needs(cycle: SchedulingCycle, pod: SchedulablePod) -> Sequence[NodeNeed]:
    """Return what a pod lacks for nodes that only their taints and labels keep from running it now."""
    scheduling, placement = cycle.explain(pod), pod.requirements.placement
    by_filter = {name: union([*excluded.values()]) for name, excluded in scheduling.excluded.items()}
    tainted = by_filter.pop(Filter.TAINT_TOLERATION, 0)
    unselected = by_filter.pop(Filter.NODE_AFFINITY, 0)
    nodes: NodeSet = (tainted | unselected) & ~union([*by_filter.values()])
    tolerated = Tolerated(placement.tolerations)
    counts: dict[NodeNeed, int] = {}
    for number in numbers_of(nodes):
        node = cycle.scheduler.nodes[number]
        taints = tuple(
            [taint for taint in node.taints if taint.effect in REPELLING_EFFECTS and not tolerated.includes(taint)]
        )
        if any(taint.key.startswith(_COMPONENT_TAINTS) for taint in taints):
            continue
        wrong = [(key, node.labels.get(key)) for key, value in placement.node_selector if node.labels.get(key) != value]
        if unselected >> number & 1 and not wrong:
            need = NodeNeed(taints, (), True)
        else:
            need = NodeNeed(taints, tuple(wrong), False)
        counts[need] = counts.get(need, 0) + 1
    ordered = sorted(
        counts.items(), key=lambda item: (len(item[0].taints) + len(item[0].selector) + item[0].affinity, -item[1])
    )
    return [need for need, _ in ordered[:MAX_NEEDS]]


class ChangeSearch:
    """The search for changes of one workload of a manifest; the other workloads stay as they are."""

    def __init__(
        self,
        state: ClusterState,
        rule_set: RuleSet,
        workloads: Sequence[Submitted],
        number: int,
        pods: Sequence[PlayedPod],
        needs: Sequence[NodeNeed],
    ) -> None:
        """Take the state, the workloads, the number of one, and its pods and needs as the play of all gave them."""
        self._state = state
        self._rule_set = rule_set
        self._arrivals = [workload.arrival for workload in workloads]
        self._number = number
        self._workload = workloads[number]
        self._pods = pods
        self._needs = needs
        stopped = {pod.group for pod in pods if pod.verdict is not Verdict.STARTS}
        self._stuck = stopped or {pod.group for pod in pods}
        """The templates to change: those whose pods do not all start."""

    def find(self) -> Sequence[Change]:
        """Return the first MAX_CHANGES changes, the smallest first."""
        changes: list[Change] = []
        for change in self._changes():
            changes.append(change)
            if len(changes) == MAX_CHANGES:
                break
        return changes

    def _changes(self) -> Iterator[Change]:
        for text, arrival in self.rungs():
            yield from self._verified(ChangeKind.RUNG, f"with {text}", arrival)
        for need in self._needs:
            yield from self._verified(ChangeKind.NODES, need.text, self._with_pods(need.apply))
        if (fewer := self._with_fewer_pods()) is not None:
            field = self._workload.count_field
            counts = [group.parallel for group in fewer.groups]
            text = f"with {field}: {counts[0]}" if field else f"with {sum(counts)} pods at once"
            yield from self._verified(ChangeKind.REPLICAS, text, fewer)
        yield from self._fewer_devices()
        if any(pod.verdict is Verdict.WAITS for pod in self._pods):
            yield from self._after_others_end()

    def rung_results(self) -> Iterator[RungResult]:
        """Yield the number of pods by verdict for each resource of the ladders, after the requested one."""
        for source in self._gpus():
            arrival = self._workload.arrival
            yield RungResult(_request_text(arrival, self._stuck, source), self._verdicts(arrival))
        for text, arrival in self.rungs():
            yield RungResult(text, self._verdicts(arrival))

    def _verdicts(self, arrival: Arrival) -> Mapping[Verdict, int]:
        with self._played(arrival) as pods:
            return Counter(pod.verdict for pod in pods)

    def rungs(self) -> Iterator[tuple[str, Arrival]]:
        """Yield the workload with each other resource of the ladders that have a requested one, with its amount."""
        for source in self._gpus():
            seen: set[str] = set()
            for replacement in self._replacements(source):
                if replacement.resource not in seen:
                    seen.add(replacement.resource)
                    arrival = self._with_pods(partial(_with_devices, source=source, to=replacement))
                    yield _request_text(arrival, self._stuck, replacement.resource), arrival

    def _replacements(self, resource: str) -> Iterator[Replacement]:
        for compiled in self._rule_set.rules_at(Endpoint.MUTATE):
            yield from compiled.rule.replacements(resource)

    def _gpus(self) -> Sequence[str]:
        """Return the GPU resources of the pods that do not start."""
        pods = [Pod.parse(dict(group.pod)) for index, group in self._groups() if index in self._stuck]
        return sorted({name for pod in pods for name in pod.resources if is_gpu(name)})

    def _groups(self) -> Iterator[tuple[int, PodGroup]]:
        yield from enumerate(self._workload.arrival.groups)

    def _with_pods(self, change: Callable[[Mapping[str, Json]], Mapping[str, Json]]) -> Arrival:
        """Return the workload with changed pods in the templates whose pods do not all start."""
        groups = [
            replace(each, pod=change(each.pod)) if index in self._stuck else each for index, each in self._groups()
        ]
        return replace(self._workload.arrival, groups=tuple(groups))

    def _with_fewer_pods(self) -> Arrival | None:
        """Return the workload with the pods that start; None if none does of a template, or it is a Pod."""
        groups = []
        for index, group in self._groups():
            started = sum(pod.group == index and pod.verdict is Verdict.STARTS for pod in self._pods)
            if not started or not group.controlled:
                return None
            groups.append(replace(group, parallel=started))
        return replace(self._workload.arrival, groups=tuple(groups))

    def _fewer_devices(self) -> Iterator[Change]:
        """Yield the largest smaller number of devices with which all pods start."""
        for resource in self._gpus():
            most = max(_count(group, resource) for index, group in self._groups() if index in self._stuck)
            low, high, best = 1, most - 1, None
            while low <= high:
                count = (low + high) // 2
                arrival = self._with_pods(
                    partial(_with_devices, source=resource, to=Replacement(resource, count, most))
                )
                text = f"with {_request_text(arrival, self._stuck, resource)}"
                change = next(self._verified(ChangeKind.DEVICES, text, arrival), None)
                if change is None:
                    high = count - 1
                else:
                    best, low = change, count + 1
            if best is not None:
                yield best

    def _after_others_end(self) -> Iterator[Change]:
        with self._state.played(self._arrivals, ending=True) as plays:
            pods = plays[self._number]
            if not all(pod.verdict is Verdict.STARTS for pod in pods):
                return
            earlier = plays[: self._number + 1]
            ends = tuple(dict.fromkeys(victim for each in earlier for pod in each for victim in pod.victims))
        text = f"Pod {ends[0]} ends" if len(ends) == 1 else f"{len(ends)} pods end: {format_names(ends)}"
        yield Change(kind=ChangeKind.ENDS, text=f"after {text}", pods=len(pods), ends=ends)

    def _verified(self, kind: ChangeKind, text: str, arrival: Arrival) -> Iterator[Change]:
        """Yield the change if all pods start with it."""
        with self._played(arrival) as pods:
            if all(pod.verdict is Verdict.STARTS for pod in pods):
                yield Change(kind=kind, text=text, pods=len(pods))

    @contextmanager
    def _played(self, arrival: Arrival) -> Iterator[Sequence[PlayedPod]]:
        """Play all workloads, with this one changed; its pods are gone after the block."""
        arrivals = [*self._arrivals]
        arrivals[self._number] = arrival
        with self._state.played(arrivals) as plays:
            yield plays[self._number]


def _with_devices(pod: Mapping[str, Json], source: str, to: Replacement) -> Mapping[str, Json]:
    """Return a pod with its devices of `source` replaced."""
    before = DeviceCounts.read(Pod.parse(dict(pod)), [*dict.fromkeys((source, to.resource))])
    if source not in before.resources:
        return pod
    after = before.move_resource(source, to.resource, to.numerator, to.denominator)
    return as_mapping(apply_edits(dict(pod), edits_between(before, after, {source: to.resource})))


def _count(group: PodGroup, resource: str) -> int:
    """Return the number of devices of a resource that a pod requests."""
    pod = Pod.parse(dict(group.pod))
    return pod.effective_requests().get(resource, 0) // NANOS


def _request_text(arrival: Arrival, groups: Collection[int], resource: str) -> str:
    """Return the request of a resource by the pods of these templates."""
    counts = {_count(arrival.groups[index], resource) for index in groups} - {0}
    return f"{max(counts, default=0)} {resource}"
