"""Answers as JSON, described by schemas/output/simulate.json. A pod is one line."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from rules_engine.model.kubernetes.quantity import NANOS, base_units
from rules_engine.report.documents import Dump, field_members, location_members, object_parts
from rules_engine.simulation.answer import Answer, Result
from rules_engine.simulation.figures import Figures
from rules_engine.simulation.record import Amounts, PodRecord, Record
from rules_engine.simulation.totals import ClusterUse, NodeUse, PodsWith, ResourceUse, Totals
from rules_engine.simulation.usage import pods_by_node, use_changes, waiting_time
from rules_engine.simulation.words import to_seconds


def simulation_document(answer: Answer, dump: Dump, problems: Sequence[Any] = ()) -> Iterator[str]:
    """Yield the parts of the document of `simulate --output json`. `problems`: those of its input, as members."""
    simulation = answer.simulation
    summary = {
        "simulation": simulation.name,
        "source": location_members(simulation.location),
        "seed": simulation.seed,
        "untilSeconds": to_seconds(simulation.until),
        "scheduler": field_members(simulation.scheduler, "scoring resources preemption"),
        "comparison": _comparison_members(answer),
        "problems": problems,
    }
    yield from object_parts(summary, {"results": (_result_parts(result, dump) for result in answer.results)}, dump)
    yield "\n"


def _result_parts(result: Result, dump: Dump) -> Iterator[str]:
    record, totals = result.record, result.totals
    pods = pods_by_node(record)
    summary = {
        **field_members(record, "cluster rules interrupted"),
        "endedSeconds": to_seconds(record.ended),
        "totals": _totals_members(totals),
        "notices": list(record.notices),
        "fallbacks": [field_members(fallback, "rule requested given pods devices") for fallback in totals.fallbacks],
        "denials": [{**_group_members(group), "message": group.text, "rule": group.rule} for group in totals.denials],
        "pending": [
            {**_group_members(group), "message": group.text, "given": amount_members(group.given)}
            for group in totals.pending
        ],
        "notModelled": [{**_group_members(group), "what": group.text} for group in totals.not_modelled],
        "changes": [
            {"atSeconds": to_seconds(each.at), **field_members(each, "node becomes")} for each in record.changes
        ],
    }
    lists = {
        "nodes": (_node_members(node, pods[node.node], record) for node in totals.nodes),
        "pods": (_pod_members(pod, record) for pod in record.pods),
    }
    yield from object_parts(summary, lists, dump)


def amount_members(nanos_by_resource: Amounts) -> dict[str, Any]:
    """Return amounts by resource, in cores, bytes and devices."""
    return {name: base_units(nanos) for name, nanos in sorted(nanos_by_resource.items())}


def _mean_units(nanos: Fraction) -> float:
    return float(nanos / NANOS)


def _totals_members(totals: Totals) -> dict[str, Any]:
    waiting = totals.waiting
    return {
        **field_members(totals, "pods states bound fell_back replaced"),
        "waiting": {
            "p50Seconds": to_seconds(waiting.p50),
            "p95Seconds": to_seconds(waiting.p95),
            "atEnd": waiting.waiting,
            "longestAtEndSeconds": to_seconds(waiting.longest),
        },
        "gpuHours": field_members(totals.figures.hours, "capacity requested given lost short unused stranded"),
        "resources": {name: _cluster_use_members(use) for name, use in totals.resources.items()},
    }


def _use_members(use: ResourceUse) -> dict[str, Any]:
    return {
        "capacity": base_units(use.capacity),
        "mean": _mean_units(use.mean),
        "peak": base_units(use.peak),
        "end": base_units(use.end),
    }


def _cluster_use_members(use: ClusterUse) -> dict[str, Any]:
    curve = [_mean_units(part) for part in use.curve]
    return {**_use_members(use), "curve": curve}


def _group_members(group: PodsWith) -> dict[str, Any]:
    """Return the number of pods and the first pod. The others can be found among all pods."""
    first = group.pods[0]
    return {"pods": len(group.pods), "first": f"{first.namespace}/{first.name}"}


def _node_members(node: NodeUse, pods: Sequence[PodRecord], record: Record) -> dict[str, Any]:
    used: dict[str, list[Any]] = {name: [] for name in node.resources}
    for name, at, amount in use_changes(pods, node.resources, record):
        used[name].append([to_seconds(at), base_units(amount)])
    return {
        "name": node.node,
        "pods": node.pods,
        "resources": {name: {**_use_members(use), "used": used[name]} for name, use in node.resources.items()},
    }


def _pod_members(pod: PodRecord, record: Record) -> dict[str, Any]:
    admitted = pod.admitted
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "arrival": None if pod.arrival is None else record.simulation.arrivals[pod.arrival].title,
        "priority": pod.priority,
        "requested": amount_members(admitted.requested),
        "given": amount_members(admitted.given),
        "fallbacks": [
            {**field_members(fallback, "rule requested given"), "devices": fallback.count}
            for fallback in admitted.fallbacks
        ],
        "warnings": list(admitted.warnings),
        "state": pod.state.value,
        "node": pod.node or None,
        "arrivedSeconds": to_seconds(pod.arrived),
        "boundSeconds": to_seconds(pod.bound),
        "endedSeconds": to_seconds(pod.ended),
        "waitedSeconds": to_seconds(waiting_time(pod)),
        "message": pod.message or admitted.message or None,
        "deniedBy": admitted.denied_by,
        "replaces": pod.replaces or None,
        "by": pod.by or None,
    }


def _comparison_members(answer: Answer) -> dict[str, Any] | None:
    """Return the table of figures; None if a simulation was interrupted."""
    if answer.interrupted:
        return None
    best = answer.best
    rows = []
    for number, result in enumerate(answer.results):
        own = {**field_members(result.record, "cluster rules"), "best": number in best}
        rows.append({**own, **figure_members(result.totals.figures)})
    never_ran = [f"{pod.namespace}/{pod.name}" for pod in answer.never_ran]
    return {"by": answer.by.value, "rows": rows, "neverRan": never_ran}


def figure_members(figures: Figures) -> dict[str, Any]:
    """Return the figures of a simulation as JSON members."""
    return {
        **field_members(figures, "pods ran"),
        "waitingSeconds": None if figures.waiting is None else float(figures.waiting / 1000),
        "gpuHours": field_members(figures.hours, "given lost unused stranded"),
    }
