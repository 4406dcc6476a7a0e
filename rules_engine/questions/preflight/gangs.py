"""Gangs: pods of a workload that start together or not at all."""

from collections.abc import Sequence
from dataclasses import replace

from rules_engine.cluster.devices.offers import cluster_view
from rules_engine.model.gpu_resources import is_gpu
from rules_engine.model.json.lenient import controller_reference
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.simulation import Arrival
from rules_engine.model.wording import format_count
from rules_engine.questions.preflight.reading import SubmittedWorkload
from rules_engine.questions.preflight.state import ClusterState, SimulatedPod, Verdict
from rules_engine.rules.evaluation import RuleSet


def stopped_gang(
    state: ClusterState, rule_set: RuleSet, workload: SubmittedWorkload, pods: Sequence[SimulatedPod]
) -> tuple[Verdict, str] | None:
    """Return the verdict and the reason of a workload whose first gang cannot start; None if it can or is unknown."""
    started = sum(pod.starts for pod in pods)
    if workload.gang is None or workload.unknown or any(pod.admitted.pod is None for pod in pods):
        return None
    minimum, number = workload.gang.minimum, workload.gang.number
    if started >= (minimum if number == 1 else len(pods)):
        return None
    groups = [replace(group, parallel=group.parallel // number) for group in workload.arrival.groups]
    members = [
        pod
        for index, group in enumerate(groups)
        for pod in [pod for pod in pods if pod.group == index][: group.parallel]
    ]
    needs = f"needs {format_count(minimum, 'pod')} at once"
    if len(members) < minimum:
        return Verdict.NEVER, f"{needs}, and has {len(members)}: never together"
    for resource in sorted({name for pod in members for name in pod.admitted.record.given if is_gpu(name)}):
        amounts = sorted(pod.admitted.record.given.get(resource, 0) for pod in members)[:minimum]
        offered = sum(
            node.allocatable[resource].nanos for node in state.simulation.cluster.nodes if resource in node.allocatable
        )
        if sum(amounts) > offered:
            needed, there = sum(amounts) // NANOS, offered // NANOS
            return Verdict.NEVER, f"needs {needed} {resource} at once, the cluster has {there}: never together"
    could = _started_if_empty(state, rule_set, replace(workload.arrival, groups=tuple(groups)))
    if could < minimum:
        return Verdict.NEVER, f"{needs}, the cluster could hold {could} without other pods: never together"
    # Of several gangs, some may start.
    return None if started >= minimum else (Verdict.WAITS, f"{needs}, {started} could start now: they wait together")


def _started_if_empty(state: ClusterState, rule_set: RuleSet, gang: Arrival) -> int:
    """Return the number of a gang's pods that would start if the cluster had only the pods of DaemonSets."""
    objects = state.simulation.objects
    daemons = [pod for pod in objects.pods if (controller_reference(pod) or {}).get("kind") == "DaemonSet"]
    empty = objects.with_objects({"Pod": daemons})
    simulation = replace(state.simulation, objects=empty, cluster=cluster_view(empty))
    with ClusterState(simulation, rule_set).simulated([gang]) as [pods]:
        return sum(pod.starts for pod in pods)
