"""Gangs: pods of a workload that start together or not at all."""

from collections import Counter
from collections.abc import Sequence

from rules_engine.accelerators.resources import is_gpu
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.simulation import Arrival
from rules_engine.model.wording import format_count
from rules_engine.questions.preflight.state import ClusterState, SimulatedPod, Verdict, missing_pods


def explain_gang(state: ClusterState, arrival: Arrival, pods: Sequence[SimulatedPod]) -> None:
    """Set the verdict and the message of pods that wait since their gang does not start."""
    gang = [*{id(pod): pod for pod in pods if pod.alone}.values()]
    waiting = [pod for pod in gang if pod.waits]
    missing = missing_pods(arrival, Counter(pod.group for pod in gang if pod.starts_alone))
    if missing is None or not waiting:
        return
    verdict, message = Verdict.WAITS, _pods_text(missing, "{} could start now: they wait together")
    # A pod that is denied or refused has its own reason.
    if len(waiting) == len(gang) and (reason := _why_never(state, arrival, gang)):
        verdict, message = Verdict.NEVER, f"{reason}: never together"
    for pod in waiting:
        pod.verdict, pod.message = verdict, f"{'each gang ' if arrival.gang.number > 1 else ''}needs {message}"


def _pods_text(missing: tuple[str, int, int], found: str) -> str:
    which, minimum, count = missing
    return f"{format_count(minimum, 'pod')}{which} at once, {found.format(count)}"


def _why_never(state: ClusterState, arrival: Arrival, gang: Sequence[SimulatedPod]) -> str:
    """Return what a gang needs and lacks even if all nodes were empty and Ready; "" if it could start."""
    minimum, objects = arrival.gang.minimum, state.simulation.objects
    if len(gang) < minimum:
        return _pods_text(("", minimum, len(gang)), "and has {}")
    given = [pod.admitted.record.given for pod in gang]
    gpus = sorted({name for each in given for name in each if is_gpu(name)})
    if any(node.allocatable.get(name) for node in objects.declared for name in gpus):
        return ""  # an autoscaler may add any number of these nodes
    for name in gpus:
        needed = sum(sorted(each.get(name, 0) for each in given)[:minimum])
        offered = sum(
            node.allocatable[name].nanos for node in state.simulation.cluster.nodes if name in node.allocatable
        )
        if needed > offered:
            return f"{needed // NANOS} {name} at once, the cluster has {offered // NANOS}"
    missing = missing_pods(arrival, state.could_hold_together(gang))
    return _pods_text(missing, "the cluster could hold {} without other pods") if missing else ""
