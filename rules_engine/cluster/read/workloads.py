"""Pods that arrive in a simulation: from a Pod, a workload with replicas or a Job → PodGroup."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

from rules_engine.cluster.creation.controllers import TEMPLATE_HASH, claim_templates
from rules_engine.cluster.read.manifests import Manifest, find_manifests, manifest_json, read_single_pod, with_objects
from rules_engine.cluster.read.pods import node_at_pointer
from rules_engine.cluster.read.references import References, read_manifests
from rules_engine.cluster.scheduling.requirements import Requirements, read_selector
from rules_engine.cluster.workloads.table import WorkloadTable
from rules_engine.language.fields import map_field, string_field
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode, find_node, first_key
from rules_engine.model.json.lenient import Object, as_list, as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import PodError, TooLargeError, json_type
from rules_engine.model.kubernetes.names import is_label, is_subdomain
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, Severity, did_you_mean
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules.rule import LabelSelector
from rules_engine.model.rules.simulation import PodGroup

DAEMON_SET = "DaemonSet"

_COUNTS = ("replicas", "parallelism", "completions")
"""Members above a template that are numbers of pods."""

_SELECTING = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
"""Kinds whose selector the scheduler uses to spread pods (pkg/scheduler/framework/plugins/helper/spread.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The pods of an object."""

    kind: str
    name: str
    namespace: str
    groups: tuple[PodGroup, ...]


class ArrivalReader:
    """Reader of the Pods and workloads of a Simulation. `classes`: names of PriorityClasses; None: not known."""

    def __init__(self, problems: Problems, references: References, classes: Collection[str] | None) -> None:
        self._problems = problems
        self._references = references
        self._classes = classes

    def read(self, line: MapNode, fallback: str, priority: int | None) -> Workload | None:
        """Read the Pod or the workload of an arrival; None, with problems, if it cannot arrive."""
        is_pod = line.get("pod") is not None or line.get("podFile") is not None
        name = "pod" if is_pod else "workload"
        value, file = line.get(name), line.get(f"{name}File")
        roots: Sequence[YamlNode] = () if value is None else (value,)
        if value is None:
            roots = read_manifests(file, self._problems, self._references, single=is_pod) or ()
        place = line.key(name) or file or line
        templates = (self._pod if is_pod else self._workload)(roots, place) if roots else ()
        if not templates:
            return None
        for manifest in templates:
            own = Problems()
            manifest.check(own)
            # A pod without containers is an error here: there is nothing to schedule.
            self._problems.items += [problem for problem in own.items if problem.code is not Code.NO_CONTAINERS]
        name = string_field(line, "name") or object_name(templates[0], fallback)
        for manifest in templates:
            self._check_priority(manifest, priority)
        return read_workload(templates, name, self._problems, priority)

    def _check_priority(self, manifest: Manifest, priority: int | None) -> None:
        field = map_field(manifest.node, "spec").get("priorityClassName")
        name = text_member(as_mapping(manifest.pod.get("spec")), "priorityClassName")
        if field is None or not name:
            return
        if priority is not None:
            message = "'priority' of the arrival and 'priorityClassName' of its pod cannot be used together"
            self._problems.error(Code.CONFLICTING_FIELDS, message, field)
        elif self._classes is not None and name not in self._classes:
            message = f"PriorityClass '{truncate(name)}' not found{did_you_mean(name, self._classes)}"
            self._problems.error(Code.UNKNOWN_PRIORITY_CLASS, message, field)

    def _pod(self, roots: Sequence[YamlNode], place: YamlNode) -> Sequence[Manifest]:
        own = Problems()
        manifest = read_single_pod(roots[0], place, own)
        if manifest is None:
            self._problems.items += own.items  # `read` reports those of a pod
            return ()
        if manifest.path:
            message = f"a {truncate(manifest.kind)} is not a Pod: write it in 'workload'"
            self._problems.error(Code.NOT_A_POD, message, place)
            return ()
        return (manifest,)

    def _workload(self, roots: Sequence[YamlNode], place: YamlNode) -> Sequence[Manifest]:
        table = with_objects(WorkloadTable(self._references.workload_kinds), roots)
        own = Problems()
        found = [pod for root in roots for pod in find_manifests(root, own, table)]
        self._problems.items += own.items
        by_object = [[*pods] for _, pods in groupby(found, key=lambda pod: id(pod.root))]
        # An object to which others refer, such as a TrainingRuntime, makes no pods of its own.
        workloads = [pods for pods in by_object if any(each.template.total for each in pods)] or by_object[-1:]
        refusal = ""
        if len(workloads) > 1:
            refusal = f"expected one workload, not {len(workloads)}, such as a Deployment or a Job"
        elif not workloads and not own.items:
            refusal = "expected an object with a pod template, such as a Deployment or a Job"
        elif workloads and workloads[0][0].kind == DAEMON_SET:
            refusal = "pods of a DaemonSet do not arrive: write them in 'pods' of the cluster, on its nodes"
        if refusal:
            self._problems.error(Code.NOT_A_WORKLOAD, refusal, place)
        return () if refusal or not workloads else workloads[0]


def read_workload(
    templates: Sequence[Manifest], name: str, problems: Problems, priority: int | None = None
) -> Workload:
    """Read an object by all its pod templates, under a name. `priority`: of its pods, in place of a class's."""
    first = templates[0]
    for member, is_valid in (("name", is_subdomain), ("namespace", is_label)):
        value = find_node(first.root, ("metadata", member))
        if isinstance(value, ScalarNode) and isinstance(value.value, str) and not is_valid(value.value):
            problems.error(Code.BAD_POD, f"'{truncate(value.value)}' is not a {member} of Kubernetes", value)
    groups: list[PodGroup] = []
    for manifest, role in zip(templates, _template_roles(templates), strict=True):
        _check_pod(manifest, problems)
        check_counts(manifest, problems)
        whole = f"{name}-{role}" if role else name
        pod = manifest.created(whole)
        if priority is not None:
            pod = {**pod, "spec": {**as_mapping(pod.get("spec")), "priority": priority}}
        if manifest.template.total:
            group = PodGroup(
                name=whole,
                pod=pod,
                parallel=manifest.template.parallel,
                total=manifest.template.total,
                controlled=bool(manifest.path),
                selector=_spread_selector(manifest, pod),
                minimum=manifest.template.minimum,
                claims=claim_templates(manifest.object) if manifest.is_built_in else {},
            )
            groups.append(group)
    return Workload(kind=first.kind, name=name, namespace=first.namespace, groups=tuple(groups))


def _check_pod(manifest: Manifest, problems: Problems) -> None:
    """Report further mistakes for which the API server rejects the pod."""
    try:
        pod = Pod.parse(manifest.pod)
    except PodError:  # which Manifest.check reports
        return
    amounts = [
        (path, name, amount)
        for each in pod.containers
        for path, of in ((each.requests_path, each.requests), (each.limits_path, each.limits))
        for name, amount in of.items()
    ]
    for path, name, amount in amounts:
        wrong = "cannot be negative" if amount.nanos < 0 else "must be a whole number"
        if amount.nanos < 0 or ("/" in name and not amount.is_whole):
            place = find_node(manifest.node, (*path, name))
            problems.error(Code.BAD_POD, f"{truncate(name)} {wrong}: Kubernetes rejects the pod", place)
    spec = map_field(manifest.node, "spec")
    if not as_list(as_mapping(manifest.pod.get("spec")).get("containers")):
        place = spec.key("containers") or manifest.node.key("spec") or first_key(manifest.node)
        problems.error(Code.NO_CONTAINERS, "the pod has no containers: Kubernetes rejects it", place)
    try:
        Requirements.of(manifest.pod)
    except (PodError, TooLargeError) as error:
        place = node_at_pointer(error.path, manifest.node)
        errors = (problem for problem in problems.items if problem.severity is Severity.ERROR)
        if place.location not in {each.location for each in errors}:  # else Manifest.check has reported it
            problems.error(Code.BAD_POD, str(error), place)


def object_name(manifest: Manifest, fallback: str) -> str:
    """Return an object's name, or its generateName without the "-"."""
    return manifest.name or manifest.generate_name.rstrip("-") or fallback


def _template_roles(templates: Sequence[Manifest]) -> list[str]:
    """Return a name for each template of an object, such as `worker`; "" for the only one."""
    if len(templates) == 1:
        return [""]
    names = [manifest.template.role.lower().replace("/", "-") or "pods" for manifest in templates]
    return [name if names.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(names, 1)]


def check_counts(manifest: Manifest, problems: Problems) -> None:
    """Report numbers of pods of a built-in kind that are no whole numbers, and warn of those that are 0.

    Other kinds may have the same members for something else, and their rows fail for wrong numbers.
    """
    if not manifest.is_built_in:
        return
    owners = (find_node(manifest.root, manifest.path[:length]) for length in range(len(manifest.path)))
    for key, node in (pair for owner in owners if isinstance(owner, MapNode) for pair in owner):
        name, value = key.source.text, manifest_json(node)
        if name not in _COUNTS or value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            actual = value if isinstance(value, float) else json_type(value)
            problems.error(Code.WRONG_TYPE, f"{name} must be a whole number, not {actual}", node)
        elif value < 0:
            problems.error(Code.WRONG_VALUE, f"{name} cannot be less than 0", node)
        elif not value and not manifest.template.total:
            problems.warning(Code.IGNORED_FIELD, f"{name} is 0: no pod arrives", key)


def _spread_selector(manifest: Manifest, pod: Object) -> LabelSelector | None:
    """Return the selector that the scheduler uses to spread the pods; None for kinds without one.

    That of a Deployment is its ReplicaSet's, with the hash of the template. `pod`: as its controller creates it.
    """
    if not manifest.is_built_in or manifest.kind not in _SELECTING:
        return None
    spec = as_mapping(manifest.object.get("spec"))
    field = spec.get("selector")
    labels = as_mapping(manifest.pod.get("metadata")).get("labels")
    if manifest.kind == "ReplicationController":
        label_selector: Json = {"matchLabels": field or labels}
    else:
        label_selector = field if isinstance(field, dict) else {"matchLabels": labels}
        digest = as_mapping(as_mapping(pod.get("metadata")).get("labels")).get(TEMPLATE_HASH)
        if manifest.kind == "Deployment" and digest is not None:
            own = as_mapping(label_selector.get("matchLabels"))
            label_selector = {**label_selector, "matchLabels": {**own, TEMPLATE_HASH: digest}}
    selector = read_selector(label_selector)
    return selector if selector is not None and selector.requirements else None
