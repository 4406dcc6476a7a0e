"""Wording of simulations that several formats share: times, amounts and names of arrivals."""

from rules_engine.model import wording
from rules_engine.model.gpu.resources import is_gpu, short_name
from rules_engine.model.kubernetes.names import object_title
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.rules.simulation import Arrival, Milliseconds
from rules_engine.simulation.record import Amounts, PodRecord, State

BEGINNING = "at the beginning"
"""Title of pods that existed at the beginning."""


def to_seconds(time: Milliseconds | None) -> int | float | None:
    """Return a time in seconds, with milliseconds as decimals; None without a time."""
    if time is None:
        return None
    whole, milliseconds = divmod(time, 1000)
    return time / 1000 if milliseconds else whole


def format_amount(resource: str, nanos: int) -> str:
    """Return an amount: devices as a number, other resources as Kubernetes writes them."""
    return f"{nanos // NANOS:,}" if is_gpu(resource) else wording.format_amount(resource, nanos)


def format_gpus(amounts: Amounts) -> str:
    """Return the GPUs in amounts; all amounts if there are no GPUs."""
    gpus = {name: held for name, held in amounts.items() if held and is_gpu(name)}
    chosen = gpus or {name: held for name, held in amounts.items() if held}
    texts = [f"{format_amount(name, held)} × {short_name(name)}" for name, held in sorted(chosen.items())]
    return ", ".join(texts) or "nothing"


def format_request(pod: PodRecord) -> str:
    """Return the GPUs that a pod requested, and the GPUs it was given if they differ: "requested → given"."""
    requested, given = format_gpus(pod.admitted.requested), format_gpus(pod.admitted.given)
    return requested if requested == given or pod.state is State.DENIED else f"{requested} → {given}"


def pod_title(pod: PodRecord) -> str:
    return object_title("Pod", pod.name, pod.namespace)


def arrival_title(arrival: Arrival) -> str:
    kind, _, name = arrival.title.partition("/")
    return object_title(kind, name, arrival.namespace)
