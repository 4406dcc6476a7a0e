"""Drawings of nodes: the pods that hold their devices over time."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from rules_engine.model.gpu.resources import is_gpu
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.rules.simulation import Milliseconds, NodeEvent
from rules_engine.model.wording import format_duration, format_percent
from rules_engine.report.values import WIDTH, Drawing, Shape, area_path
from rules_engine.simulation.answer import Result
from rules_engine.simulation.record import PodRecord, Record
from rules_engine.simulation.totals import NodeUse, ResourceUse
from rules_engine.simulation.usage import mean_curve, pods_by_node, run_time, time_span, use_intervals
from rules_engine.simulation.words import format_request, pod_title

LANE_HEIGHT = 10
"""Height of a device."""

MAX_LANES = 64
"""Devices of a node that are drawn one by one; more are drawn as an area of AREA_LANES devices' height."""

AREA_LANES = 4

MAX_TITLE = 80
"""Characters of a pod's name in a drawing."""

COLOURS = 8
"""Number of colours of arrivals; further arrivals start again with the first."""


def node_drawings(result: Result, nodes: Sequence[NodeUse], max_bars: int) -> Sequence[Drawing]:
    """Return the drawings of nodes: of their GPUs, or of all resources of a node without GPUs.

    Nodes are drawn with bars while max_bars suffices, the others with areas.
    """
    record = result.record
    pods = pods_by_node(record)
    changes: dict[str, list[NodeEvent]] = {}
    for change in record.changes:
        changes.setdefault(change.node, []).append(change)
    drawn: list[Drawing] = []
    for node in nodes:
        names = [name for name in node.resources if is_gpu(name)] or list(node.resources)
        for name in names:
            use = node.resources[name]
            held = [pod for pod in pods[node.node] if pod.admitted.given.get(name)]
            bars = list(_pod_bars(held, name, use, record)) if _has_lanes(name, use) and len(held) <= max_bars else None
            if bars is not None and len(bars) > max_bars:
                bars = None
            max_bars -= len(bars or ())
            lanes = AREA_LANES if bars is None else use.capacity // NANOS
            drawn.append(
                Drawing(
                    name=f"Node {node.node}",
                    text=f"{name}, {format_percent(use.share)} used on average",
                    height=lanes * LANE_HEIGHT,
                    shapes=[*(bars or ()), *(_change_mark(change, record) for change in changes.get(node.node, ()))],
                    area=_use_area(held, name, use, record) if bars is None else "",
                )
            )
    return drawn


def _has_lanes(name: str, use: ResourceUse) -> bool:
    return is_gpu(name) and 0 < use.capacity <= MAX_LANES * NANOS


def _x_position(time: Milliseconds, record: Record) -> str:
    return f"{time * WIDTH / time_span(record):.6g}"


def _change_mark(change: NodeEvent, record: Record) -> Shape:
    return Shape(x=_x_position(change.at, record), text=f"{format_duration(change.at)}: {change.becomes.value}")


def _pod_bars(pods: Sequence[PodRecord], name: str, use: ResourceUse, record: Record) -> Iterator[Shape]:
    """Yield the bars of pods. A pod takes the first free devices, as many as there are."""
    lanes = use.capacity // NANOS
    free = list(range(lanes))
    held: list[tuple[Milliseconds, int, Sequence[int]]] = []
    times = [run_time(pod, record) for pod in pods]
    for number in sorted(range(len(pods)), key=lambda number: times[number][0]):
        start, end = times[number]
        if end <= start:
            continue
        while held and held[0][0] <= start:
            free += heappop(held)[2]
        heapify(free)
        pod = pods[number]
        devices = pod.admitted.given[name] // NANOS
        taken = [heappop(free) for _ in range(min(devices, len(free)))]
        heappush(held, (end, number, taken))
        for first, length in _adjacent_lanes(taken):
            yield Shape(
                x=_x_position(start, record),
                y=first * LANE_HEIGHT,
                width=_x_position(end - start, record),
                height=length * LANE_HEIGHT - 1,
                css=bar_classes(pod),
                text=_bar_text(pod, start, end),
            )


def bar_classes(pod: PodRecord) -> str:
    """Return the classes of a pod's bar: the colour of its arrival, and `fell-back`."""
    colour = "there" if pod.arrival is None else f"k{pod.arrival % COLOURS}"
    return f"{colour} fell-back" if pod.admitted.fallbacks else colour


def _bar_text(pod: PodRecord, start: Milliseconds, end: Milliseconds) -> str:
    name = truncate(pod_title(pod), MAX_TITLE)
    return f"{name}: {format_request(pod)}, {format_duration(start)} to {format_duration(end)}"


def _adjacent_lanes(lanes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first lane and the length of each run of adjacent lanes, which are in order."""
    for _, run in groupby(enumerate(lanes), key=lambda pair: pair[1] - pair[0]):
        adjacent = [lane for _, lane in run]
        yield adjacent[0], len(adjacent)


def _use_area(pods: Sequence[PodRecord], name: str, use: ResourceUse, record: Record) -> str:
    """Return the path of the use of a resource over time."""
    levels = ((start, until, used.get(name, 0)) for start, until, used in use_intervals(pods, record))
    return area_path(mean_curve(levels, time_span(record)), use.capacity, AREA_LANES * LANE_HEIGHT)
