"""Pods in Kubernetes manifests: Pods, and pod templates of other objects."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache, partial
from typing import cast

from rules_engine.cluster.creation.controllers import created_pod
from rules_engine.cluster.read.pods import containers_slip, read_pod, warn_of_pod, warn_of_values
from rules_engine.cluster.workloads.table import OWN_GROUPS, ObjectKey, WorkloadTable, own_kinds
from rules_engine.cluster.workloads.templates import PodTemplate, WorkloadFacts, read_workload
from rules_engine.language.files import SourceFile
from rules_engine.language.schemas import spelling_hint
from rules_engine.language.yaml.documents import Dialect, read_documents
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode, find_node, first_key
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes.api_defaults import generate_name, with_default_requests
from rules_engine.model.kubernetes.names import object_title
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, SourceText, escape_controls, truncate

_AMOUNTS = frozenset(
    {"requests", "limits", "overhead", "allocatable", "capacity", "allocatedResources", "emptyDir", "resourceFieldRef"}
)
"""Members of Kubernetes objects whose members are quantities (sizeLimit and divisor in the last two), or strings."""

_MISSPELT = 0.85
"""Least similarity of a misspelt kind to one of these; JobSet, a kind of its own, is below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A pod as an object creates it.

    `group`, `kind`, `name`, `generate_name` and `namespace` ("" if absent) are the `object`'s, whose node is `root`;
    `path` is the template's path in it, empty for a Pod. `pod` is a whole Pod as the author wrote it, made from `node`,
    which is at `path`. `template` has the number of pods, `facts` is what is known of the object as a whole.
    """

    group: str
    kind: str
    name: str
    generate_name: str
    namespace: str
    path: JsonPath
    pod: dict[str, Json]
    object: dict[str, Json] = field(repr=False)
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
        return self.group in OWN_GROUPS and self.kind in own_kinds()

    def title(self, namespace: str = "") -> str:
        """Return the object's name without control characters, with the template's path if it may have several."""
        name = object_title(self.kind, self.name or "(no name)", namespace or self.namespace)
        inner = ".".join(map(str, self.path))
        return escape_controls(f"{name} {inner}" if inner and self.path != ("spec", "template") else name)

    def submitted(self, name: str = "") -> dict[str, Json]:
        """Return the pod that /mutate gets if the object is created: with its names and its default requests.

        `name`: the object's name, if it is created under another one.
        """
        return with_default_requests(self.created(name))

    def created(self, name: str = "") -> dict[str, Json]:
        """Return the pod that is created for the object, with its names and without defaults."""
        pod = self.pod
        metadata = dict(as_mapping(pod.get("metadata")))
        if self.path:
            metadata.pop("name", None)
            owner = name or self.name or (generate_name(self.generate_name) if self.generate_name else "")
            if owner and self.is_built_in:
                return created_pod(self.kind, as_mapping(manifest_json(self.root)), pod, owner)
            metadata.update({"generateName": f"{owner}-"} if owner else {})
        elif name:
            metadata["name"] = name
        return {**pod, "metadata": metadata}

    def check(self, problems: Problems) -> None:
        """Report a malformed pod; else warn of members that Kubernetes would drop or refuse."""
        if read_pod(self.pod, self.node, problems) is not None:
            self.warn(problems)

    def warn(self, problems: Problems) -> None:
        """Warn of members that Kubernetes would drop or refuse."""
        if self.path:
            self._warn_of_object(problems)
        if not self.template.built:
            warn_of_pod(self.node, problems, plain=not self.path or self.is_built_in)

    def _warn_of_object(self, problems: Problems) -> None:
        """Warn of slips around the template of a built-in kind, and of a misspelt kind."""
        root = cast(MapNode, self.root)
        kind = root.get("kind")
        if self.group not in OWN_GROUPS or not isinstance(kind, ScalarNode):
            return
        if self.kind in own_kinds():
            warn_of_values(root.get("metadata"), "ObjectMeta", problems)
            self._warn_of_path(own_kinds()[self.kind].templates[0].path, problems)
        elif get_close_matches(self.kind.casefold(), map(str.casefold, own_kinds()), 1, _MISSPELT):
            message = f"Kubernetes has no kind '{truncate(self.kind)}'{spelling_hint(self.kind, own_kinds())}"
            problems.warning(Code.UNKNOWN_KIND, message, kind)

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
                problems.warning(Code.UNKNOWN_POD_FIELD, message, key)
            return


def manifest_documents(source: SourceFile, problems: Problems) -> tuple[YamlNode, ...]:
    """Return the non-empty documents of a text of manifests, as kubectl reads them."""
    documents = read_documents(source, problems, Dialect.MANIFESTS)
    for document in documents:
        problems.items.extend(document.problems.items)
    return tuple(document.root for document in documents if not document.empty)


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


def with_objects(table: WorkloadTable, roots: Iterable[YamlNode]) -> WorkloadTable:
    """Return a table that finds the objects of these documents, too."""
    objects = cache(partial(index_objects, tuple(roots)))
    return replace(table, find=lambda group, key: objects(group).get(key) or table.find(group, key))


def index_objects(roots: Iterable[YamlNode], group: str) -> Mapping[ObjectKey, Json]:
    """Return the objects of an API group in documents."""
    found: dict[ObjectKey, Json] = {}
    for value in (value for root in roots for value, _ in _split_list(manifest_json(root), root)):
        if text_member(value, "apiVersion").rpartition("/")[0] == group:
            name, namespace = (_metadata_text(value, member) for member in ("name", "namespace"))
            found.setdefault((text_member(value, "kind"), name, namespace), value)
    return found


def find_manifests(root: YamlNode, problems: Problems, table: WorkloadTable | None = None) -> tuple[Manifest, ...]:
    """Find every pod of a document: a Pod, the pod templates of another object, and the pods of a List's items.

    Warn of each number of pods that is not known, and of objects that may have pods, but none was found.
    """
    found: list[Manifest] = []
    for value, node in _split_list(manifest_json(root), root):
        facts = read_workload(value, table or WorkloadTable())
        pods = [_manifest(template, facts, value, node) for template in facts.templates]
        name = _metadata_text(value, "name") or _metadata_text(value, "generateName") or "(no name)"
        title = f"{text_member(value, 'kind') or 'Pod'}/{name}"
        if facts.unknown and not pods:
            message = escape_controls(f"pods of {title} unknown: {facts.unknown}")
            problems.warning(Code.UNKNOWN_PODS, message, first_key(node).location)
        for pod in (pod for pod in pods if pod.template.unknown):
            count = f"number of pods of {title} unknown: {pod.template.parallel} assumed"
            problems.warning(Code.UNKNOWN_PODS, escape_controls(f"{count} ({pod.template.unknown})"), pod.location)
        found += pods
    return tuple(found)


def _split_list(value: Json, node: YamlNode) -> Iterator[tuple[dict[str, Json], YamlNode]]:
    """Yield the objects of a document with their nodes: itself, or the items of a List."""
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if str(value.get("kind")).endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _split_list(item, find_node(node, ("items", index)))
    else:
        yield value, node


def _manifest(template: PodTemplate, facts: WorkloadFacts, value: dict[str, Json], root: YamlNode) -> Manifest:
    written, node = template.pod, find_node(root, template.path)
    if template.built:  # it has no node of its own: its spec is at the node of what it is made from
        place = first_key(node).location
        key = ScalarNode(value="spec", source=SourceText("spec", place.file, ((0, place.line, place.column),)))
        node = MapNode(members={"spec": (key, node)}, location=place)
    pod: dict[str, Json] = {"apiVersion": "v1", "kind": "Pod", "metadata": written.get("metadata") or {}}
    pod |= {name: part for name, part in written.items() if name not in pod}
    return Manifest(
        group=text_member(value, "apiVersion").rpartition("/")[0],
        kind=text_member(value, "kind") or "Pod",
        name=_metadata_text(value, "name"),
        generate_name=_metadata_text(value, "generateName"),
        namespace=_metadata_text(value, "namespace") or _metadata_text(pod, "namespace"),
        path=template.path,
        pod=pod,
        object=value,
        node=cast(MapNode, node),
        root=root,
        template=template,
        facts=facts,
    )


def _metadata_text(value: Object, name: str) -> str:
    return text_member(as_mapping(value.get("metadata")), name)


def read_single_pod(
    root: YamlNode, place: YamlNode, problems: Problems, template: str | None = None
) -> Manifest | None:
    """Return the one pod of a document, with warnings; None, with a problem at `place`, if there is not exactly one.

    `template`: the name of one of several templates, "" for none; None where no name can be given. A template without
    pods counts only if there is no other.
    """
    every = find_manifests(root, Problems())
    names = ", ".join(sorted({pod.template.role for pod in every if pod.template.role}))
    pods = [pod for pod in every if not template or pod.template.role.casefold() == template.casefold()]
    pods = [pod for pod in pods if pod.template.total] or pods
    if len(pods) == 1:
        pods[0].warn(problems)
        return pods[0]
    slip = None if every else containers_slip(root)
    if slip is not None:
        message, at = slip
        problems.error(Code.NOT_A_POD, message, at)
        return None
    if not every:
        expected = "a Pod (spec, with a list of containers) or something with a pod template"
    elif not pods:
        expected = f"one of the names {names}" if names else "no name: the pod template has none"
    else:
        choice = f": podFile: {{file: FILE, template: NAME}} takes one of {names}"
        expected = f"one pod, not {len(pods)}{choice if names and template == '' else ''}"
    problems.error(Code.NOT_A_POD, f"expected {expected}", place)
    return None
