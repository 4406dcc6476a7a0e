"""Answers as tables in CSV (RFC 4180): a line for each pod, or for each change of the use of a node."""

import csv
from collections.abc import Iterator
from typing import TextIO

from rules_engine.model.excerpt import visible
from rules_engine.model.quantity import Quantity, base_units
from rules_engine.simulation.answer import Answer, Result
from rules_engine.simulation.output.equal_pods import title
from rules_engine.simulation.output.sentences import seconds
from rules_engine.simulation.record import Amounts
from rules_engine.simulation.totals import waited
from rules_engine.simulation.usage import bound_pods, use_changes

PODS = (
    "rules",
    "namespace",
    "pod",
    "arrival",
    "priority",
    "requested",
    "given",
    "falls",
    "state",
    "node",
    "arrivedSeconds",
    "boundSeconds",
    "endedSeconds",
    "waitedSeconds",
    "message",
    "by",
    "replaces",
)
"""Columns of the table of pods."""

USAGE = ("rules", "node", "resource", "seconds", "used", "capacity")
"""Columns of the table of the use of nodes."""

_FORMULAS = ("=", "+", "-", "@")
"""Beginnings of a cell that spreadsheets evaluate."""


def write_pods(answer: Answer, stream: TextIO) -> None:
    """Write a line for each pod."""
    _write(stream, PODS, (row for result in answer.results for row in _pods(result)))


def write_usage(answer: Answer, stream: TextIO) -> None:
    """Write a line for each change of the use of a resource of a node."""
    _write(stream, USAGE, (row for result in answer.results for row in _usage(result)))


def _write(stream: TextIO, head: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_cell(value) for value in row])


def _cell(value: object) -> object:
    """Return a cell with control characters escaped; a text that begins like a formula gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    return visible(f"'{value}" if value.startswith(_FORMULAS) else value)


def _pods(result: Result) -> Iterator[tuple[object, ...]]:
    record = result.record
    for pod in record.pods:
        admitted = pod.admitted
        time = waited(pod)
        yield (
            record.rules,
            pod.namespace,
            pod.name,
            title(pod, record),
            pod.priority,
            _amounts(admitted.requested),
            _amounts(admitted.given),
            "; ".join(f"{fall.requested} -> {fall.given}" for fall in admitted.falls),
            pod.state.value,
            pod.node,
            seconds(pod.arrived),
            "" if pod.bound is None else seconds(pod.bound),
            "" if pod.ended is None else seconds(pod.ended),
            "" if time is None else seconds(time),
            pod.message or admitted.message,
            pod.by,
            pod.replaces,
        )


def _amounts(amounts: Amounts) -> str:
    return "; ".join(f"{name}={Quantity(nanos)}" for name, nanos in sorted(amounts.items()))


def _usage(result: Result) -> Iterator[tuple[object, ...]]:
    record = result.record
    pods = bound_pods(record)
    for node in result.totals.nodes:
        for name, at, used in use_changes(pods[node.node], node.resources, record):
            capacity = node.resources[name].capacity
            yield record.rules, node.node, name, seconds(at), base_units(used), base_units(capacity)
