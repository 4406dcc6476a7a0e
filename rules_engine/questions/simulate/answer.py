"""Answer of simulations of one workload: the pods, nodes and totals of each, and the best of them.

Amounts are numbers of cores, bytes and devices; times are seconds since the simulation began.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, structs

from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.output import Output
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.simulation import Milliseconds, NodeState, Strategy
from rules_engine.model.wording import format_names
from rules_engine.questions.simulate.figures import By, Figures, GpuHours, best, compute_figures
from rules_engine.questions.simulate.record import NOT_ADMITTED, Fallback, PodRecord, Record, State
from rules_engine.questions.simulate.totals import (
    ClusterUse,
    Denial,
    FallbackTotal,
    NodeUse,
    NotModelled,
    PodNames,
    Units,
    UnitsByResource,
    Waiting,
    count_fallbacks,
    group_denials,
    group_not_modelled,
    group_pending,
    measure_use,
    percentile,
    pod_names,
    to_seconds,
    to_units,
)
from rules_engine.questions.simulate.usage import distinct_admissions, waiting_time
from rules_engine.report.answer import Answer

RulesName = Annotated[str, Meta(description='As in --rules or --compare; "" without rules.')]
ClusterName = Annotated[str, Meta(description="The value of --cluster; empty: the Simulation's own cluster.")]


class WaitingTimes(Output, frozen=True, kw_only=True):
    """Waiting times of the pods that got a node, by nearest rank, and of those that wait at the end."""

    p50_seconds: Annotated[Units | None, Meta(description="null: no pod got a node.")]
    p95_seconds: Units | None
    at_end: Annotated[int, Meta(description="Pods that wait at the end.")]
    longest_at_end_seconds: Units


class Totals(Output, frozen=True, kw_only=True):
    """Numbers of pods, and the use of the cluster."""

    pods: int
    states: Annotated[Mapping[State, int], Meta(description="Pods by state.")]
    bound: Annotated[int, Meta(description="Pods that got a node.")]
    fell_back: Annotated[int, Meta(description="Pods that were given another resource than they requested.")]
    replaced: Annotated[int, Meta(description="Pods that replace lost ones.")]
    waiting: WaitingTimes
    gpu_hours: GpuHours
    resources: Mapping[str, ClusterUse]


class NodeChange(Output, frozen=True, kw_only=True):
    """A change of a node that happened."""

    at_seconds: Units
    node: str
    becomes: NodeState


class PodResult(Output, frozen=True, kw_only=True):
    """A pod when the simulation ended."""

    namespace: str
    name: str
    arrival: Annotated[str | None, Meta(description="Kind/name of what arrived; null: it was there at the beginning.")]
    priority: int
    requested: UnitsByResource
    given: UnitsByResource
    fallbacks: tuple[Fallback, ...]
    warnings: Annotated[tuple[str, ...], Meta(description="Warnings of the rules.")]
    state: State
    node: Annotated[str | None, Meta(description="It stays after the pod has ended.")]
    arrived_seconds: Units
    bound_seconds: Units | None
    ended_seconds: Units | None
    waited_seconds: Annotated[Units | None, Meta(description="null: it ran from the beginning, or was not admitted.")]
    message: Annotated[str | None, Meta(description="Of the scheduler, or of the denial or refusal.")]
    denied_by: RuleId | None
    replaces: Annotated[str | None, Meta(description="The lost pod that its controller replaced by it.")]
    by: Annotated[str | None, Meta(description="The pod that preempted it, or the change of its node that ended it.")]

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class Result(Output, frozen=True, kw_only=True):
    """The answer for one cluster and rule set."""

    cluster: ClusterName
    rules: RulesName
    interrupted: Annotated[bool, Meta(description="True: ended by Ctrl-C, at endedSeconds.")]
    ended_seconds: Annotated[Units, Meta(description="The end of the simulation; of several, the end of the longest.")]
    totals: Totals
    notices: Annotated[tuple[str, ...], Meta(description="What was left out.")]
    fallbacks: Annotated[tuple[FallbackTotal, ...], Meta(description="By rule and resources, the most frequent first.")]
    denials: Annotated[tuple[Denial, ...], Meta(description="The most frequent first.")]
    pending: Annotated[tuple[Waiting, ...], Meta(description="Pods that wait at the end, the most frequent first.")]
    not_modelled: tuple[NotModelled, ...]
    changes: tuple[NodeChange, ...]
    nodes: tuple[NodeUse, ...]
    pods: tuple[PodResult, ...]


class ComparedResult(Figures, frozen=True, kw_only=True):
    """The figures of a result."""

    cluster: ClusterName
    rules: RulesName
    best: Annotated[bool, Meta(description="No row is better; several rows tie.")]


class Scheduler(Output, frozen=True, kw_only=True):
    """Options of kube-scheduler."""

    scoring: Strategy
    resources: Annotated[Mapping[str, int], Meta(description="The weights of the resources that are scored.")]
    preemption: Annotated[bool, Meta(description="Pods preempt others of lower priority.")]


class Comparison(Output, frozen=True, kw_only=True):
    """The figures of all results."""

    by: Annotated[By, Meta(description="The figure that decides which row is best.")]
    rows: Annotated[tuple[ComparedResult, ...], Meta(description="In the order of the results.")]
    never_ran: Annotated[PodNames, Meta(description="Namespace and name of each pod that ran in no simulation.")]


class SimulationAnswer(Answer, frozen=True, kw_only=True):
    """Simulations of a workload on each cluster under each rule set. Amounts are in cores, bytes and devices."""

    simulation: Annotated[str, Meta(description="The name of the Simulation.")]
    source: Location
    seed: int
    until_seconds: Annotated[Units | None, Meta(description="The end; null: when nothing changes any more.")]
    scheduler: Scheduler
    comparison: Annotated[Comparison | None, Meta(description="null if a simulation was interrupted.")]
    results: tuple[Result, ...]


def build_answer(records: Sequence[Record], by: By = By.WAITING) -> SimulationAnswer:
    """Return the answer.

    All simulations are measured up to the end of the longest: nothing changes after the end of the others.
    """
    interrupted = any(record.interrupted for record in records)
    if not interrupted:
        ended = max(record.ended for record in records)
        records = [replace(record, ended=ended) for record in records]
    simulation, figures = records[0].simulation, [*map(compute_figures, records)]
    options = simulation.scheduler
    return SimulationAnswer(
        simulation=simulation.name,
        source=simulation.location,
        seed=simulation.seed,
        until_seconds=_seconds(simulation.until),
        scheduler=Scheduler(scoring=options.scoring, resources=options.resources, preemption=options.preemption),
        comparison=None if interrupted else _comparison(records, figures, by),
        results=tuple(_result(record, each.gpu_hours) for record, each in zip(records, figures, strict=True)),
    )


def _comparison(records: Sequence[Record], figures: Sequence[Figures], by: By) -> Comparison:
    chosen = best([*enumerate(figures)], by) if any(each.ran for each in figures) else ()
    ran = {(pod.namespace, pod.name) for record in records for pod in record.pods if pod.bound is not None}
    return Comparison(
        by=by,
        rows=tuple(
            ComparedResult(
                cluster=record.cluster, rules=record.rules, best=number in chosen, **structs.asdict(figures[number])
            )
            for number, record in enumerate(records)
        ),
        never_ran=pod_names([pod for pod in records[0].pods if (pod.namespace, pod.name) not in ran]),
    )


def _quota_notices(record: Record) -> Iterator[str]:
    """Yield a notice if the API server counts some of the pods in a ResourceQuota."""
    namespaces = {pod.namespace for pod in record.pods}
    quotas = [as_mapping(each.get("metadata")) for each in record.simulation.objects.of("ResourceQuota")]
    names = [
        f"ResourceQuota {each['namespace']}/{each['name']}" for each in quotas if each.get("namespace") in namespaces
    ]
    if names:
        yield f"not modelled: {format_names(names)}"


def _result(record: Record, gpu_hours: GpuHours) -> Result:
    resources, nodes = measure_use(record)
    admissions = distinct_admissions(record.pods)  # which equal pods share
    units = {id(amounts): to_units(amounts) for each in admissions for amounts in (each.requested, each.given)}
    return Result(
        cluster=record.cluster,
        rules=record.rules,
        interrupted=record.interrupted,
        ended_seconds=to_seconds(record.ended),
        totals=Totals(
            pods=len(record.pods),
            states={state: sum(pod.state is state for pod in record.pods) for state in State},
            bound=sum(pod.bound is not None for pod in record.pods),
            fell_back=sum(bool(pod.admitted.fallbacks) and pod.state not in NOT_ADMITTED for pod in record.pods),
            replaced=sum(bool(pod.replaces) for pod in record.pods),
            waiting=_waiting_times(record),
            gpu_hours=gpu_hours,
            resources=resources,
        ),
        notices=(*record.notices, *_quota_notices(record)),
        fallbacks=count_fallbacks(record.pods),
        denials=group_denials(record.pods),
        pending=group_pending(record),
        not_modelled=group_not_modelled(record.pods),
        changes=tuple(
            NodeChange(at_seconds=to_seconds(each.at), node=each.node, becomes=each.becomes) for each in record.changes
        ),
        nodes=nodes,
        pods=tuple(_pod_result(pod, record, units) for pod in record.pods),
    )


def _waiting_times(record: Record) -> WaitingTimes:
    times = sorted(time for pod in record.pods if (time := waiting_time(pod)) is not None)
    waiting = [record.ended - pod.arrived for pod in record.pods if pod.state is State.PENDING]
    return WaitingTimes(
        p50_seconds=_seconds(percentile(times, 50)),
        p95_seconds=_seconds(percentile(times, 95)),
        at_end=len(waiting),
        longest_at_end_seconds=to_seconds(max(waiting, default=0)),
    )


def _pod_result(pod: PodRecord, record: Record, units: Mapping[int, Mapping[str, Units]]) -> PodResult:
    admitted = pod.admitted
    waited = record.ended - pod.arrived if pod.state is State.PENDING else waiting_time(pod)
    return PodResult(
        namespace=pod.namespace,
        name=pod.name,
        arrival=None if pod.arrival is None else record.simulation.arrivals[pod.arrival].title,
        priority=pod.priority,
        requested=units[id(admitted.requested)],
        given=units[id(admitted.given)],
        fallbacks=admitted.fallbacks,
        warnings=admitted.warnings,
        state=pod.state,
        node=pod.node or None,
        arrived_seconds=to_seconds(pod.arrived),
        bound_seconds=_seconds(pod.bound),
        ended_seconds=_seconds(pod.ended),
        waited_seconds=_seconds(waited),
        message=pod.message or admitted.message or None,
        denied_by=admitted.denied_by,
        replaces=pod.replaces or None,
        by=pod.by or None,
    )


def _seconds(time: Milliseconds | None) -> Units | None:
    return None if time is None else to_seconds(time)
