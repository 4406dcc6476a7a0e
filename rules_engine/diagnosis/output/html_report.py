"""Reports as one HTML page that needs no other file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rules_engine.diagnosis.output import sentences
from rules_engine.diagnosis.output.node_groups import NodeGroup, node_groups, state
from rules_engine.diagnosis.report import Amounts, GpuNode, Report
from rules_engine.diagnosis.wording import time
from rules_engine.html_page import render
from rules_engine.model.wording import NAMES, names

TEMPLATE = Path(__file__).parent / "report.html"

MAX_ROWS = 200
"""Rows of a section, and names of objects in a finding: a page with more opens slowly, and JSON has them all."""

MAX_GROUPS = 40
"""Groups of nodes that are alike, if there are more nodes than MAX_ROWS."""

MAX_GROUP_NODES = 40
"""Nodes of one group, those with the most free devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The parts of a bar in percent of the capacity, and the sentence that says the same."""

    allocated: float
    free: float
    lost: float
    overcommitted: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroup:
    """A group of nodes with those of its nodes that are shown."""

    group: NodeGroup
    nodes: Sequence[GpuNode]


def html_report(report: Report) -> str:
    """Return the page of `doctor --output html`."""
    nodes = report.overview.nodes
    groups = node_groups(nodes) if len(nodes) > MAX_ROWS else ()
    return render(
        TEMPLATE,
        report=report,
        overview=report.overview,
        unread={absent.objects for absent in report.absent},
        groups=[ShownGroup(group=group, nodes=_most_free(group.nodes)) for group in groups[:MAX_GROUPS]],
        more_groups=len(groups[MAX_GROUPS:]),
        max_rows=MAX_ROWS,
        bar=bar,
        state=state,
        words=sentences,
        some_names=names,
        max_names=NAMES,
        time=time,
    )


def _most_free(nodes: Sequence[GpuNode]) -> Sequence[GpuNode]:
    def free(node: GpuNode) -> int:
        return sum(amounts.free or 0 for amounts in node.resources.values())

    return sorted(nodes, key=lambda node: (-free(node), node.name))[:MAX_GROUP_NODES]


def bar(amounts: Amounts) -> Bar:
    """Return the bar of a resource: what is allocated, what is free, and what is not allocatable."""
    allocated, free = amounts.allocated or 0, max(amounts.free or 0, 0)
    lost = max(amounts.capacity - max(amounts.allocatable, allocated), 0)
    whole = max(amounts.capacity, amounts.allocatable, allocated, 1)
    parts = [
        "allocated amount unknown" if amounts.allocated is None else f"{allocated:,} allocated",
        f"{amounts.allocatable:,} allocatable" if amounts.free is None else f"{amounts.free:,} free",
        *(
            []
            if amounts.allocatable == amounts.capacity
            else [f"{amounts.allocatable:,} of {amounts.capacity:,} allocatable"]
        ),
    ]
    return Bar(
        allocated=100 * allocated / whole,
        free=100 * (free if amounts.allocated is not None else 0) / whole,
        lost=100 * lost / whole,
        overcommitted=allocated > amounts.allocatable,
        text=", ".join(parts),
    )
