"""Inputs of a preflight: the workloads of manifests, and the cluster at which they arrive."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from rules_engine.documents.load import load_reduced_inventory
from rules_engine.documents.manifest_stream import join_parts, stream_manifests
from rules_engine.documents.references import Inventory, Sources
from rules_engine.documents.workloads import DAEMON_SET, JOBS, Priorities, WorkloadReader, object_name
from rules_engine.loading.kubernetes.manifests import TEMPLATES, Manifest, manifest_json
from rules_engine.model.json.lenient import as_mapping, as_string_map
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.simulation import Arrival, Simulation
from rules_engine.scheduling.requirements import DEFAULT_NAMESPACE

QUEUE_LABELS: Mapping[str, str] = {
    "kueue.x-k8s.io/queue-name": "Kueue",
    "kai.scheduler/queue": "KAI Scheduler",
}
"""Labels of workloads or pods that a queueing system admits first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A workload of a manifest. `count_field`: the field with the number of its pods, "" if it has none or several.

    `queues`: components with queues that decide first, with the label that names their queue.
    """

    kind: str
    name: str
    location: Location
    arrival: Arrival
    count_field: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The workloads in order, and their cluster as a simulation."""

    workloads: Sequence[Submitted]
    simulation: Simulation


def read_inputs(
    manifests: Sequence[Path], cluster: Path, namespace: str
) -> tuple[Inputs | None, tuple[Problem, ...], Sources]:
    """Read manifests, and the cluster of a file; None if there are errors. `namespace`: of manifests without one."""
    part = join_parts(stream_manifests(manifests))
    inventory, problems, lines = load_reduced_inventory(cluster, regular=False)
    own = Problems()
    own.items += [*part.problems, *problems]
    sources = {**part.sources, **lines}
    inputs = None if inventory is None or own.failed else _build_inputs(part.pods, namespace, inventory, own)
    return None if own.failed else inputs, tuple(own.items), sources


def _build_inputs(pods: Sequence[Manifest], namespace: str, inventory: Inventory, problems: Problems) -> Inputs:
    objects = inventory.objects()
    # The API server refuses unknown PriorityClasses, which is an answer and not an error of the manifest.
    reader = WorkloadReader(problems, replace(Priorities.of(objects), complete=False))
    workloads = tuple(_read_workloads(pods, namespace, reader, problems))
    simulation = Simulation(
        name=inventory.name,
        location=inventory.location,
        cluster=inventory.cluster,
        objects=Priorities.of(objects).add_to_pods(objects),
        arrivals=tuple(workload.arrival for workload in workloads),
    )
    return Inputs(workloads=workloads, simulation=simulation)


def _read_workloads(
    pods: Iterable[Manifest], namespace: str, reader: WorkloadReader, problems: Problems
) -> Iterator[Submitted]:
    for number, (_, group) in enumerate(groupby(pods, key=lambda pod: id(pod.root)), 1):
        templates = tuple(group)
        first = templates[0]
        if first.kind == DAEMON_SET:
            message = f"{first.title()} is left out: its pods are created for nodes, not as many as a number says"
            problems.warning(Code.NOT_A_WORKLOAD, message, first.location)
            continue
        if namespace and first.namespace not in ("", namespace):
            message = f"{first.kind} {first.name} has namespace {first.namespace}, not {namespace}"
            problems.error(Code.CONFLICTING_FIELDS, message, first.location)
        workload = reader.read(templates, object_name(first, f"workload-{number}"))
        if workload.groups:
            yield Submitted(
                kind=workload.kind,
                name=workload.name,
                location=first.location,
                arrival=Arrival(
                    title=f"{workload.kind}/{workload.name}",
                    namespace=namespace or workload.namespace or DEFAULT_NAMESPACE,
                    groups=workload.groups,
                ),
                count_field=_count_field(first),
                queues=tuple(_queues(templates)),
            )


def _count_field(manifest: Manifest) -> str:
    if manifest.kind not in TEMPLATES or not manifest.path:
        return ""
    return "parallelism" if manifest.kind in JOBS else "replicas"


def _queues(templates: Sequence[Manifest]) -> Iterator[str]:
    objects = [manifest_json(templates[0].root), *(template.pod for template in templates)]
    for label, component in QUEUE_LABELS.items():
        for item in objects:
            queue = as_string_map(as_mapping(as_mapping(item).get("metadata")).get("labels")).get(label)
            if queue:
                yield f"{component} (label {label}: {queue})"
                break
