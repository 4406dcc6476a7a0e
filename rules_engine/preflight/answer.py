"""The answer of a preflight: for each workload, what becomes of its pods now, and what would start all of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rules_engine.diagnosis.pending import pending_pods
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.nodes import NodeSet
from rules_engine.model.json.lenient import as_mapping, as_string_map, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import FILE_KINDS, ClusterObjects
from rules_engine.model.kubernetes.pod import is_finished
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.finding import Finding
from rules_engine.preflight.changes import Change, ChangeSearch, NodeNeed, RungResult, find_needs
from rules_engine.preflight.reading import Inputs, Submitted
from rules_engine.preflight.state import ClusterState, PlayedPod, Plays, Verdict
from rules_engine.scheduling.requirements import DEFAULT_SCHEDULER
from rules_engine.scheduling.scheduler import use_scheduler
from rules_engine.simulation.record import Fall

POD_SECURITY = "pod-security.kubernetes.io/enforce"
"""Label of namespaces whose pods the API server checks against a Pod Security Standard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FallenPods:
    """Pods that a rule moves to another resource; `location`: of the rule."""

    fall: Fall
    location: Location
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedPods:
    """Equal pods that do not start. `finding`: the first reason that is true, of pods that request GPUs."""

    verdict: Verdict
    message: str
    pods: int
    finding: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadAnswer:
    """What becomes of a workload. `starts`: the number of pods by node; `equal_nodes`: other nodes that were as good.

    `evicted`: pods that are preempted. `first`: components that decide before the scheduler. `notices`: what is not
    checked.
    """

    kind: str
    name: str
    namespace: str
    location: Location
    pods: int
    starts: Mapping[str, int]
    equal_nodes: tuple[str, ...]
    evicted: tuple[str, ...]
    falls: tuple[FallenPods, ...]
    stopped: tuple[StoppedPods, ...]
    first: tuple[str, ...]
    changes: tuple[Change, ...]
    rungs: tuple[RungResult, ...]
    notices: tuple[str, ...]

    @property
    def started(self) -> int:
        return sum(self.starts.values())

    @property
    def verdict(self) -> Verdict:
        """The verdict of the pods that do not start, the worst first."""
        verdicts = {each.verdict for each in self.stopped}
        return next((verdict for verdict in reversed(Verdict) if verdict in verdicts), Verdict.STARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answers for all workloads, in order. `objects`: the number of objects of each kind that the cluster has.

    `started_before`: pods that waited and can run now, with their nodes: they go first.
    """

    cluster: str
    objects: Mapping[str, int]
    started_before: Mapping[str, str]
    workloads: tuple[WorkloadAnswer, ...]

    @property
    def verdicts(self) -> frozenset[Verdict]:
        return frozenset(each.verdict for each in self.workloads)


def build_answer(
    inputs: Inputs, rule_set: RuleSet, *, rungs: bool = False, progress: Callable[[int, int], None] | None = None
) -> Answer:
    """Play the workloads, then, for those that do not start, the changes that may start them.

    `rungs`: also play each resource of the ladders. `progress` gets the number of workloads so far, and of all.
    """
    state = ClusterState(inputs.simulation, rule_set)
    builder = _AnswerBuilder(state, inputs.workloads, rule_set, rungs=rungs)
    with state.played([each.arrival for each in inputs.workloads]) as plays:
        played = builder.examine(plays)
    answers = []
    for number, each in enumerate(played):
        answers.append(builder.complete(number, each))
        if progress is not None:
            progress(number + 1, len(played))
    objects = inputs.simulation.objects
    return Answer(
        cluster=inputs.simulation.name,
        objects={
            kind: len(objects.of(kind)) for kind in ("Node", "Pod", "Namespace", "PriorityClass", "ResourceQuota")
        },
        started_before={name: state.node_of_pod[name] for name in state.started},
        workloads=tuple(answers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examined:
    """The pods of a workload, and what is only known while they are on their nodes."""

    pods: Sequence[PlayedPod]
    stopped: tuple[StoppedPods, ...]
    needs: Sequence[NodeNeed]
    equal_nodes: tuple[str, ...]


class _AnswerBuilder:
    def __init__(self, state: ClusterState, workloads: Sequence[Submitted], rule_set: RuleSet, *, rungs: bool) -> None:
        self._state = state
        self._workloads = workloads
        self._rule_set = rule_set
        self._rungs = rungs
        self._places = {compiled.rule.id: compiled.rule.location for compiled in rule_set.rules}
        self._node_names = [node.name for node in state.play.cycle.scheduler.nodes]

    def examine(self, plays: Plays) -> Sequence[_Examined]:
        """Return what is known of the workloads while their pods are on their nodes."""
        waiting = [pod for pods in plays for pod in pods if pod.verdict in (Verdict.WAITS, Verdict.NEVER)]
        first = {id(pod.admitted): pod for pod in reversed(waiting)}
        findings = _findings(self._state, plays, [*first.values()], self._rule_set)
        return [self._examine(pods, first, findings) for pods in plays]

    def _examine(
        self, pods: Sequence[PlayedPod], first: Mapping[int, PlayedPod], findings: Mapping[str, Finding]
    ) -> _Examined:
        cycle = self._state.play.cycle
        needs: dict[NodeNeed, None] = {}
        stopped: dict[tuple[Verdict, str], list[PlayedPod]] = {}
        for pod in pods:
            if pod.verdict is Verdict.STARTS:
                continue
            message = pod.message
            if not message and pod.admitted is not None and pod.admitted.pod is not None:
                message = cycle.explain(pod.admitted.pod).message()
                if not needs:
                    needs |= dict.fromkeys(find_needs(cycle, pod.admitted.pod))
            stopped.setdefault((pod.verdict, message), []).append(pod)
        used = {pod.node for pod in pods}
        equal: NodeSet = 0
        for pod in pods:
            equal |= pod.equal
        return _Examined(
            pods=pods,
            stopped=tuple(
                StoppedPods(
                    verdict=verdict,
                    message=message,
                    pods=len(group),
                    finding=findings.get(first[id(group[0].admitted)].name) if id(group[0].admitted) in first else None,
                )
                for (verdict, message), group in stopped.items()
            ),
            needs=[*needs],
            equal_nodes=tuple(
                name for number, name in enumerate(self._node_names) if equal >> number & 1 and number not in used
            ),
        )

    def complete(self, number: int, examined: _Examined) -> WorkloadAnswer:
        """Return the answer for a workload, once its pods are gone."""
        workload, pods = self._workloads[number], examined.pods
        search = ChangeSearch(self._state, self._rule_set, self._workloads, number, pods, examined.needs)
        starts = Counter(self._node_names[pod.node] for pod in pods if pod.verdict is Verdict.STARTS)
        return WorkloadAnswer(
            kind=workload.kind,
            name=workload.name,
            namespace=workload.arrival.namespace,
            location=workload.location,
            pods=len(pods),
            starts=dict(sorted(starts.items(), key=lambda item: (-item[1], item[0]))),
            equal_nodes=examined.equal_nodes,
            evicted=tuple(victim for pod in pods for victim in pod.victims),
            falls=tuple(self._falls(pods)),
            stopped=examined.stopped,
            first=tuple(dict.fromkeys(_components(workload, pods))),
            changes=tuple(search.find()) if examined.stopped else (),
            rungs=tuple(search.rung_results()) if self._rungs else (),
            notices=tuple(dict.fromkeys(self._notices(workload, pods))),
        )

    def _falls(self, pods: Sequence[PlayedPod]) -> Iterator[FallenPods]:
        falls = Counter(fall for pod in pods if pod.admitted is not None for fall in pod.admitted.record.falls)
        for fall, count in falls.items():
            yield FallenPods(fall=fall, location=self._places[fall.rule], pods=count)

    def _notices(self, workload: Submitted, pods: Sequence[PlayedPod]) -> Iterator[str]:
        objects, namespace = self._state.simulation.objects, workload.arrival.namespace
        if any(item.namespace == namespace for item in objects.of("LimitRange")):
            yield f"not checked: the LimitRange of namespace {namespace}"
        found = objects.find("Namespace", namespace)
        level = as_string_map(found.metadata.get("labels")).get(POD_SECURITY) if found is not None else None
        if level and level != "privileged":
            yield f"not checked: the Pod Security Standard {level} of namespace {namespace}"
        for name in self._state.scoped_quotas.get(namespace, ()):
            yield f"not checked: ResourceQuota {name} of namespace {namespace}, which has scopes"
        if objects.find(workload.kind, workload.name, namespace) is not None:
            yield f"the cluster has a {workload.kind} {namespace}/{workload.name} already: these pods are further ones"
        for pod in pods:
            if pod.admitted is not None:
                yield from (f"not modelled: {what}" for what in pod.admitted.record.not_modelled)
                yield from pod.admitted.record.warnings


def _components(workload: Submitted, pods: Sequence[PlayedPod]) -> Iterator[str]:
    """Yield the components that decide on pods before the default scheduler."""
    yield from workload.queues
    for pod in pods:
        spec = as_mapping(pod.admitted.object.get("spec")) if pod.admitted is not None else {}
        scheduler = text_member(spec, "schedulerName")
        if scheduler not in ("", DEFAULT_SCHEDULER):
            yield f"scheduler {scheduler}"
        for gate in object_items(spec.get("schedulingGates")):
            yield f"the owner of scheduling gate {text_member(gate, 'name')}"


def _findings(
    state: ClusterState, plays: Plays, waiting: Sequence[PlayedPod], rule_set: RuleSet
) -> Mapping[str, Finding]:
    """Return the first reasons that are true for waiting pods, by name."""
    if not waiting:
        return {}
    objects, scheduler = _objects_now(state, plays, waiting), state.play.cycle.scheduler
    use_scheduler(objects, scheduler)
    names = {pod.name for pod in waiting}
    pending = pending_pods(objects, scheduler, rule_set, lambda item: f"{item.namespace}/{item.name}" in names)
    return {f"{pod.namespace}/{pod.name}": entry.finding for entry in pending for pod in entry.pods}


def _objects_now(state: ClusterState, plays: Plays, waiting: Sequence[PlayedPod]) -> ClusterObjects:
    """Return the objects of the cluster with the pods of the workloads on their nodes, and waiting pods."""
    objects, nodes = state.simulation.objects, state.play.cycle.scheduler.nodes
    placed = [pod for pods in plays for pod in pods if pod.verdict is Verdict.STARTS]
    evicted = {victim for pods in plays for pod in pods for victim in pod.victims}
    pods: list[dict[str, Json]] = []
    for item in objects.pods:
        name = f"{item.namespace}/{item.name}"
        node = state.node_of_pod.get(name, "")
        if is_finished(item) or name in evicted:
            continue
        if node == item.node_name:
            pods.append(item)
        elif node:
            pods.append({**item, "spec": {**item.spec, "nodeName": node}})
    pods += [_pod_object(pod, nodes[pod.node].name) for pod in placed]
    pods += [_pod_object(pod, "") for pod in waiting]
    by_kind = {kind: objects.of(kind) for kind in FILE_KINDS if kind != "Pod"}
    return ClusterObjects({**by_kind, "Pod": pods}, absent=objects.absent, partial=objects.partial, now=objects.now)


def _pod_object(pod: PlayedPod, node: str) -> dict[str, Json]:
    raw = pod.admitted.object if pod.admitted is not None else {}
    namespace, _, name = pod.name.partition("/")
    metadata: dict[str, Json] = {**as_mapping(raw.get("metadata")), "name": name, "namespace": namespace}
    return {**raw, "kind": "Pod", "metadata": metadata, "spec": {**as_mapping(raw.get("spec")), "nodeName": node}}
