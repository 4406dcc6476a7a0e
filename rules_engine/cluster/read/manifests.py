"""Pods in Kubernetes manifests: Pods, and pod templates of other objects."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TypedDict, cast

from rules_engine.cluster.read.pods import containers_slip, warn_of_pod, warn_of_values
from rules_engine.cluster.workloads.kind import WorkloadKind
from rules_engine.cluster.workloads.table import PACKAGED, WorkloadTable
from rules_engine.cluster.workloads.templates import PodTemplate, WorkloadFacts, WorkloadObject
from rules_engine.language.schemas import spelling_hint
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode, find_node, first_key
from rules_engine.model.gpu_resources import is_gpu, is_resource_name
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes.names import object_title
from rules_engine.model.kubernetes.pod_defaults import first_pod_names, generate_name, with_default_requests
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, SourceText, escape_controls, truncate
from rules_engine.model.rules.rule import API_VERSION

_AMOUNTS = frozenset(
    {"requests", "limits", "overhead", "allocatable", "capacity", "allocatedResources", "emptyDir", "resourceFieldRef"}
)
"""Members of Kubernetes objects whose members are quantities (sizeLimit and divisor in the last two), or strings."""

_SPEC = ("spec", "template")
TEMPLATES: Mapping[str, JsonPath] = {
    "CronJob": ("spec", "jobTemplate", *_SPEC),
    "DaemonSet": _SPEC,
    "Deployment": _SPEC,
    "Job": _SPEC,
    "PodTemplate": ("template",),
    "ReplicaSet": _SPEC,
    "ReplicationController": _SPEC,
    "StatefulSet": _SPEC,
}
"""Paths of the pod templates of Kubernetes' own objects: the value there is a template, whatever its members."""

_MISSPELT = 0.85
"""Least similarity of a misspelt kind to one of these; JobSet, a kind of its own, is below it."""

_OUR_GROUP = API_VERSION.partition("/")[0]

_GROUPS = frozenset({"", "apps", "batch"})
"""API groups of the kinds in `TEMPLATES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A pod as an object creates it.

    `group`, `kind`, `name`, `generate_name` and `namespace` ("" if absent) are the object's; `path` is the template's
    path in it, empty for a Pod. `pod` is a whole Pod as the author wrote it, made from `node`, which is at `path` below
    `root`. `template` has the number of pods, `facts` is what is known of the object as a whole.
    """

    group: str
    kind: str
    name: str
    generate_name: str
    namespace: str
    path: JsonPath
    pod: dict[str, Json]
    node: MapNode = field(repr=False)
    root: YamlNode = field(repr=False)
    template: PodTemplate = field(repr=False)
    facts: WorkloadFacts = field(repr=False)

    @property
    def location(self) -> Location:
        return first_key(self.node).location

    @property
    def is_built_in(self) -> bool:
        """True for a kind of Kubernetes itself, and not one of the same name in another API group."""
        return self.group in _GROUPS and self.kind in TEMPLATES

    def title(self, namespace: str = "") -> str:
        """Return the object's name without control characters, with the template's path if it may have several."""
        name = object_title(self.kind, self.name or "(no name)", namespace or self.namespace)
        inner = ".".join(map(str, self.path))
        return escape_controls(f"{name} {inner}" if inner and self.path != ("spec", "template") else name)

    def submitted(self, name: str = "") -> dict[str, Json]:
        """Return the pod that /mutate gets if the object is created: with its names and its default requests.

        `name`: the object's name, if it is created under another one.
        """
        pod = with_default_requests(self.pod)
        metadata = dict(as_mapping(pod.get("metadata")))
        if self.path:
            metadata.pop("name", None)
            owner = name or self.name or (generate_name(self.generate_name) if self.generate_name else "")
            metadata.update(first_pod_names(self.kind if self.is_built_in else "", owner) if owner else {})
        elif name:
            metadata["name"] = name
        return {**pod, "metadata": metadata}

    def warn(self, problems: Problems) -> None:
        """Warn of members that Kubernetes would drop or refuse."""
        if self.path:
            self._warn_of_object(problems)
        if not self.template.built:
            warn_of_pod(self.node, problems, plain=not self.path or self.is_built_in)

    def warn_of_count(self, problems: Problems) -> None:
        """Warn of a number of pods that is not known."""
        if self.template.unknown:
            name = f"{self.kind}/{self.name or self.generate_name or '(no name)'}"
            count = f"number of pods of {name} unknown: {self.template.parallel} assumed"
            message = escape_controls(f"{count} ({self.template.unknown})")
            problems.warning(Code.UNKNOWN_PODS, message, self.location)

    def _warn_of_object(self, problems: Problems) -> None:
        """Warn of slips around the template of a built-in kind, and of a misspelt kind."""
        root = cast(MapNode, self.root)
        kind = root.get("kind")
        if self.group not in _GROUPS or not isinstance(kind, ScalarNode):
            return
        if self.kind in TEMPLATES:
            warn_of_values(root.get("metadata"), "ObjectMeta", problems)
            self._warn_of_path(TEMPLATES[self.kind], problems)
        elif get_close_matches(self.kind.casefold(), map(str.casefold, TEMPLATES), 1, _MISSPELT):
            message = f"Kubernetes has no kind '{truncate(self.kind)}'{spelling_hint(self.kind, TEMPLATES)}"
            problems.warning(Code.UNKNOWN_KIND, message, kind.location, kind.length)

    def _warn_of_path(self, expected: JsonPath, problems: Problems) -> None:
        """Warn of the first member above the template whose name differs from the kind's."""
        above = self.root
        for step, name in zip(self.path, expected, strict=False):
            if step == name:
                above = find_node(above, (step,))
                continue
            if isinstance(above, MapNode):
                key = next(key for key, _ in above if key.source.text == step)
                message = f"{self.kind} has no field '{truncate(key.source.text)}' here: Kubernetes expects '{name}'"
                problems.warning(Code.UNKNOWN_POD_FIELD, message, key.location, key.length)
            return


def manifest_json(node: YamlNode) -> Json:
    """Return a manifest as JSON; quantities are their text, never floats."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, ListNode):
        return [manifest_json(item) for item in node.items]
    return {
        name: _amounts_json(value) if name in _AMOUNTS else manifest_json(value)
        for name, (_, value) in node.members.items()
    }


def _amounts_json(node: YamlNode) -> Json:
    if not isinstance(node, MapNode):
        return manifest_json(node)
    return {
        name: value.source.text
        if isinstance(value, ScalarNode) and not isinstance(value.value, bool | None)
        else manifest_json(value)
        for name, (_, value) in node.members.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestObject:
    """An object of a document with the pods that it creates. `unread`: why it may have some, if it has none."""

    title: str
    node: YamlNode
    pods: Sequence[Manifest]
    unread: str = ""

    def warn_of_unknown(self, problems: Problems) -> None:
        """Warn of a number of pods that is not known, and of an object that may have pods, but none was found."""
        for manifest in self.pods:
            manifest.warn_of_count(problems)
        if self.unread:
            message = f"pods of {self.title} unknown: {self.unread}"
            problems.warning(Code.UNKNOWN_PODS, message, first_key(self.node).location)


def find_manifests(root: YamlNode, table: WorkloadTable = PACKAGED) -> tuple[Manifest, ...]:
    """Find every pod of a document: a Pod, the pod templates of another object, and the pods of a List's items."""
    return tuple(pod for item in find_objects(root, table) for pod in item.pods)


def find_objects(root: YamlNode, table: WorkloadTable = PACKAGED) -> Iterator[ManifestObject]:
    """Yield the objects of a document with their pods: itself, or the items of a List."""
    for value, node in split_list(manifest_json(root), root):
        yield _find_pods(value, node, table)


def split_list(value: Json, node: YamlNode) -> Iterator[tuple[dict[str, Json], YamlNode]]:
    """Yield the objects of a document with their nodes."""
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if str(value.get("kind")).endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            yield from split_list(item, find_node(node, ("items", index)))
    else:
        yield value, node


def _find_pods(value: dict[str, Json], node: YamlNode, table: WorkloadTable) -> ManifestObject:
    """Return an object with its pods: by the row of its kind, and by what looks like a pod template elsewhere in it."""
    group, kind = text_member(value, "apiVersion").rpartition("/")[0], text_member(value, "kind")
    row = table.row(group, kind)
    workload = WorkloadObject(row, value, table.find) if row is not None else None
    facts = workload.facts() if workload is not None else WorkloadFacts()
    templates = [each for each in workload.templates() if isinstance(each.pod, dict)] if workload is not None else []
    known = [each.path for each in templates]
    reason = "no row of its kind has this template" if row is not None else _unknown_kind(kind)
    reason = "" if _is_ours(value) else reason
    templates += [
        PodTemplate(path=path, pod=pod, role=_path_role(value, path), unknown=reason if path else "")
        for path, pod in _find_templates(value, ())
        if not any(path[: len(each)] == each[: len(path)] for each in known)
    ]
    about = _About(
        group=group,
        kind=kind or "Pod",
        name=_metadata_text(value, "name"),
        generate_name=_metadata_text(value, "generateName"),
        namespace=_metadata_text(value, "namespace"),
        root=node,
        facts=facts,
    )
    pods: list[Manifest] = []
    for template in templates:
        made = replace(template, unknown=template.unknown or (facts.unknown if template.path else ""))
        if made.nested:
            inner = _find_pods({**as_mapping(made.pod)}, find_node(node, made.path), table)
            pods += [_outer_pod(each, made, about) for each in inner.pods]
        else:
            pods.append(_manifest(made, about))
    title = escape_controls(f"{kind or 'Pod'}/{about['name'] or about['generate_name'] or '(no name)'}")
    return ManifestObject(title=title, node=node, pods=pods, unread="" if pods else _unread(value, row, facts))


class _About(TypedDict):
    """The members of a Manifest that are the object's."""

    group: str
    kind: str
    name: str
    generate_name: str
    namespace: str
    root: YamlNode
    facts: WorkloadFacts


def _manifest(template: PodTemplate, about: _About) -> Manifest:
    spec, node = as_mapping(template.pod), find_node(about["root"], template.path)
    if template.built:  # it has no node of its own: its spec is at the node of what it is made from
        node = MapNode(members={"spec": (_key(node), node)}, location=first_key(node).location)
    members = {key: part for key, part in spec.items() if key not in ("apiVersion", "kind", "metadata")}
    pod: dict[str, Json] = {"apiVersion": "v1", "kind": "Pod", "metadata": spec.get("metadata") or {}, **members}
    inner = as_mapping(pod.get("spec"))
    if about["facts"].scheduler and not inner.get("schedulerName"):
        pod["spec"] = {**inner, "schedulerName": about["facts"].scheduler}
    about = {**about, "namespace": about["namespace"] or _metadata_text(spec, "namespace")}
    return Manifest(**about, path=template.path, pod=pod, node=cast(MapNode, node), template=template)


def _key(node: YamlNode) -> ScalarNode:
    key = first_key(node)
    return key if isinstance(key, ScalarNode) else ScalarNode(value="spec", source=SourceText.inline("spec"))


def _outer_pod(inner: Manifest, outer: PodTemplate, about: _About) -> Manifest:
    """Return a pod of an object that another one creates, as a pod of that one."""
    template = replace(
        inner.template,
        path=(*outer.path, *inner.path),
        role="/".join(filter(None, (outer.role, inner.template.role))),
        parallel=outer.parallel * inner.template.parallel,
        total=outer.total * inner.template.total,
        unknown=outer.unknown or inner.template.unknown,
    )
    about = {**about, "namespace": about["namespace"] or inner.namespace}
    return replace(inner, **about, path=template.path, template=template)


def _unread(value: Object, row: WorkloadKind | None, facts: WorkloadFacts) -> str:
    """Return why an object without pods may have some; "" if it has none."""
    kind = text_member(value, "kind")
    if facts.unknown or _is_ours(value) or (row is not None and not row.templates):
        return facts.unknown
    gpu = next(_gpu_names({key: part for key, part in value.items() if key != "metadata"}), "")
    return f"it names {truncate(gpu)}, and {_unknown_kind(kind)}" if gpu else ""


def _unknown_kind(kind: str) -> str:
    return f"{truncate(kind) or 'it'} is no known kind of workload"


def _is_ours(value: Object) -> bool:
    """Return True for a document of gpu-rules, such as a RuleTest: its pods are examples."""
    return text_member(value, "apiVersion").partition("/")[0] == _OUR_GROUP


def _gpu_names(value: Json) -> Iterator[str]:
    """Yield the names of GPU resources in a value, among keys and texts."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from (key,) if is_gpu(key) else _gpu_names(part)
    elif isinstance(value, list):
        for part in value:
            yield from _gpu_names(part)
    elif isinstance(value, str) and is_gpu(value) and is_resource_name(value):
        yield value


def _path_role(value: Json, path: JsonPath) -> str:
    """Return the name of a template in an object of an unknown kind: of its list's item, or of a member of its path."""
    role = ""
    for step in path:
        value = value[step]  # type: ignore[index]
        if isinstance(step, int):
            role = text_member(as_mapping(value), "name") or role
        elif step not in ("spec", "template", "jobTemplate"):
            role = step.lower()
    return role


def _find_templates(value: Json, path: JsonPath) -> Iterator[tuple[JsonPath, dict[str, Json]]]:
    """Yield all PodTemplateSpecs (a spec with a list of containers), under members of any name."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_templates(item, (*path, index))
    elif isinstance(value, dict):
        if _is_pod(value, at_root=not path):
            yield path, value
        else:
            for name, member in value.items():
                yield from _find_templates(member, (*path, name))


def _is_pod(value: dict[str, Json], *, at_root: bool) -> bool:
    if at_root and "kind" in value:
        # Custom resources of some operators have a spec with containers, and are not pods.
        return value["kind"] == "Pod"
    spec = value.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def _metadata_text(value: Object, name: str) -> str:
    return text_member(as_mapping(value.get("metadata")), name)


def read_single_pod(
    root: YamlNode, place: YamlNode, problems: Problems, template: str | None = None
) -> Manifest | None:
    """Return the one pod of a document, with warnings; None, with a problem at `place`, if there is not exactly one.

    `template`: the name of one of several templates, "" for none; None where no name can be given. A template without
    pods counts only if there is no other.
    """
    every = find_manifests(root)
    names = ", ".join(sorted({pod.template.role for pod in every if pod.template.role}))
    pods = [pod for pod in every if not template or pod.template.role.casefold() == template.casefold()]
    pods = [pod for pod in pods if pod.template.total] or pods
    if len(pods) == 1:
        pods[0].warn(problems)
        return pods[0]
    slip = None if every else containers_slip(root)
    if slip is not None:
        message, at = slip
        problems.error(Code.NOT_A_POD, message, at.location, at.length)
        return None
    if not every:
        expected = "a Pod (spec, with a list of containers) or something with a pod template"
    elif not pods:
        expected = f"one of the names {names}" if names else "no name: the pod template has none"
    else:
        choice = f": podFile: {{file: FILE, template: NAME}} takes one of {names}"
        expected = f"one pod, not {len(pods)}{choice if names and template == '' else ''}"
    problems.error(Code.NOT_A_POD, f"expected {expected}", place.location, place.length)
    return None
