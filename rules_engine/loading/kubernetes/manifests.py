"""Pods in Kubernetes manifests: on their own, or in the template of whatever makes them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from rules_engine.loading.codes import Code
from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.kubernetes.pods import warn_of_pod
from rules_engine.loading.yaml.nodes import ListNode, MapNode, Node, Path, ScalarNode, find, first_key
from rules_engine.model.json.lenient import Object, mapping, text
from rules_engine.model.json.patch import Json
from rules_engine.model.source import Location

_AMOUNTS = frozenset({"requests", "limits", "overhead", "allocatable", "capacity"})
"""Members of Kubernetes objects that hold quantities by resource."""

_SPEC = ("spec", "template")
TEMPLATES: Mapping[str, Path] = {
    "CronJob": ("spec", "jobTemplate", *_SPEC),
    "DaemonSet": _SPEC,
    "Deployment": _SPEC,
    "Job": _SPEC,
    "PodTemplate": ("template",),
    "ReplicaSet": _SPEC,
    "ReplicationController": _SPEC,
    "StatefulSet": _SPEC,
}
"""Where Kubernetes' own objects have their template: there it is one, whatever is written in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A pod as an object makes it.

    `kind`, `name` and `namespace` ("" where not given) are the object's; `path` leads from it to the template and is
    empty for a Pod. `pod` is a whole Pod, made of what is written at `node`.
    """

    kind: str
    name: str
    namespace: str
    path: Path
    pod: dict[str, Json]
    node: MapNode

    @property
    def location(self) -> Location:
        return first_key(self.node).location

    def warn(self, diagnostics: Diagnostics) -> None:
        """Warns of what makes another pod of this than its author meant."""
        warn_of_pod(self.node, diagnostics, plain=not self.path or self.kind in TEMPLATES)


def manifest_json(node: Node) -> Json:
    """A manifest as the API server gets it, but with every quantity as the text that was written, never a float."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, ListNode):
        return [manifest_json(item) for item in node.items]
    return {
        name: _amounts(value) if name in _AMOUNTS else manifest_json(value) for name, (_, value) in node.members.items()
    }


def _amounts(node: Node) -> Json:
    if not isinstance(node, MapNode):
        return manifest_json(node)
    return {
        name: value.source.text
        if isinstance(value, ScalarNode) and not isinstance(value.value, bool | None)
        else manifest_json(value)
        for name, (_, value) in node.members.items()
    }


def manifests(root: Node) -> tuple[Manifest, ...]:
    """Every pod in a document: a Pod, each pod template of another object, those of a List's items; maybe none."""
    return tuple(_manifests(manifest_json(root), root))


def _manifests(value: Json, node: Node) -> Iterator[Manifest]:
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if str(value.get("kind")).endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _manifests(item, find(node, ("items", index)))
        return
    kind, name, namespace = text(value, "kind"), _name(value, "name"), _name(value, "namespace")
    for path, template in list(_templates(value, ())) or _own_template(value, kind):
        yield Manifest(
            kind=kind or "Pod",
            name=name,
            namespace=namespace or _name(template, "namespace"),
            path=path,
            pod={
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": template.get("metadata") or {},
                **{key: part for key, part in template.items() if key not in ("apiVersion", "kind", "metadata")},
            },
            node=cast(MapNode, find(node, path)),
        )


def _templates(value: Json, path: Path) -> Iterator[tuple[Path, dict[str, Json]]]:
    """Anything shaped like a PodTemplateSpec (a spec with a list of containers), under whatever names it stands."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _templates(item, (*path, index))
    elif isinstance(value, dict):
        if _is_pod(value, at_root=not path):
            yield path, value
        else:
            for name, member in value.items():
                yield from _templates(member, (*path, name))


def _is_pod(value: dict[str, Json], *, at_root: bool) -> bool:
    if at_root and "kind" in value:
        # Some operators' own objects have a spec with containers and are no pods.
        return value["kind"] == "Pod"
    spec = value.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def _own_template(value: dict[str, Json], kind: str) -> Iterator[tuple[Path, dict[str, Json]]]:
    """The template of one of Kubernetes' own objects, though it has no list of containers."""
    below: Json = value
    for step in TEMPLATES.get(kind, ()):
        below = below.get(str(step)) if isinstance(below, dict) else None
    if isinstance(below, dict) and below is not value:
        yield TEMPLATES[kind], below


def _name(value: Object, name: str) -> str:
    return text(mapping(value.get("metadata")), name)


def the_pod(root: Node, place: Node, diagnostics: Diagnostics) -> Manifest | None:
    """The one pod of a document, warned of; None, and a problem at `place`, where there is none or more than one."""
    found = manifests(root)
    if len(found) == 1:
        found[0].warn(diagnostics)
        return found[0]
    given = (
        f"one pod, not {len(found)}"
        if found
        else "a Pod (spec, with a list of containers) or something with a pod template"
    )
    diagnostics.error(Code.NOT_A_POD, f"expected {given}", place.location, place.length)
    return None
