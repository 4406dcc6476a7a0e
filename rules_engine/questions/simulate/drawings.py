"""Drawings of nodes: the pods that hold their devices over time."""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from rules_engine.accelerators.resources import is_gpu
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.problems.source import truncate
from rules_engine.model.wording import format_percent
from rules_engine.questions.simulate.answer import PodResult, Result
from rules_engine.questions.simulate.totals import NodeResourceUse, NodeUse, ResourceUse, Units
from rules_engine.questions.simulate.usage import mean_curve
from rules_engine.questions.simulate.words import format_request, format_seconds
from rules_engine.report.values import WIDTH, Drawing, Shape, area_path

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
    span = max(result.ended_seconds, 0.001)
    arrivals = {arrival: number for number, arrival in enumerate(find_arrivals(result))}
    pods: dict[str, list[PodResult]] = {}
    for pod in result.pods:
        if pod.bound_seconds is not None:
            pods.setdefault(pod.node or "", []).append(pod)
    changes: dict[str, list[Shape]] = {}
    for change in result.changes:
        text = f"{format_seconds(change.at_seconds)}: {change.becomes.value}"
        changes.setdefault(change.node, []).append(Shape(x=_x_position(change.at_seconds, span), text=text))
    drawn: list[Drawing] = []
    for node in nodes:
        names = [name for name in node.resources if is_gpu(name)] or list(node.resources)
        for name in names:
            use = node.resources[name]
            held = [pod for pod in pods.get(node.name, ()) if pod.given.get(name)]
            bars = None
            if is_gpu(name) and 0 < use.capacity <= MAX_LANES and len(held) <= max_bars:
                bars = [*_pod_bars(held, name, use, span, arrivals)]
            if bars is not None and len(bars) > max_bars:
                bars = None
            max_bars -= len(bars or ())
            lanes = AREA_LANES if bars is None else int(use.capacity)
            drawn.append(
                Drawing(
                    name=f"Node {node.name}",
                    text=f"{name}, {format_percent(use.share)} used on average",
                    height=lanes * LANE_HEIGHT,
                    shapes=[*(bars or ()), *changes.get(node.name, ())],
                    area=_use_area(use, span) if bars is None else "",
                )
            )
    return drawn


def find_arrivals(result: Result) -> Sequence[tuple[str, str]]:
    """Return the title and the namespace of what arrived, in the order of their first pods."""
    return [*dict.fromkeys((pod.arrival, pod.namespace) for pod in result.pods if pod.arrival is not None)]


def _x_position(seconds: Units, span: float) -> str:
    return f"{seconds * WIDTH / span:.6g}"


def _pod_bars(
    pods: Sequence[PodResult], name: str, use: ResourceUse, span: float, arrivals: Mapping[tuple[str, str], int]
) -> Iterator[Shape]:
    """Yield the bars of pods. A pod takes the first free devices, as many as there are."""
    lanes = int(use.capacity)
    free = list(range(lanes))
    held: list[tuple[Units, int, Sequence[int]]] = []
    times = [(max(pod.bound_seconds or 0, 0), span if pod.ended_seconds is None else pod.ended_seconds) for pod in pods]
    for number in sorted(range(len(pods)), key=lambda number: times[number][0]):
        start, end = times[number]
        if end <= start:
            continue
        while held and held[0][0] <= start:
            free += heappop(held)[2]
        heapify(free)
        pod = pods[number]
        devices = int(pod.given[name])
        taken = [heappop(free) for _ in range(min(devices, len(free)))]
        heappush(held, (end, number, taken))
        colour = "there" if pod.arrival is None else f"k{arrivals[pod.arrival, pod.namespace] % COLOURS}"
        title = truncate(f"Pod {pod.title}", MAX_TITLE)
        for _, run in groupby(enumerate(taken), key=lambda pair: pair[1] - pair[0]):  # adjacent lanes
            (_, first), *others = run
            yield Shape(
                x=_x_position(start, span),
                y=first * LANE_HEIGHT,
                width=_x_position(end - start, span),
                height=(1 + len(others)) * LANE_HEIGHT - 1,
                css=f"{colour} fell-back" if pod.fallbacks else colour,
                text=f"{title}: {format_request(pod)}, {format_seconds(start)} to {format_seconds(end)}",
            )


def _use_area(use: NodeResourceUse, span: float) -> str:
    """Return the path of the use of a resource over time."""
    end = round(span * 1000)
    ends = [*(round(at * 1000) for at, _ in use.used[1:]), end]
    levels = (
        (round(at * 1000), until, round(amount * NANOS)) for (at, amount), until in zip(use.used, ends, strict=True)
    )
    means = [mean / NANOS for mean in mean_curve(levels, end)]
    return area_path(means, use.capacity, AREA_LANES * LANE_HEIGHT)
