"""Answers as tables: a row for each pod, or for each change of the use of a node."""

from collections.abc import Iterator

from rules_engine.model.kubernetes.quantity import Quantity, base_units
from rules_engine.simulation.answer import Answer
from rules_engine.simulation.record import Amounts
from rules_engine.simulation.totals import waited
from rules_engine.simulation.usage import bound_pods, use_changes
from rules_engine.simulation.words import arrival_title, seconds

PODS = (
    "rules", "namespace", "pod", "arrival", "priority", "requested", "given", "falls", "state", "node",
    "arrivedSeconds", "boundSeconds", "endedSeconds", "waitedSeconds", "message", "by", "replaces",
)  # fmt: skip
"""Columns of the table of pods."""

USAGE = ("rules", "node", "resource", "seconds", "used", "capacity")
"""Columns of the table of the use of nodes."""


def pod_rows(answer: Answer) -> Iterator[tuple[object, ...]]:
    """Yield a row for each pod."""
    for record in (result.record for result in answer.results):
        for pod in record.pods:
            admitted = pod.admitted
            yield (
                record.rules,
                pod.namespace,
                pod.name,
                arrival_title(pod, record),
                pod.priority,
                _amounts(admitted.requested),
                _amounts(admitted.given),
                "; ".join(f"{fall.requested} -> {fall.given}" for fall in admitted.falls),
                pod.state.value,
                pod.node,
                *map(seconds, (pod.arrived, pod.bound, pod.ended, waited(pod))),
                pod.message or admitted.message,
                pod.by,
                pod.replaces,
            )


def usage_rows(answer: Answer) -> Iterator[tuple[object, ...]]:
    """Yield a row for each change of the use of a resource of a node."""
    for result in answer.results:
        record, pods = result.record, bound_pods(result.record)
        for node in result.totals.nodes:
            for name, at, used in use_changes(pods[node.node], node.resources, record):
                capacity = node.resources[name].capacity
                yield record.rules, node.node, name, seconds(at), base_units(used), base_units(capacity)


def _amounts(amounts: Amounts) -> str:
    return "; ".join(f"{name}={Quantity(nanos)}" for name, nanos in sorted(amounts.items()))
