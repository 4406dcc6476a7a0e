"""Inputs of a preflight: the workloads of manifests, and the cluster at which they arrive."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rules_engine.cluster.creation.priority import add_to_pods
from rules_engine.cluster.devices.offers import cluster_view
from rules_engine.cluster.read.manifests import Manifest, manifest_json
from rules_engine.cluster.read.workloads import DAEMON_SET, object_name, read_workload
from rules_engine.cluster.scheduling.daemon_pods import daemon_pods
from rules_engine.cluster.workloads.kind import EACH_ITEM, EACH_MEMBER
from rules_engine.language.yaml.nodes import find_node
from rules_engine.model.json.lenient import as_mapping, as_string_map, object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import InputError, Problem, Problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.simulation import Arrival, Gang, Simulation

SUSPENDED = "suspend: true"

MAX_PODS = 100_000
"""Pods of a workload at once: a cluster has at most 150,000, and each that waits takes a millisecond."""

QUEUE_LABELS: Mapping[str, str] = {"kueue.x-k8s.io/queue-name": "Kueue", "kai.scheduler/queue": "KAI Scheduler"}
"""Labels of workloads or pods that a queueing system admits first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedWorkload:
    """A workload of a manifest. `count_field`: the field with the number of its pods; "" if each template has its own;
    None if no field has just this number, or fewer pods would be a part of a gang.

    `once`: what has to happen before the scheduler decides, such as "it is resumed (suspend: true)". `unknown`: why the
    number of its pods is not known.
    """

    kind: str
    name: str
    location: Location
    arrival: Arrival
    count_field: str | None
    once: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def read_inputs(
    manifests: Sequence[Manifest], objects: ClusterObjects, *, name: str, namespace: str
) -> tuple[Simulation, Sequence[SubmittedWorkload], tuple[Problem, ...]]:
    """Return the cluster `name` as a simulation, the workloads of manifests, and warnings.

    `namespace`: of manifests without one. Raises InputError.
    """
    problems = Problems()
    workloads = tuple(_read_workloads(manifests, namespace, objects, problems))
    simulation = Simulation(
        name=name,
        location=Location(name, 1, 1),
        cluster=cluster_view(objects),
        objects=add_to_pods(objects),
        arrivals=(),
    )
    if problems.failed:
        raise InputError(problems.items)
    return simulation, workloads, tuple(problems.items)


def _read_workloads(
    pods: Iterable[Manifest], namespace: str, objects: ClusterObjects, problems: Problems
) -> Iterator[SubmittedWorkload]:
    places: dict[tuple[str, str, str], Location] = {}
    for number, (_, group) in enumerate(groupby(pods, key=lambda pod: id(pod.root)), 1):
        templates = tuple(group)
        first = templates[0]
        if namespace and first.namespace not in ("", namespace):
            message = f"{first.kind} {first.name} has namespace {first.namespace}, not {namespace}"
            problems.error(Code.CONFLICTING_FIELDS, message, first.location)
        workload = read_workload(templates, object_name(first, f"workload-{number}"), problems)
        key = (workload.kind, namespace or workload.namespace or DEFAULT_NAMESPACE, workload.name)
        if key in places:
            problems.error(Code.DUPLICATE_NAME, f"{first.title(key[1])} is already in {places[key]}", first.location)
        places[key] = first.location
        groups = workload.groups
        if first.is_built_in and first.kind == DAEMON_SET:
            groups = tuple(
                replace(group, pod=pod, parallel=1, total=1)
                for group in groups
                for pod in daemon_pods(group.pod, objects.empty_nodes)
            )
        if sum(group.parallel for group in groups) > MAX_PODS:
            problems.error(Code.TOO_MANY_PODS, f"more than {MAX_PODS:,} pods start at once", first.location)
            groups = ()
        counts: Counter[str] = Counter()
        for each in templates:
            counts.update({each.template.unknown: each.template.parallel} if each.template.unknown else {})
        yield SubmittedWorkload(
            kind=workload.kind,
            name=workload.name,
            location=first.location,
            arrival=Arrival(
                title=f"{workload.kind}/{workload.name}",
                namespace=key[1],
                groups=groups,
                gang=Gang() if counts else first.facts.gang or Gang(),
            ),
            count_field=None if first.facts.gang else _count_field(templates),
            once=tuple(dict.fromkeys(_conditions(templates))),
            unknown=tuple(f"the number of pods: {number} assumed ({why})" for why, number in counts.items()),
        )


def _count_field(templates: Sequence[Manifest]) -> str | None:
    """Return the field by which a user changes the number of pods, as in SubmittedWorkload."""
    first = templates[0]
    steps = tuple(first.facts.count_field.split("."))
    if not first.facts.count_field or any(step.endswith((EACH_ITEM, EACH_MEMBER)) for step in steps):
        return ""
    value = manifest_json(find_node(first.root, steps)) if len(templates) == 1 else None
    is_count = value == first.template.parallel or (not isinstance(value, int) and first.template.parallel == 1)
    return ".".join(steps).removeprefix("spec.") if len(templates) == 1 and is_count else None


def _conditions(templates: Sequence[Manifest]) -> Iterator[str]:
    """Yield what has to happen before the pods of an object are scheduled."""
    root, decided_by = templates[0].object, templates[0].facts.decided_by
    if decided_by == SUSPENDED or as_mapping(root.get("spec")).get("suspend") is True:
        yield f"it is resumed ({SUSPENDED})"
    elif decided_by:
        yield f"{decided_by} admits it"
    objects = [root, *(template.pod for template in templates)]
    for label, component in QUEUE_LABELS.items():
        for item in objects:
            queue = as_string_map(as_mapping(item.get("metadata")).get("labels")).get(label)
            if queue:
                yield f"{component} admits it (label {label}: {queue})"
                break
    for spec in (as_mapping(template.pod.get("spec")) for template in templates if template.template.total):
        for gate in object_items(spec.get("schedulingGates")):
            yield f"scheduling gate {text_member(gate, 'name')} is removed"
