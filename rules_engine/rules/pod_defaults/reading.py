"""PodDefaults read from their document."""

from collections.abc import Iterable
from dataclasses import replace

from rules_engine.language import fields
from rules_engine.language.document_fields import common_fields
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode
from rules_engine.model.kubernetes.names import is_label
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Field
from rules_engine.rules.entries import report_nothing_to_inherit
from rules_engine.rules.pod_defaults.value import ContainerMembers, DefaultsEntry, PodDefaults, PodDefaultsCode, Which
from rules_engine.rules.pod_members.reading import read_members
from rules_engine.rules.pod_members.value import FIELDS, Member

_PARTS = {
    part: tuple(name for name, each in FIELDS.items() if each.parent == parent)
    for part, parent in (("metadata", ("metadata",)), ("spec", ("spec",)), ("containers", ()))
}
"""The fields of each part of a pod."""


def read(root: MapNode, problems: Problems) -> PodDefaults:
    """Read PodDefaults; they are valid only if neither the schema nor `problems` has an error."""
    spec = fields.map_field(root, "spec")
    first_key = spec.key("pod") or spec.key("containers")
    default = _read_entry(spec, first_key or root, first_key.source.text if first_key else "", problems)
    namespaces: dict[str, DefaultsEntry] = {}
    for key, node in fields.map_members(spec, "namespaces"):
        entry = _read_entry(node, key, f"namespaces.{key.source.text}", problems)
        if fields.string_field(node, "inherit") == "Merge":
            report_nothing_to_inherit(default, node, problems)
            entry = _merge_entries(default, entry)
        namespaces[key.source.text] = entry
    return PodDefaults(
        **common_fields(root, problems) | fields.scalar_arguments(spec, PodDefaults),
        default=default,
        namespaces=namespaces,
    )


def _read_entry(node: MapNode, place: YamlNode, path: str, problems: Problems) -> DefaultsEntry:
    pod = fields.map_field(node, "pod")
    members = (
        read_members(fields.map_field(pod, part), names, problems)
        for part, names in _PARTS.items()
        if part != "containers"
    )
    return DefaultsEntry(
        location=place.location,
        fields=(Field(path, place.location),) if path else (),
        pod=tuple(member for part in members for member in part),
        containers=tuple(_read_group(line, problems) for line in fields.map_items(node, "containers")),
    )


def _read_group(line: MapNode, problems: Problems) -> ContainerMembers:
    which, chosen = line.get("which"), fields.map_field(line, "which")
    for name in fields.list_items(chosen, "names"):
        if isinstance(name, ScalarNode) and not is_label(name.source.text):
            message = f"no container can have the name '{name.source.text}', which is no DNS label"
            problems.error(PodDefaultsCode.IMPOSSIBLE_CONTAINER, message, name.location, name.length)
    return ContainerMembers(
        which=Which(which.source.text) if isinstance(which, ScalarNode) else Which.ALL,
        names=fields.string_items(chosen, "names"),
        members=read_members(line, _PARTS["containers"], problems),
    )


def _merge_entries(default: DefaultsEntry, entry: DefaultsEntry) -> DefaultsEntry:
    """Return an entry with the members of the default that it does not have itself."""
    groups = [*default.containers]
    for group in entry.containers:
        place = next((place for place, base in enumerate(groups) if base.title == group.title), len(groups))
        base = groups[place].members if place < len(groups) else ()
        groups[place : place + 1] = [replace(group, members=_merge(base, group.members))]
    return replace(entry, inherits=True, pod=_merge(default.pod, entry.pod), containers=tuple(groups))


def _merge(base: Iterable[Member], own: Iterable[Member]) -> tuple[Member, ...]:
    return tuple({(each.field.name, each.name): each for each in (*base, *own)}.values())
