"""Parts of sentences in answers for people: times, amounts, resources and metrics."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from rules_engine.model import wording
from rules_engine.model.durations import UNITS
from rules_engine.model.gpu_resources import is_gpu, short_name
from rules_engine.model.quantity import NANOS
from rules_engine.model.simulation import Milliseconds, Simulation
from rules_engine.model.wording import counted
from rules_engine.simulation.comparison import Better, Unit, Value
from rules_engine.simulation.record import Amounts, PodRecord, Record, State
from rules_engine.simulation.totals import Totals, waited

DIRECTIONS: Mapping[Better, str] = {
    Better.HIGHER: "higher is better",
    Better.LOWER: "lower is better",
    Better.NEITHER: "",
}


def duration(time: Milliseconds) -> str:
    """Return a time with its two largest units, such as 1h30m or 45s."""
    for (unit, length), (smaller, part) in pairwise(UNITS.items()):
        if time >= length:
            rest = time % length // part
            return f"{time // length}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{time}ms" if time else "0s"


def seconds(time: Milliseconds) -> int | float:
    """Return seconds, with milliseconds as decimals."""
    whole, rest = divmod(time, 1000)
    return time / 1000 if rest else whole


def percent(share: Fraction | None) -> str:
    """Return a share in percent; "-" if there is none."""
    return "-" if share is None else f"{float(share):.0%}"


def hours(number: Fraction) -> str:
    """Return a number of hours, with two decimals if there are few."""
    return f"{float(number):,.2f}" if number < 100 else f"{float(number):,.0f}"


def amount(resource: str, nanos: int) -> str:
    """Return an amount: devices as a number, all else as Kubernetes writes it."""
    return f"{nanos // NANOS:,}" if is_gpu(resource) else wording.amount(resource, nanos)


def devices(amounts: Amounts) -> str:
    """Return the GPUs in amounts, or without GPUs all of them."""
    gpus = {name: held for name, held in amounts.items() if held and is_gpu(name)}
    chosen = gpus or {name: held for name, held in amounts.items() if held}
    return ", ".join(f"{amount(name, held)} × {short_name(name)}" for name, held in sorted(chosen.items())) or "nothing"


def request(pod: PodRecord) -> str:
    """Return the GPUs that a pod requested, and after an arrow those that it was given if they differ."""
    requested, given = devices(pod.admitted.requested), devices(pod.admitted.given)
    return requested if requested == given or pod.state is State.DENIED else f"{requested} → {given}"


def full_name(pod: PodRecord) -> str:
    return f"{pod.namespace}/{pod.name}"


def names(pods: Sequence[PodRecord]) -> str:
    """Return the names of pods in a line: of many, the first ones."""
    return wording.names(pods, full_name)


def waiting_time(pod: PodRecord, record: Record) -> str:
    """Return the time that a pod waited, or waits at the end; "" for others."""
    if pod.state is State.PENDING:
        return duration(record.ended - pod.arrived)
    time = waited(pod)
    return "" if time is None else duration(time)


def pod_state(pod: PodRecord) -> str:
    """Return the state of a pod, with what ended it."""
    if not pod.by:
        return pod.state.value
    return f"{pod.state.value}: {pod.by}" if pod.state is State.EVICTED else f"{pod.state.value} by {pod.by}"


def states(totals: Totals) -> str:
    """Return the number of pods in each state."""
    return group_states(totals.states)


def group_states(counts: Mapping[State, int]) -> str:
    """Return the number of pods in each state that some are in."""
    return ", ".join(f"{number:,} {state.value.lower()}" for state, number in counts.items() if number)


def longest(pods: Sequence[PodRecord], record: Record) -> str:
    """Return the longest time that pods wait at the end."""
    return duration(record.ended - min(pod.arrived for pod in pods))


def waiting(totals: Totals) -> str:
    """Return the sentence about waiting times."""
    times = totals.waiting
    if times.p50 is None or times.p95 is None:
        bound = "no pod got a node"
    else:
        bound = f"p50 {duration(times.p50)}, p95 {duration(times.p95)}"
    if not times.waiting:
        return bound
    verb = "waits" if times.waiting == 1 else "wait"
    return f"{bound}; {times.waiting:,} {verb} at the end, for up to {duration(times.longest)}"


def gpu_hours(totals: Totals) -> str:
    """Return the sentence about GPU-hours."""
    found = totals.gpu_hours
    used = f" ({percent(found.given / found.capacity)})" if found.capacity else ""
    parts = [f"{hours(found.given)} given of {hours(found.capacity)}{used}", f"{hours(found.requested)} requested"]
    if found.lost:
        parts.append(f"{hours(found.lost)} lost by falling")
    if found.short:
        parts.append(f"{hours(found.short)} given too little")
    return ", ".join(parts)


def head(simulation: Simulation, nodes: int) -> str:
    """Return what was played."""
    options = simulation.scheduler
    parts = [counted(nodes, "node"), f"seed {simulation.seed}", options.scoring.value]
    if not options.preemption:
        parts.append("no preemption")
    return ", ".join(parts)


def value(found: Value, unit: Unit) -> str:
    """Return the value of a metric; "-" if it has none."""
    if found is None:
        return "-"
    match unit:
        case Unit.SHARE:
            return f"{float(found):.1%}"
        case Unit.GPU_HOURS:
            return hours(Fraction(found))
        case Unit.MILLISECONDS:
            return duration(int(found))
    return f"{int(found):,}"
