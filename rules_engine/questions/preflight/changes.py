"""Changes of a workload, each simulated: with it, all pods start now."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from rules_engine.cluster.nodes import REPELLING_EFFECTS, NodeSet, Tolerated, numbers_of, union
from rules_engine.cluster.scheduling.cycle import SchedulingCycle
from rules_engine.cluster.scheduling.requirements import REQUIRED
from rules_engine.cluster.scheduling.scheduling import Filter
from rules_engine.language.cel import CostExceeded
from rules_engine.model.gpu_resources import is_gpu
from rules_engine.model.json.edits import JsonText, apply_edits
from rules_engine.model.json.lenient import as_list, as_mapping
from rules_engine.model.json.output import Output
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes.cluster import Taint
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.admission import Endpoint, pod_request
from rules_engine.model.rules.decision import resource_of
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.simulation import Arrival, PodGroup
from rules_engine.model.wording import format_names
from rules_engine.questions.doctor.pending.excluded import taint_text
from rules_engine.questions.preflight.reading import SubmittedWorkload
from rules_engine.questions.preflight.state import ClusterState, SimulatedPod, Verdict
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.ladder.counts import DeviceCounts, edits_between
from rules_engine.rules.rule_set.compiled import Replacement

MAX_CHANGES = 6
"""Changes that an answer has."""

MAX_NEEDS = 4
"""Needs of nodes that are tried, the simplest first, then the most common."""

MAX_FEWER = 64
"""Smaller numbers of devices that are tried: a node has 8 whole cards, and some 50 parts of them."""

_COMPONENT_TAINTS = "node.kubernetes.io/"
"""Prefix of taints for the state of a node, which no manifest should tolerate to start."""


class ChangeKind(StrEnum):
    """Rung: another resource; Nodes: other nodes; Replicas: fewer pods; Devices: fewer; Ends: other pods end before."""

    RUNG = "Rung"
    NODES = "Nodes"
    REPLICAS = "Replicas"
    DEVICES = "Devices"
    ENDS = "Ends"


class Change(Output, frozen=True, kw_only=True):
    """A change with which all pods of a workload start."""

    kind: ChangeKind
    text: Annotated[str, Meta(description="Such as: with 1 nvidia.com/gpu.")]
    pods: Annotated[int, Meta(description="The number of pods that the workload then has.")]
    ends: Annotated[tuple[str, ...], Meta(description="The pods that end before.")] = ()


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
        parts = [f"a toleration of {taint_text(taint)}" for taint in self.taints]
        parts += [f"nodeSelector {key}: {value}" for key, value in self.selector if value is not None]
        absent = [f"nodeSelector {key}" for key, value in self.selector if value is None]
        if self.affinity:
            absent.append("required node affinity")
        both = (("with", parts), ("without", absent))
        return " and ".join(f"{word} {' and '.join(each)}" for word, each in both if each)

    def apply(self, pod: Mapping[str, Json]) -> Mapping[str, Json]:
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


def find_needs(cycle: SchedulingCycle, pods: Sequence[SimulatedPod]) -> Sequence[NodeNeed]:
    """Return what the first waiting pod lacks for nodes that only taints and labels exclude."""
    waiting = (each.admitted.pod for each in pods if each.waits and not each.starts_alone)
    pod = next(filter(None, waiting), None)
    if pod is None:
        return ()
    try:
        scheduling, placement = cycle.explain(pod), pod.requirements.placement
    except CostExceeded:
        return ()
    by_filter = {name: union([*excluded.values()]) for name, excluded in scheduling.excluded.items()}
    tainted = by_filter.pop(Filter.TAINT_TOLERATION, 0)
    unselected = by_filter.pop(Filter.NODE_AFFINITY, 0)
    nodes: NodeSet = (tainted | unselected) & ~union([*by_filter.values()])
    tolerated = Tolerated(placement.tolerations)
    counts: Counter[NodeNeed] = Counter()
    for number in numbers_of(nodes):
        node = cycle.scheduler.nodes[number]
        taints = tuple(
            taint for taint in node.taints if taint.effect in REPELLING_EFFECTS and not tolerated.includes(taint)
        )
        if any(taint.key.startswith(_COMPONENT_TAINTS) for taint in taints):
            continue
        wrong = [(key, node.labels.get(key)) for key, value in placement.node_selector if node.labels.get(key) != value]
        counts[NodeNeed(taints, tuple(wrong), affinity=bool(unselected >> number & 1 and not wrong))] += 1
    return sorted(counts, key=lambda need: (need.size, -counts[need]))[:MAX_NEEDS]


class ChangeSearch:
    """The search for changes of one workload of a manifest; the other workloads stay as they are."""

    def __init__(
        self,
        state: ClusterState,
        rule_set: RuleSet,
        workloads: Sequence[SubmittedWorkload],
        number: int,
        pods: Sequence[SimulatedPod],
    ) -> None:
        """Take the number of a workload, and its pods while those of all workloads are simulated."""
        self._state = state
        self._rule_set = rule_set
        self._arrivals = [workload.arrival for workload in workloads]
        self._number = number
        self._arrival = self._arrivals[number]
        self._count_field = workloads[number].count_field
        self._pods = pods
        self._changed = sorted({pod.group for pod in pods if not pod.starts_alone})
        """The templates to change: those with pods that do not start."""
        groups = self._arrival.groups
        self._groups = [groups[index] for index in self._changed]
        every = len(self._groups) == len(groups)
        self._where = "" if every else f" in {' and '.join(group.name for group in self._groups)}"
        self._gpus = sorted({name for group in self._groups for name in _parse(group).resources if is_gpu(name)})
        self._needs = find_needs(state.play.cycle, pods)

    def find(self) -> Sequence[Change]:
        """Return the first MAX_CHANGES changes, the smallest first."""
        return [*islice(self._changes(), MAX_CHANGES)]

    def _changes(self) -> Iterator[Change]:
        for resource in self._gpus:
            for to in self._rungs(resource):
                arrival = self._with_pods(partial(_with_devices, source=resource, to=to))
                count = max(_count(arrival.groups[index], to.resource) for index in self._changed)
                pool = f" ({to.pool})" if to.pool else ""
                yield from self._verified(ChangeKind.RUNG, f"with {count} {to.title}{pool}{self._where}", arrival)
        if any(pod.verdict is Verdict.DENIED for pod in self._pods):
            return  # the rule's message says what is wrong
        for need in self._needs:
            yield from self._verified(ChangeKind.NODES, f"{need.text}{self._where}", self._with_pods(need.apply))
        yield from self._fewer_pods()
        for resource in self._gpus:
            yield from islice(self._fewer_devices(resource), 1)
        if any(pod.verdict is Verdict.WAITS for pod in self._pods):
            yield from self._after_others_end()

    def _rungs(self, resource: str) -> Sequence[Replacement]:
        """Return the replacements of a resource by ladders that apply to the pods, once for each title."""
        play, namespace = self._state.play, self._arrival.namespace
        decisions = [
            self._rule_set.mutate(pod_request(dict(group.pod), namespace=namespace), play.view.cluster)
            for group in self._groups
        ]
        titles: dict[RuleId, list[str]] = {}
        for step in (step for decision in decisions for step in decision.trace if not step.audit):
            if step.applies or step.reason == "already-decided":
                own = [each.resource for each in step.resources if resource_of(each.resource) == resource]
                titles.setdefault(step.rule, []).extend(own or [resource])
        found: dict[str, Replacement] = {}
        for compiled in self._rule_set.rules_at(Endpoint.MUTATE):
            for title in titles.get(compiled.rule.id, ()):
                for each in compiled.replacements(title):
                    found.setdefault(each.title, each)
        return [*found.values()]

    def _with_pods(self, change: Callable[[Mapping[str, Json]], Mapping[str, Json]]) -> Arrival:
        """Return the workload with changed pods in the templates to change."""
        groups = [
            replace(each, pod=change(each.pod)) if index in self._changed else each
            for index, each in enumerate(self._arrival.groups)
        ]
        return replace(self._arrival, groups=tuple(groups))

    def _fewer_pods(self) -> Iterator[Change]:
        """Yield the workload reduced to the pods that start, unless a template has no such pod."""
        field, groups = self._count_field, self._arrival.groups
        started = Counter(pod.group for pod in self._pods if pod.starts)
        if field is not None and len(started) == len(groups):
            counts = ", ".join(f"{group.name}: {started[index]}" for index, group in enumerate(groups))
            fewer = tuple(replace(group, parallel=started[index]) for index, group in enumerate(groups))
            text = f"with {field}: {started[0]}" if field else f"with fewer pods at once: {counts}"
            yield from self._verified(ChangeKind.REPLICAS, text, replace(self._arrival, groups=fewer))

    def _fewer_devices(self, resource: str) -> Iterator[Change]:
        """Yield smaller numbers of devices with which all pods start, the largest first."""
        most = max(_count(group, resource) for group in self._groups)
        for count in range(most - 1, max(most - MAX_FEWER, 1) - 1, -1):
            change = partial(_with_devices, source=resource, to=Replacement(resource, count, most))
            text = f"with {count} {resource}{self._where}"
            yield from self._verified(ChangeKind.DEVICES, text, self._with_pods(change))

    def _after_others_end(self) -> Iterator[Change]:
        with self._state.simulated(self._arrivals, ending=self._number) as workloads:
            pods = workloads[self._number]
        ends = tuple(dict.fromkeys(victim for pod in pods for victim in pod.victims))
        if all(pod.starts for pod in pods) and not {pod.name for pod in pods}.intersection(ends):
            text = f"Pod {ends[0]} ends" if len(ends) == 1 else f"{len(ends)} pods end: {format_names(ends)}"
            yield Change(kind=ChangeKind.ENDS, text=f"after {text}", pods=len(pods), ends=ends)

    def _verified(self, kind: ChangeKind, text: str, arrival: Arrival) -> Iterator[Change]:
        """Yield the change if all pods start with it, on what they then request."""
        arrivals = [*self._arrivals]
        arrivals[self._number] = arrival
        with self._state.simulated(arrivals) as workloads:
            pods = workloads[self._number]
        moved = any(pod.admitted.record.fallbacks for pod in pods if pod.group in self._changed)
        if all(pod.starts for pod in pods) and not (moved and kind is ChangeKind.RUNG):
            yield Change(kind=kind, text=text, pods=len(pods))


def _with_devices(pod: Mapping[str, Json], source: str, to: Replacement) -> Mapping[str, Json]:
    """Return a pod with its devices of `source` replaced."""
    before = DeviceCounts.read(Pod.parse(dict(pod)), [*dict.fromkeys((source, to.resource))])
    after = before.moved({source: to})
    edits = {**edits_between(before, after, {source: to.resource}), **to.place(before.pod)}
    return as_mapping(apply_edits(dict(pod), edits))


def _count(group: PodGroup, resource: str) -> int:
    """Return the number of devices of a resource that a pod requests."""
    return _parse(group).effective_requests().get(resource, 0) // NANOS


def _parse(group: PodGroup) -> Pod:
    return Pod.parse(dict(group.pod))
