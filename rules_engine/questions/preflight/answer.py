"""The answer of a preflight: for each workload, which pods start now, and changes with which all of them start."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from rules_engine.cluster.creation.limit_range import UNKNOWN_ORDER
from rules_engine.cluster.creation.node_constraints import EXTENDED_RESOURCE_TOLERATION, UNKNOWN_PLUGIN
from rules_engine.cluster.nodes import numbers_of, union
from rules_engine.cluster.read.manifests import Manifest
from rules_engine.cluster.scheduling.requirements import LIMITS_OF_VOLUMES
from rules_engine.cluster.scheduling.scheduler import use_scheduler
from rules_engine.language.cel import CostExceeded
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.output import Output
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.problem import Problem, unknown_pods
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.finding import Finding
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.wording import format_count, format_names
from rules_engine.questions.doctor.pending import pending_pods
from rules_engine.questions.doctor.reasons import PendingReason
from rules_engine.questions.preflight.changes import Change, ChangeSearch
from rules_engine.questions.preflight.gangs import explain_waiting
from rules_engine.questions.preflight.reading import SubmittedWorkload, read_inputs
from rules_engine.questions.preflight.state import ClusterState, PodsByWorkload, SimulatedPod, Verdict, worst_verdict
from rules_engine.questions.preflight.volumes import found_volumes, unknown_volumes
from rules_engine.questions.simulate.admission import SCHEDULING_GATES
from rules_engine.report.answer import Answer
from rules_engine.rules.evaluation import RuleSet

COUNTED = {
    "Node": "nodes",
    "Pod": "pods",
    "Namespace": "namespaces",
    "PriorityClass": "priorityclasses",
    "ResourceQuota": "resourcequotas",
}
"""Kinds whose objects an answer counts, with their names in kubectl."""

Names = tuple[str, ...]

NodeReasons = list[tuple[str, str]]
"""Names of nodes, each with the reasons in the scheduler's words why it cannot run the pods of a workload."""


class MovedPods(Output, frozen=True, kw_only=True):
    """Pods that a rule moves to another resource."""

    rule: RuleId
    source: Location
    requested: str
    given: str
    pods: int


class StoppedPods(Output, frozen=True, kw_only=True):
    """Equal pods that do not start."""

    verdict: Verdict
    pods: int
    message: Annotated[str, Meta(description="Of the scheduler, the rule that denies, or the API server that refuses.")]
    together: Annotated[bool, Meta(description="True if they do not start since they start only together.")]
    finding: Annotated[Finding | None, Meta(description="With all causes in their order; null unless GPU pods wait.")]


class WorkloadAnswer(Output, frozen=True, kw_only=True):
    """The answer for one workload."""

    kind: str
    name: str
    namespace: str
    source: Location
    verdict: Annotated[
        Verdict, Meta(description="The worst of its pods; Unknown: `unknown` decides whether they start.")
    ]
    pods: Annotated[int, Meta(description="The number of pods that run at the same time.")]
    started: Annotated[int, Meta(description="The number of pods that start.")]
    starts: Annotated[Mapping[str, int], Meta(description="The number of pods that start, by node.")]
    equal_nodes: Annotated[Names, Meta(description="Other nodes with the same score, one of which may be chosen.")]
    evicted: Annotated[Names, Meta(description="The pods that leave their nodes for it, by preemption.")]
    once: Annotated[Names, Meta(description="What has to happen before the scheduler decides.")]
    unknown: Annotated[
        Names, Meta(description="What could change the answer, and is not in the input or not modelled.")
    ]
    moves: Annotated[tuple[MovedPods, ...], Meta(description="Moves of pods to another resource by rules.")]
    stopped: Annotated[tuple[StoppedPods, ...], Meta(description="The pods that do not start, by message.")]
    would_start: Annotated[
        tuple[Change, ...], Meta(description="The smallest first: with each alone, all pods start.")
    ] = ()
    tried: Annotated[Names, Meta(description="The changes that were tried, if none helps.")] = ()
    notices: Annotated[Names, Meta(description="What was not checked or is not modelled.")]


class PreflightAnswer(Answer, frozen=True, kw_only=True):
    """Outcomes of the pods of workloads if they are created now, and changes with which all of them start."""

    cluster: Annotated[str, Meta(description="The name of the cluster, or of its file.")]
    rules: Annotated[str, Meta(description="As in --rules; empty without it.")] = ""
    objects: Annotated[Mapping[str, int], Meta(description="The number of objects that the cluster has, by kind.")]
    started_before: Annotated[Mapping[str, str], Meta(description="Nodes of waiting pods that go first, by pod.")]
    verdict: Annotated[Verdict, Meta(description="The worst of the workloads.")]
    workloads: Annotated[tuple[WorkloadAnswer, ...], Meta(description="In the order of the manifests.")]


def preflight(
    rule_set: RuleSet,
    manifests: Sequence[Manifest],
    cluster: ClusterObjects,
    *,
    name: str = "cluster",
    namespace: str = "",
    node_reasons: list[NodeReasons] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PreflightAnswer:
    """Return which pods of workloads start now on the cluster `name`, and changes that start the others.

    `namespace`: of manifests without one. `node_reasons` gets an item for each workload. `progress` gets the number of
    workloads so far, and of all. Raises InputError.

    >>> from rules_engine import load_cluster, load_manifests, load_rules, preflight
    >>> rules, cluster = load_rules(["set:gpu-allocation"]), load_cluster(["rules_engine/inventories/two-workers.yaml"])
    >>> gpus = {"limits": {"nvidia.com/gpu": 8}}
    >>> spec = {"containers": [{"name": "c", "resources": gpus}]}
    >>> pods = load_manifests([{"kind": "Pod", "metadata": {"name": "a"}, "spec": spec}])
    >>> preflight(rules, pods, cluster).verdict
    <Verdict.NEVER: 'Never'>
    """
    answer = _answer(rule_set, manifests, cluster, name, namespace, node_reasons, progress)
    if any(UNKNOWN_PLUGIN in each.unknown for each in answer.workloads):
        other = cluster.with_objects({}, plugins=frozenset({EXTENDED_RESOURCE_TOLERATION}))
        answer = _with_other_plugin(answer, _answer(rule_set, manifests, other, name, namespace, None, None))
    return answer


def _with_other_plugin(answer: PreflightAnswer, other: PreflightAnswer) -> PreflightAnswer:
    """Return the answer with the plugin's line where the other answer, with the plugin, differs."""
    workloads = list(answer.workloads)
    for number, (one, another) in enumerate(zip(answer.workloads, other.workloads, strict=True)):
        verdict, unknown, notices = one.verdict, [each for each in one.unknown if each != UNKNOWN_PLUGIN], one.notices
        different = [pair for pair in zip(_summaries(one), _summaries(another), strict=True) if pair[0] != pair[1]]
        if different:
            line = f"{UNKNOWN_PLUGIN}: {different[0][0]} without it, {different[0][1]} with it"
            if one.verdict == another.verdict:
                notices = (*notices, f"not known: {line}")
            else:
                verdict, unknown = Verdict.UNKNOWN, [*unknown, line]
        workloads[number] = replace(one, unknown=tuple(unknown), verdict=verdict, notices=notices)
    verdict = worst_verdict([each.verdict for each in workloads])
    return replace(answer, workloads=tuple(workloads), verdict=verdict)


def _summaries(answer: WorkloadAnswer) -> Iterator[str]:
    """Yield the parts of an answer that a plugin may change, the most important first."""
    yield answer.verdict.lower()
    yield f"{answer.started:,} of {format_count(answer.pods, 'pod')} start"
    yield f"on {format_names(sorted((*answer.starts, *answer.equal_nodes)))}"


def _answer(
    rule_set: RuleSet,
    manifests: Sequence[Manifest],
    cluster: ClusterObjects,
    name: str,
    namespace: str,
    node_reasons: list[NodeReasons] | None,
    progress: Callable[[int, int], None] | None,
) -> PreflightAnswer:
    """Return the answer as it is without an optional plugin of which nothing is known."""
    simulation, workloads, problems = read_inputs(manifests, cluster, name=name, namespace=namespace)
    state = ClusterState(simulation, rule_set)
    with state.simulated([each.arrival for each in workloads]) as simulated:
        for workload, pods in zip(workloads, simulated, strict=True):
            explain_waiting(state, workload.arrival, pods)
        findings, places = _findings(state, simulated), {each.rule.id: each.rule.location for each in rule_set.rules}
        answers = [
            _workload_answer(state, workload, pods, findings, places)
            for workload, pods in zip(workloads, simulated, strict=True)
        ]
        searches = [ChangeSearch(state, rule_set, workloads, number, pods) for number, pods in enumerate(simulated)]
        if node_reasons is not None:
            node_reasons += [[*_node_reasons(state, pods)] for pods in simulated]
    for number, search in enumerate(searches):
        if any(not pod.starts and pod.verdict is not Verdict.UNKNOWN for pod in simulated[number]):
            changes = tuple(search.find())
            answers[number] = replace(
                answers[number], would_start=changes, tried=() if changes else tuple(search.tried)
            )
        if progress is not None:
            progress(number + 1, len(searches))
    return PreflightAnswer(
        problems=problems,
        cluster=name,
        objects={kind: len(simulation.objects.of(kind)) for kind in COUNTED},
        started_before=state.started,
        verdict=worst_verdict([each.verdict for each in answers]),
        workloads=tuple(answers),
    )


def _workload_answer(
    state: ClusterState,
    workload: SubmittedWorkload,
    pods: Sequence[SimulatedPod],
    findings: Mapping[int, Finding],
    places: Mapping[RuleId, Location],
) -> WorkloadAnswer:
    """Return the answer for a workload, without changes, while its pods are on their nodes."""
    starts = Counter(pod.node for pod in pods if pod.starts)
    equal = numbers_of(union([pod.equal for pod in pods]))
    distinct = _distinct(pods)
    volumes = unknown_volumes([pod.admitted.object for pod in pods])
    of_pods = _unknown_of_pods(distinct, state.simulation.objects)
    may_start = (why for pod in pods for why in pod.unknown)
    unknown = tuple(dict.fromkeys((*workload.unknown, *volumes, *of_pods, *may_start)))
    verdict = worst_verdict([pod.outcome for pod in pods])
    # What is not known can only prevent a start, except for a number of pods, and the order of LimitRanges.
    if (
        (verdict is Verdict.STARTS and unknown not in ((), (UNKNOWN_PLUGIN,)))
        or (verdict is Verdict.WAITS and workload.unknown)
        or any(each.startswith(UNKNOWN_ORDER) for each in unknown)
    ):
        verdict = Verdict.UNKNOWN
    moves = Counter(move for pod in pods for move in pod.admitted.record.fallbacks)
    names = [state.play.cycle.scheduler.nodes[number].name for number in equal]
    return WorkloadAnswer(
        kind=workload.kind,
        name=workload.name,
        namespace=workload.arrival.namespace,
        source=workload.location,
        verdict=verdict,
        pods=len(pods),
        started=starts.total(),
        starts=dict(sorted(starts.items(), key=lambda item: (-item[1], item[0]))),
        equal_nodes=tuple(name for name in names if name not in starts),
        evicted=tuple(victim for pod in pods for victim in pod.victims),
        moves=tuple(
            MovedPods(rule=each.rule, source=places[each.rule], requested=each.requested, given=each.given, pods=count)
            for each, count in moves.items()
        ),
        stopped=tuple(_stopped_pods(state, pods, findings)),
        once=workload.once,
        unknown=unknown,
        notices=tuple(dict.fromkeys((*_namespace_notices(state, workload), *_pod_notices(distinct)))),
    )


def _stopped_pods(
    state: ClusterState, pods: Sequence[SimulatedPod], findings: Mapping[int, Finding]
) -> Iterator[StoppedPods]:
    """Yield the pods that do not start, by their message."""
    groups: dict[tuple[Verdict, str], list[SimulatedPod]] = {}
    for pod in pods:
        if not pod.starts:
            waiting = pod.admitted.pod if pod.waits else None
            message = pod.message or (state.play.scheduler_message(waiting) if waiting else "")
            groups.setdefault((pod.outcome, message), []).append(pod)
    for (verdict, message), group in groups.items():
        together = group[0].alone is not None and group[0].waits
        # Refused pods share their admission with pods of the same template that wait.
        finding = findings.get(id(group[0].admitted)) if group[0].waits else None
        yield StoppedPods(verdict=verdict, message=message, pods=len(group), together=together, finding=finding)


def _node_reasons(state: ClusterState, pods: Sequence[SimulatedPod]) -> Iterator[tuple[str, str]]:
    """Yield why each node cannot run the pods that do not start; once for equal pods."""
    for pod in filter(None, [pod.admitted.pod for pod in _distinct(pod for pod in pods if not pod.starts)]):
        with suppress(CostExceeded):  # too many labels would be compared
            scheduling = state.play.cycle.explain(pod)
            for number, name in enumerate(scheduling.nodes):
                words = [why for why, nodes in scheduling.nodes_by_reason.items() if nodes >> number & 1]
                if words:
                    yield name, ", ".join(words)


def _namespace_notices(state: ClusterState, workload: SubmittedWorkload) -> Iterator[str]:
    """Yield what is not checked of a workload's namespace."""
    objects, namespace = state.simulation.objects, workload.arrival.namespace
    if objects.of("Namespace") and objects.find("Namespace", namespace) is None:
        yield f"the cluster's view has no namespace {namespace}"
    for quota in state.quotas.get(namespace, ()):
        if quota.unchecked:
            yield f"not checked: {', '.join(quota.unchecked)} of ResourceQuota {quota.name}"
    if objects.find(workload.kind, workload.name, namespace) is not None:
        yield f"{workload.kind} {namespace}/{workload.name} already exists; these pods are counted in addition"


def _pod_notices(pods: Iterable[SimulatedPod]) -> Iterator[str]:
    """Yield what is not modelled of pods, and the warnings of rules."""
    for pod in pods:
        yield from pod.admitted.record.warnings
        if LIMITS_OF_VOLUMES in pod.admitted.record.not_modelled:
            yield f"not modelled: {LIMITS_OF_VOLUMES}"
        yield from (text_member(each, "note") for each in found_volumes(pod.admitted.object) if "note" in each)
        if text_member(as_mapping(pod.admitted.object.get("spec")), "nodeName"):
            yield "not modelled: spec.nodeName, with which a pod bypasses the scheduler"


def _unknown_of_pods(pods: Iterable[SimulatedPod], objects: ClusterObjects) -> Iterator[str]:
    """Yield what could prevent the start of pods and is not in the input, or not modelled."""
    if "Node" in objects.absent:
        yield "nodes were not read"
    if "Pod" in objects.partial:
        yield f"{objects.unread('Pod')}, which were not read"
    for pod in pods:
        known = (SCHEDULING_GATES, LIMITS_OF_VOLUMES)
        yield from (what for what in pod.admitted.record.not_modelled if what not in known)


def with_unknown_pods(answer: PreflightAnswer, problems: Iterable[Problem]) -> PreflightAnswer:
    """Return the answer, which is unknown if all known pods start, but the input may have others."""
    unknown = answer.verdict is Verdict.STARTS and unknown_pods(problems)
    return replace(answer, verdict=Verdict.UNKNOWN) if unknown else answer


def _distinct(pods: Iterable[SimulatedPod]) -> Collection[SimulatedPod]:
    """Return the first pod of each admission, which equal pods share."""
    first: dict[int, SimulatedPod] = {}
    for pod in pods:
        first.setdefault(id(pod.admitted), pod)
    return first.values()


def _findings(state: ClusterState, workloads: PodsByWorkload) -> Mapping[int, Finding]:
    """Return doctor's reasons why pods wait, by the identity of their admission, which equal pods share."""
    # What keeps one pod of a gang is no reason of the others.
    waiting = _distinct(pod for pods in workloads for pod in pods if pod.waits and pod.alone is None)
    if not waiting:
        return {}
    identities = {pod.name: id(pod.admitted) for pod in waiting}
    objects, scheduler = _objects_now(state, workloads, waiting), state.play.cycle.scheduler
    use_scheduler(objects, scheduler)
    # Without rules: what ladders would give is among the changes.
    entries = pending_pods(objects, scheduler, None, lambda item: f"{item.namespace}/{item.name}" in identities)
    findings = [each.finding for each in entries if each.finding.reason != PendingReason.NO_SCHEDULER_MESSAGE]
    return {identities[f"{each.object.namespace}/{each.object.name}"]: each for each in findings}


def _objects_now(state: ClusterState, workloads: PodsByWorkload, waiting: Iterable[SimulatedPod]) -> ClusterObjects:
    """Return the objects of the cluster with the pods of the workloads on their nodes, and waiting pods."""
    evicted = {victim for pods in workloads for pod in pods for victim in pod.victims}
    pods: list[dict[str, Json]] = []
    for item in state.simulation.objects.pods:
        name = f"{item.namespace}/{item.name}"
        node = state.node_of_pod.get(name, "")
        if node and name not in evicted:
            pods.append(item if node == item.node_name else {**item, "spec": {**item.spec, "nodeName": node}})
    pods += [_pod_object(pod) for pods_of in workloads for pod in pods_of if pod.starts]
    return state.simulation.objects.with_objects({"Pod": [*pods, *map(_pod_object, waiting)]})


def _pod_object(pod: SimulatedPod) -> dict[str, Json]:
    raw = pod.admitted.object
    namespace, _, name = pod.name.partition("/")
    metadata: dict[str, Json] = {**as_mapping(raw.get("metadata")), "name": name, "namespace": namespace}
    return {**raw, "kind": "Pod", "metadata": metadata, "spec": {**as_mapping(raw.get("spec")), "nodeName": pod.node}}
