"""Equal pods of an arrival, as one line of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rules_engine.simulation.output.sentences import request
from rules_engine.simulation.record import PodRecord, Record, State

BEGINNING = "at the beginning"
"""The title of pods that were there at the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualPods:
    """Pods of one arrival with equal requests, which were given the same; `pods` is not empty."""

    title: str
    request: str
    states: Mapping[State, int]
    pods: Sequence[PodRecord]


def title(pod: PodRecord, record: Record) -> str:
    """Return the title of a pod's arrival."""
    return BEGINNING if pod.arrival is None else record.simulation.arrivals[pod.arrival].title


def equal_pods(record: Record) -> Sequence[EqualPods]:
    """Return the pods in groups, in the order of their first pods."""
    found: dict[tuple[int | None, str], list[PodRecord]] = {}
    requests: dict[tuple[int, bool], str] = {}
    for pod in record.pods:
        key = id(pod.admitted), pod.state is State.DENIED
        text = requests.get(key)
        if text is None:
            text = requests[key] = request(pod)
        found.setdefault((pod.arrival, text), []).append(pod)
    return [
        EqualPods(title=title(pods[0], record), request=text, states=_states(pods), pods=pods)
        for (_, text), pods in found.items()
    ]


def _states(pods: Sequence[PodRecord]) -> Mapping[State, int]:
    counts = Counter(pod.state for pod in pods)
    return {state: counts[state] for state in State if counts[state]}
