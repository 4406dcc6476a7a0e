"""Answers as one HTML page that needs no other file and runs no script."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rules_engine.html_page import render
from rules_engine.model.excerpt import truncate
from rules_engine.model.gpu_resources import is_gpu
from rules_engine.simulation.answer import Answer, Result
from rules_engine.simulation.output import sentences
from rules_engine.simulation.output.equal_pods import EqualPods, equal_pods, title
from rules_engine.simulation.output.timelines import AREA_LANES, COLOURS, LANE, WIDTH, Timeline, area, timelines
from rules_engine.simulation.totals import ClusterUse

TEMPLATE = Path(__file__).parent / "answer.html"

MAX_ROWS = 200
"""Rows of a section, of all rule sets together: a page with more opens slowly, and JSON has them all."""

MAX_NODES = 200
"""Nodes with a timeline, of all rule sets together."""

MAX_BARS = 4_000
"""Bars of pods in timelines, of all rule sets together: some 700 kB. Further nodes have areas instead."""

MAX_MESSAGE = 1_000
"""Characters of a message."""

TICKS = 4
"""Parts of the time axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownResult:
    """A result with what the page shows of it.

    `more_nodes`: the number of those without a timeline; `other_nodes`: that of those without GPUs, if some have them.
    """

    result: Result
    timelines: Sequence[Timeline]
    more_nodes: int
    other_nodes: int
    any_existing: bool
    ticks: Sequence[str]
    groups: Sequence[EqualPods]


def html_page(answer: Answer) -> str:
    """Return the page of `simulate --output html`."""
    number = len(answer.results)
    rows = max(MAX_ROWS // number, 1)
    shown = [_shown(result, max(MAX_NODES // number, 1), MAX_BARS // number) for result in answer.results]
    return render(
        TEMPLATE,
        answer=answer,
        results=shown,
        legend=[arrival.title for arrival in answer.simulation.arrivals[:COLOURS]],
        more_arrivals=len(answer.simulation.arrivals[COLOURS:]),
        max_rows=rows,
        width=WIDTH,
        curve_height=AREA_LANES * LANE,
        curve=_curve,
        words=sentences,
        title=title,
        is_gpu=is_gpu,
        cut=_cut,
    )


def _shown(result: Result, max_nodes: int, max_bars: int) -> ShownResult:
    nodes = result.totals.nodes
    drawable = [node for node in nodes if any(map(is_gpu, node.resources))] or nodes
    used = sorted(drawable, key=lambda node: not node.pods)  # idle nodes come last
    time = max(result.totals.time, 1)
    return ShownResult(
        result=result,
        timelines=timelines(result, used[:max_nodes], max_bars),
        more_nodes=len(drawable) - len(used[:max_nodes]),
        other_nodes=len(nodes) - len(drawable),
        any_existing=any(pod.arrival is None for pod in result.record.pods),
        ticks=[sentences.duration(time * tick // TICKS) for tick in range(TICKS + 1)],
        groups=equal_pods(result.record),
    )


def _curve(use: ClusterUse) -> str:
    return area(use.curve, use.capacity, AREA_LANES * LANE)


def _cut(message: str) -> str:
    return truncate(message, MAX_MESSAGE)
