"""Gangs: pods of a workload that start together or not at all."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from rules_engine.model.rules.simulation import Arrival
from rules_engine.model.wording import format_count
from rules_engine.questions.preflight.state import ClusterState, SimulatedPod, Verdict, missing_pods


def explain_waiting(state: ClusterState, arrival: Arrival, pods: Sequence[SimulatedPod]) -> None:
    """Set what may start pods that wait, and the verdict and the message of those whose gang does not start."""
    # Equal pods share their admission.
    distinct = {id(pod.admitted): pod for pod in pods if pod.waits and not pod.starts_alone}
    may_start = {key: state.may_start(pod) for key, pod in distinct.items()}
    for pod in pods:
        pod.unknown = may_start.get(id(pod.admitted), ()) if pod.waits else ()
    gang = [*{id(pod): pod for pod in pods if pod.alone}.values()]
    waiting = [pod for pod in gang if pod.waits]
    missing = missing_pods(arrival, Counter(pod.group for pod in gang if pod.starts_alone))
    if missing is None or not waiting:
        return
    each = {pod.unknown for pod in gang if not pod.starts_alone}
    complete = missing_pods(arrival, Counter(pod.group for pod in gang)) is None
    unknown = tuple(dict.fromkeys(chain(*sorted(each)))) if complete and all(each) else ()
    verdict, message = Verdict.WAITS, _pods_text(missing, "{} could start now: they wait together")
    # A pod that is denied or refused has its own reason.
    if len(waiting) == len(gang) and (reason := _why_never(state, arrival, gang)):
        verdict, message = Verdict.NEVER, f"{reason}{'' if unknown else ': never together'}"
    for pod in waiting:
        pod.verdict, pod.unknown = verdict, unknown
        pod.message = f"{'each gang ' if arrival.gang.number > 1 else ''}needs {message}"


def _pods_text(missing: tuple[str, int, int], found: str) -> str:
    which, minimum, count = missing
    return f"{format_count(minimum, 'pod')}{which} at once, {found.format(count)}"


def _why_never(state: ClusterState, arrival: Arrival, gang: Sequence[SimulatedPod]) -> str:
    """Return what a gang needs and lacks even if all nodes were empty and Ready; "" if it could start."""
    if len(gang) < arrival.gang.minimum:
        return _pods_text(("", arrival.gang.minimum, len(gang)), "and has {}")
    missing = missing_pods(arrival, state.could_hold_together(gang))
    return _pods_text(missing, "the cluster could hold {} without other pods") if missing else ""
