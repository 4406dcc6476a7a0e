"""Simulations: the cluster, the arrivals of pods and the changes of nodes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from rules_engine.cluster.creation.priority import add_to_pods, priority_classes
from rules_engine.cluster.read.clusters import ClusterReading, load_inventory
from rules_engine.cluster.read.inventory import Inventory
from rules_engine.cluster.read.loader import DocumentKind, Part, load
from rules_engine.cluster.read.references import References, Sources, read_cluster
from rules_engine.cluster.read.workloads import ArrivalReader
from rules_engine.cluster.workloads.kind import WorkloadKind
from rules_engine.language.document_fields import document_name
from rules_engine.language.fields import int_field, map_field, map_items, scalar_arguments, string_field
from rules_engine.language.files import read_file
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode, first_key
from rules_engine.model.durations import DurationError, parse_duration
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import PRIORITY_CLASS, ClusterObjects
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, did_you_mean, warn_of
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules import simulation

_NUMBERED = re.compile(r"(.+)-([1-9][0-9]{0,6})")
"""A name with a number, such as pods of an arrival with a count have."""

_FIELDS = ("pod", "podFile", "workload", "workloadFile")


def read_simulation(root: MapNode, problems: Problems, references: References) -> simulation.Simulation:
    """Read the simulation of a document; it is valid only if neither the schema nor `problems` has an error.

    Without a cluster, it can be checked but not run.
    """
    spec = map_field(root, "spec")
    has_cluster = spec.get("cluster") is not None
    inventory = read_cluster(map_field(spec, "cluster"), problems, references) if has_cluster else None
    return _build_simulation(root, inventory, problems, references)


SIMULATION = DocumentKind(name="Simulation", part=Part.TESTS, read=read_simulation)


def load_simulation(file: str | Path, kinds: Sequence[WorkloadKind] = ()) -> simulation.Simulation:
    """Load the only Simulation of a file, with its cluster.

    `kinds`: of workloads, in addition to the packaged ones. Warnings are issued as UserWarning. Raises InputError.

    >>> from rules_engine import load_simulation
    >>> load_simulation("rules_engine/scenarios/ten-pods.yaml").name
    'ten-pods'
    """
    simulations, problems, _ = load_simulations(Path(file), (), kinds)
    warn_of(problems)
    return simulations[0]


def load_simulations(
    path: Path, clusters: Sequence[ClusterReading], kinds: Sequence[WorkloadKind] = (), *, needs_cluster: bool = True
) -> tuple[Sequence[simulation.Simulation], tuple[Problem, ...], Sources]:
    """Load the only Simulation of a file, once for each cluster; nothing if it has errors.

    `clusters` replace the simulation's own cluster. The message of a problem with only some of the clusters names
    the cluster. `kinds`: as in `load_simulation`. `needs_cluster`: having no cluster is an error.
    """

    def read(root: MapNode, problems: Problems, references: References) -> Sequence[simulation.Simulation]:
        references.workload_kinds += kinds
        if clusters:
            own = [Problems() for _ in clusters]
            built = [
                _build_simulation(root, cluster.inventory, each, references)
                for cluster, each in zip(clusters, own, strict=True)
            ]
            for cluster, each in zip(clusters, own, strict=True):
                for problem in each.items:
                    shared = all(problem in others.items for others in own)
                    message = problem.message if shared else f"{problem.message} (cluster {cluster.location.file})"
                    problems.items.append(structs.replace(problem, message=message))
            return built
        if needs_cluster and map_field(root, "spec").get("cluster") is None:
            place = first_key(root)
            problems.error(Code.MISSING_FIELD, "the simulation has no 'cluster': write one, or pass --cluster", place)
        return [read_simulation(root, problems, references)]

    found = Problems()
    source = read_file(path, found)
    kind = DocumentKind(name=SIMULATION.name, part=SIMULATION.part, read=read)
    loaded = load([] if source is None else [source], (kind,), load_inventory, found, single=True)
    loaded = loaded.require_one(Code.NOT_A_SIMULATION, "a Simulation", "a Simulation")
    usable = not loaded.failed and all(cluster.objects is not None for cluster in clusters)
    sources = [*(cluster.sources for cluster in clusters), loaded.sources]
    return (
        loaded.documents[0].value if usable else (),  # type: ignore[return-value]
        (*loaded.problems, *(problem for cluster in clusters for problem in cluster.problems)),
        {name: lines for each in sources for name, lines in each.items()},
    )


def _build_simulation(
    root: MapNode, inventory: Inventory | None, problems: Problems, references: References
) -> simulation.Simulation:
    spec = map_field(root, "spec")
    name, location, _ = document_name(root)
    objects = inventory.objects() if inventory is not None else None
    unlisted = frozenset(kind for kind in _NAMED_KINDS if objects is not None and not objects.of(kind))
    until = _read_duration(spec.get("until"), problems)
    reader = ArrivalReader(problems, references, None if objects is None else priority_classes(objects))
    return simulation.Simulation(
        name=name,
        location=location,
        cluster=inventory.cluster if inventory is not None else Cluster(),
        objects=ClusterObjects({}) if objects is None else add_to_pods(objects).with_objects({}, absent=unlisted),
        arrivals=tuple(_read_arrivals(map_items(spec, "arrivals"), reader, objects, until, problems)),
        events=tuple(_read_events(map_items(spec, "events"), objects, until, problems)),
        running_for=_read_distribution(spec.get("runningFor"), problems),
        until=until,
        scheduler=_read_scheduler(map_field(spec, "scheduler")),
        **scalar_arguments(spec, simulation.Simulation),
    )


_NAMED_KINDS = (
    "PersistentVolume",
    "PersistentVolumeClaim",
    PRIORITY_CLASS,
    "RuntimeClass",
    "ServiceAccount",
    "StorageClass",
)
"""Kinds whose objects pods name. A cluster of a Simulation that has none may not have listed them."""


def _read_scheduler(fields: MapNode) -> simulation.SchedulerOptions:
    resources = map_field(fields, "resources")
    weights = {key.source.text: int_field(resources, key.source.text) or 1 for key, _ in resources}
    options = simulation.SchedulerOptions(**scalar_arguments(fields, simulation.SchedulerOptions))
    return replace(options, resources=weights) if weights else options


def _read_arrivals(
    lines: Sequence[MapNode],
    reader: ArrivalReader,
    objects: ClusterObjects | None,
    until: int | None,
    problems: Problems,
) -> Iterator[simulation.Arrival]:
    """Read arrivals; report names of earlier objects of the same kind and namespace, or of pods of the cluster."""
    names, pods = _TakenNames(), 0
    for pod in objects.pods if objects is not None else ():
        names.take(("Pod", pod.namespace, pod.name), 1, "is in the cluster")
    for number, line in enumerate(lines, 1):
        at = _read_duration(line.get("at"), problems) or 0
        _report_after(line.get("at"), at, until, problems)
        count = int_field(line, "count") or 1
        if count > simulation.MAX_PODS:  # which the schema reports
            count = 1
        every, key = _read_distribution(line.get("every"), problems), line.key("every")
        if key is not None and line.get("count") is None:
            problems.error(Code.MISSING_FIELD, "'every' needs 'count', the number of arrivals", key)
        run_for = _read_distribution(line.get("runFor"), problems)
        workload = reader.read(line, f"arrival-{number}", int_field(line, "priority"))
        if workload is None or not workload.groups:
            continue
        chosen, node = string_field(line, "namespace"), line.get("namespace")
        if node is not None and workload.namespace not in ("", chosen):
            title = truncate(f"{workload.kind}/{workload.name}")
            message = f"{title} has namespace {truncate(workload.namespace)}, not {chosen}"
            problems.error(Code.CONFLICTING_FIELDS, message, node)
        namespace = chosen or workload.namespace or DEFAULT_NAMESPACE
        place = next(key for name in _FIELDS if (key := line.key(name)) is not None)
        taken = names.take((workload.kind, namespace, workload.name), count, f"is in line {place.location.line}")
        if taken:
            message = f"{workload.kind} '{truncate(taken[0])}' {taken[1]} already: write 'name' for another one"
            problems.error(Code.DUPLICATE_NAME, message, place)
        before, pods = pods, pods + count * sum(group.total for group in workload.groups)
        if before <= simulation.MAX_PODS < pods:
            problems.error(Code.TOO_MANY_PODS, f"more than {simulation.MAX_PODS:,} pods arrive", place)
        yield simulation.Arrival(
            title=f"{workload.kind}/{workload.name}",
            namespace=namespace,
            groups=workload.groups,
            at=at,
            every=every or simulation.Distribution(),
            count=count,
            run_for=run_for,
        )


_ObjectKey = tuple[str, str, str]
"""Kind, namespace and name."""


class _TakenNames:
    """Names that are taken by single objects or by numbered series, each with its place."""

    def __init__(self) -> None:
        self._single: dict[_ObjectKey, str] = {}
        self._numbers: dict[_ObjectKey, list[tuple[int, str]]] = {}
        """Numbers and places of single objects whose name ends with a number, by the name before it."""
        self._series: dict[_ObjectKey, tuple[int, str]] = {}
        """Length and place of each numbered series, by its name without the number."""

    def take(self, key: _ObjectKey, count: int, where: str) -> tuple[str, str] | None:
        """Take a name, or `count` numbered names; return a name that was already taken, with its place."""
        kind, namespace, name = key
        if count > 1:
            taken = [(f"{name}-{number}", place) for number, place in self._numbers.get(key, ()) if number <= count]
            if key in self._series:
                taken.append((f"{name}-1", self._series[key][1]))
            self._series.setdefault(key, (count, where))
            return taken[0] if taken else None
        numbered = _NUMBERED.fullmatch(name)
        if key in self._single:
            return name, self._single[key]
        self._single[key] = where
        if numbered:
            stem = (kind, namespace, numbered[1])
            self._numbers.setdefault(stem, []).append((int(numbered[2]), where))
            most, place = self._series.get(stem, (0, ""))
            if int(numbered[2]) <= most:
                return name, place
        return None


def _read_events(
    lines: Sequence[MapNode], objects: ClusterObjects | None, until: int | None, problems: Problems
) -> Iterator[simulation.NodeEvent]:
    nodes = [node.name for node in objects.nodes] if objects is not None else []
    node_names = frozenset(nodes)
    for line in lines:
        at = _read_duration(line.get("at"), problems) or 0
        _report_after(line.get("at"), at, until, problems)
        name, node_field = string_field(line, "node"), line.get("node")
        if node_field is not None and objects is not None and name not in node_names:
            message = f"node '{truncate(name)}' not found{did_you_mean(name, nodes)}"
            problems.error(Code.UNKNOWN_NODE, message, node_field)
        becomes = simulation.NodeState(string_field(line, "becomes", simulation.NodeState.READY.value))
        yield simulation.NodeEvent(at=at, node=name, becomes=becomes)


def _report_after(node: YamlNode | None, at: int, until: int | None, problems: Problems) -> None:
    if node is not None and until is not None and at > until:
        problems.error(Code.AFTER_UNTIL, "this is after 'until', the end of the simulation", node)


def _read_duration(node: YamlNode | None, problems: Problems) -> simulation.Milliseconds | None:
    """Read a duration; None if it is absent, or malformed, which is reported."""
    if not isinstance(node, ScalarNode):
        return None
    try:
        return parse_duration(node.source.text)
    except DurationError as error:
        problems.error(Code.WRONG_VALUE, str(error), node)
        return None


def _read_distribution(node: YamlNode | None, problems: Problems) -> simulation.Distribution | None:
    """Read a duration or a distribution; None if it is absent, or malformed, which is reported."""
    if not isinstance(node, MapNode):
        fixed = _read_duration(node, problems)
        return None if fixed is None else simulation.Distribution(least=fixed, most=fixed)
    least, most, mean = (_read_duration(node.get(name), problems) for name in ("min", "max", "mean"))
    if mean is not None and (node.get("min") is not None or node.get("max") is not None):
        key = node.key("mean") or node
        problems.error(Code.CONFLICTING_FIELDS, "'mean' cannot be used together with 'min' and 'max'", key)
    longest, middle = node.get("max"), node.get("mean")
    if longest is not None and least is not None and most is not None and most < least:
        problems.error(Code.WRONG_VALUE, "max is shorter than min", longest)
    if middle is not None and mean == 0:
        problems.error(Code.WRONG_VALUE, "the mean must be longer than 0s", middle)
    if mean is not None:
        return simulation.Distribution(mean=mean)
    return simulation.Distribution(least=least, most=most) if least is not None and most is not None else None
