"""Pods in Kubernetes manifests: Pods, and pod templates of other objects."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import cast

from rules_engine.cluster.read.pods import containers_slip, warn_of_pod, warn_of_values
from rules_engine.language.schemas import spelling_hint
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode, find_node, first_key
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes.names import object_title
from rules_engine.model.kubernetes.pod_defaults import first_pod_names, generate_name, with_default_requests
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, escape_controls, truncate

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

_GROUPS = frozenset({"", "apps", "batch"})
"""API groups of the kinds in `TEMPLATES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A pod as an object creates it.

    `kind`, `name`, `generate_name` and `namespace` ("" if absent) are the object's; `path` is the template's path in
    it, empty for a Pod. `pod` is a whole Pod as the author wrote it, made from `node`, which is at `path` below `root`.
    """

    kind: str
    name: str
    generate_name: str
    namespace: str
    path: JsonPath
    pod: dict[str, Json]
    node: MapNode = field(repr=False)
    root: YamlNode = field(repr=False)

    @property
    def location(self) -> Location:
        return first_key(self.node).location

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
            metadata.update(first_pod_names(self.kind, owner) if owner else {})
        elif name:
            metadata["name"] = name
        return {**pod, "metadata": metadata}

    def warn(self, problems: Problems) -> None:
        """Warn of members that Kubernetes would drop or refuse."""
        if self.path:
            self._warn_of_object(problems)
        warn_of_pod(self.node, problems, plain=not self.path or self.kind in TEMPLATES)

    def _warn_of_object(self, problems: Problems) -> None:
        """Warn of slips around the template of a built-in kind, and of a misspelt kind."""
        root = cast(MapNode, self.root)
        version, kind = root.get("apiVersion"), root.get("kind")
        group = version.source.text.rpartition("/")[0] if isinstance(version, ScalarNode) else ""
        if group not in _GROUPS or not isinstance(kind, ScalarNode):
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


def find_manifests(root: YamlNode) -> tuple[Manifest, ...]:
    """Find every pod of a document: a Pod, the pod templates of another object, and the pods of a List's items."""
    return tuple(_walk_manifests(manifest_json(root), root))


def _walk_manifests(value: Json, node: YamlNode) -> Iterator[Manifest]:
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if str(value.get("kind")).endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _walk_manifests(item, find_node(node, ("items", index)))
        return
    kind, name, namespace = (
        text_member(value, "kind"),
        _metadata_text(value, "name"),
        _metadata_text(value, "namespace"),
    )
    for path, template in list(_find_templates(value, ())) or _own_template(value, kind):
        yield Manifest(
            kind=kind or "Pod",
            name=name,
            generate_name=_metadata_text(value, "generateName"),
            namespace=namespace or _metadata_text(template, "namespace"),
            path=path,
            pod={
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": template.get("metadata") or {},
                **{key: part for key, part in template.items() if key not in ("apiVersion", "kind", "metadata")},
            },
            node=cast(MapNode, find_node(node, path)),
            root=node,
        )


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


def _own_template(value: dict[str, Json], kind: str) -> Iterator[tuple[JsonPath, dict[str, Json]]]:
    """Yield the template of an object of a built-in kind, even without a list of containers."""
    below: Json = value
    for step in TEMPLATES.get(kind, ()):
        below = below.get(str(step)) if isinstance(below, dict) else None
    if isinstance(below, dict) and below is not value:
        yield TEMPLATES[kind], below


def _metadata_text(value: Object, name: str) -> str:
    return text_member(as_mapping(value.get("metadata")), name)


def read_single_pod(root: YamlNode, place: YamlNode, problems: Problems) -> Manifest | None:
    """Return the one pod of a document, with warnings; None, with a problem at `place`, if there is not exactly one."""
    pods = find_manifests(root)
    if len(pods) == 1:
        pods[0].warn(problems)
        return pods[0]
    slip = None if pods else containers_slip(root)
    if slip is not None:
        message, at = slip
        problems.error(Code.NOT_A_POD, message, at.location, at.length)
        return None
    expected = (
        f"one pod, not {len(pods)}"
        if pods
        else "a Pod (spec, with a list of containers) or something with a pod template"
    )
    problems.error(Code.NOT_A_POD, f"expected {expected}", place.location, place.length)
    return None
