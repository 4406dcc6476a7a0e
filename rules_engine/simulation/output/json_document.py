"""Answers as JSON; schemas/output/simulate.json describes them.

The text is written in parts, a pod in one line: an answer of 100,000 pods is never one value in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from rules_engine.model.json.patch import Json
from rules_engine.model.quantity import NANOS, base_units
from rules_engine.simulation.answer import Answer, Result
from rules_engine.simulation.comparison import Better, Compared, Unit, Value
from rules_engine.simulation.output.sentences import seconds
from rules_engine.simulation.record import Amounts, PodRecord, Record
from rules_engine.simulation.totals import (
    ClusterUse,
    FallTotal,
    NodeUse,
    PodsWith,
    ResourceUse,
    Totals,
    waited,
)
from rules_engine.simulation.usage import bound_pods, use_changes

Dump = Callable[[Json], str]
"""A function that returns JSON in one line."""


def json_document(answer: Answer, dump: Dump) -> Iterator[str]:
    """Yield the parts of the document of `simulate --output json`."""
    simulation = answer.simulation
    yield _opened(
        {
            "simulation": simulation.name,
            "source": str(simulation.location),
            "seed": simulation.seed,
            "untilSeconds": None if simulation.until is None else seconds(simulation.until),
            "scheduler": {
                "scoring": simulation.scheduler.scoring.value,
                "resources": dict(simulation.scheduler.resources),
                "preemption": simulation.scheduler.preemption,
            },
            "comparison": [_compared(each) for each in answer.comparison],
        },
        dump,
    )
    yield '"results": ['
    for index, result in enumerate(answer.results):
        yield ",\n" if index else "\n"
        yield from _result(result, dump)
    yield "\n]\n}\n"


def _opened(members: Mapping[str, Json], dump: Dump) -> str:
    """Return an object without its end, so that members can follow."""
    return "{\n" + "".join(f"{dump(name)}: {dump(value)},\n" for name, value in members.items())


def _listed(items: Iterable[Json], dump: Dump) -> Iterator[str]:
    """Yield a list, an item in each line."""
    yield "["
    for index, item in enumerate(items):
        yield ",\n" if index else "\n"
        yield dump(item)
    yield "\n]"


def _result(result: Result, dump: Dump) -> Iterator[str]:
    record, totals = result.record, result.totals
    yield _opened(
        {
            "rules": record.rules,
            "interrupted": record.interrupted,
            "endedSeconds": seconds(record.ended),
            "totals": _totals(totals),
            "notices": list(record.notices),
            "falls": [_fall(fall) for fall in totals.falls],
            "denials": [{**_pods(group), "message": group.text, "rule": group.rule} for group in totals.denials],
            "pending": [
                {**_pods(group), "message": group.text, "given": amounts(group.given)} for group in totals.pending
            ],
            "notModelled": [{**_pods(group), "what": group.text} for group in totals.not_modelled],
            "changes": [
                {"atSeconds": seconds(change.at), "node": change.node, "becomes": change.becomes.value}
                for change in record.changes
            ],
        },
        dump,
    )
    yield '"nodes": '
    yield from _listed(_nodes(result), dump)
    yield ',\n"pods": '
    yield from _listed((_pod(pod, record) for pod in record.pods), dump)
    yield "\n}"


def amounts(of: Amounts) -> dict[str, Json]:
    """Return amounts by resource, in cores, bytes and devices."""
    return {name: base_units(nanos) for name, nanos in sorted(of.items())}


def number(value: Value) -> int | float | None:
    """Return a number without its unit."""
    return float(value) if isinstance(value, Fraction) else value


def _mean(nanos: Fraction) -> float:
    return float(nanos / NANOS)


def _totals(totals: Totals) -> Json:
    hours, waiting = totals.gpu_hours, totals.waiting
    return {
        "pods": totals.pods,
        "states": {state.value: count for state, count in totals.states.items()},
        "bound": totals.bound,
        "fell": totals.fell,
        "replaced": totals.replaced,
        "waiting": {
            "p50Seconds": None if waiting.p50 is None else seconds(waiting.p50),
            "p95Seconds": None if waiting.p95 is None else seconds(waiting.p95),
            "atEnd": waiting.waiting,
            "longestAtEndSeconds": seconds(waiting.longest),
        },
        "gpuHours": {
            "capacity": float(hours.capacity),
            "requested": float(hours.requested),
            "given": float(hours.given),
            "lost": float(hours.lost),
            "short": float(hours.short),
        },
        "fragmentation": number(totals.fragmentation),
        "resources": {name: _cluster_use(use) for name, use in totals.resources.items()},
    }


def _use(use: ResourceUse) -> dict[str, Json]:
    return {
        "capacity": base_units(use.capacity),
        "mean": _mean(use.mean),
        "peak": base_units(use.peak),
        "end": base_units(use.end),
    }


def _cluster_use(use: ClusterUse) -> Json:
    return {**_use(use), "fragmentation": number(use.fragmentation), "curve": [_mean(part) for part in use.curve]}


def _fall(fall: FallTotal) -> Json:
    return {
        "rule": fall.rule,
        "requested": fall.requested,
        "given": fall.given,
        "pods": fall.pods,
        "devices": fall.devices,
    }


def _pods(group: PodsWith) -> dict[str, Json]:
    """Return the number of pods and the first of them; the others are found by their own members."""
    first = group.pods[0]
    return {"pods": len(group.pods), "first": f"{first.namespace}/{first.name}"}


def _nodes(result: Result) -> Iterator[Json]:
    pods = bound_pods(result.record)
    for node in result.totals.nodes:
        yield _node(node, pods[node.node], result.record)


def _node(node: NodeUse, pods: Sequence[PodRecord], record: Record) -> Json:
    used: dict[str, list[Json]] = {name: [] for name in node.resources}
    for name, at, amount in use_changes(pods, node.resources, record):
        used[name].append([seconds(at), base_units(amount)])
    return {
        "name": node.node,
        "pods": node.pods,
        "resources": {name: {**_use(use), "used": used[name]} for name, use in node.resources.items()},
    }


def _pod(pod: PodRecord, record: Record) -> Json:
    time = waited(pod)
    admitted = pod.admitted
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "arrival": None if pod.arrival is None else record.simulation.arrivals[pod.arrival].title,
        "priority": pod.priority,
        "requested": amounts(admitted.requested),
        "given": amounts(admitted.given),
        "falls": [
            {"rule": fall.rule, "requested": fall.requested, "given": fall.given, "devices": fall.count}
            for fall in admitted.falls
        ],
        "warnings": list(admitted.warnings),
        "state": pod.state.value,
        "node": pod.node or None,
        "arrivedSeconds": seconds(pod.arrived),
        "boundSeconds": None if pod.bound is None else seconds(pod.bound),
        "endedSeconds": None if pod.ended is None else seconds(pod.ended),
        "waitedSeconds": None if time is None else seconds(time),
        "message": pod.message or admitted.message or None,
        "deniedBy": admitted.denied_by,
        "replaces": pod.replaces or None,
        "by": pod.by or None,
    }


def _compared(each: Compared) -> Json:
    metric = each.metric
    in_seconds = metric.unit is Unit.MILLISECONDS
    return {
        "metric": metric.name,
        "unit": "seconds" if in_seconds else metric.unit.value,
        "better": None if metric.better is Better.NEITHER else metric.better.value,
        "values": [_seconds(value) if in_seconds else number(value) for value in each.values],
        "verdicts": [verdict.value for verdict in each.verdicts],
    }


def _seconds(value: Value) -> int | float | None:
    return None if value is None else seconds(int(value))
