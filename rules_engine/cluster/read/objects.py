"""Objects of files → ClusterObjects: each once, in its latest version, without the values that are never kept."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from rules_engine.cluster.read.kubectl import ListedObject, OutputError, object_kind, read_output
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import CONTAINER_LISTS
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.cluster_objects import (
    ADMISSION_POLICIES,
    API_KINDS,
    AUTOSCALER_STATUS,
    FINDINGS,
    STATUS_NAME,
    ClusterObjects,
    newest_change_time,
    parse_change_time,
    plain_kind,
)
from rules_engine.model.kubernetes.device_objects import DEVICE_KINDS
from rules_engine.model.kubernetes.names import is_label, is_subdomain
from rules_engine.model.kubernetes.removed_values import CAPTURED, PARTIAL, remove_values
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Location, escape_controls, truncate

MAX_VERSION_DIGITS = 20
"""Digits of a resourceVersion, a number of 64 bits."""

SYSTEM_NAMESPACE = "kube-system"
"""A namespace that has pods in every cluster with nodes."""

_NO_OBJECT, _NO_KIND = "a value that is not an object", "an object without a kind"

_CORE_NAMES: Mapping[str, str] = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "reportingController": "reportingComponent",
}
"""Members of an Event of events.k8s.io, with their names in the core group."""

_KINDS = sorted({*map(plain_kind, API_KINDS.keys() - {AUTOSCALER_STATUS})})
_READABLE_KIND = re.compile(rf"""kind["']?\s*:\s*["']?(?:{"|".join(_KINDS)})(?:List)?\b|{STATUS_NAME.name}""".encode())
"""The kind of an object that is read, or the name of the only ConfigMap, in a text that is not parsed yet."""


class ObjectReader:
    """Reader of files into one set of objects. `whole`: no values are removed."""

    def __init__(self, problems: Problems, *, whole: bool) -> None:
        self.seen: set[str] = set()
        """The kinds of which there is an object or a list."""
        self._problems = problems
        self._whole = whole
        self._objects: dict[str, dict[tuple[str, str], dict[str, Json]]] = {}
        """The objects by kind, and by namespace and name."""
        self._left_out: set[str] = set()
        """Texts on objects that are left out, each reported once."""
        self._partial: dict[str, str] = {}
        """The namespace of kinds that a capture has of one namespace only."""
        self.captured = ""
        """The latest time of a capture; "" if there is none."""
        self._declared: tuple[Node, ...] = ()
        self._has_inventory = False

    def objects(self) -> ClusterObjects:
        """Return all objects. Kinds that only some clusters have are not missing."""
        return ClusterObjects(
            {kind: by_name.values() for kind, by_name in self._objects.items()},
            absent=frozenset(kind for kind, each in API_KINDS.items() if not each.optional) - self.seen,
            partial={"Pod": ""} if self._lacks_system_pods() else self._partial,
            now=parse_change_time(self.captured) if self.captured else None,
            declared=self._declared,
        )

    def _lacks_system_pods(self) -> bool:
        """Return True if only pods of some namespaces were read, as by kubectl get without -A."""
        if self.captured or self._has_inventory:
            return False
        namespaces = {namespace for namespace, _ in self._objects.get("Pod", ())}
        system = any(name == SYSTEM_NAMESPACE for _, name in self._objects.get("Namespace", ()))
        return bool(namespaces and self._objects.get("Node")) and system and SYSTEM_NAMESPACE not in namespaces

    def add_inventory(self, objects: ClusterObjects, place: Location) -> None:
        """Add the objects of an inventory, which has all that pods need, but says nothing of workloads and events."""
        always = {
            "Node",
            "Pod",
            "Namespace",
            *{*DEVICE_KINDS} - objects.absent,
            "ResourceQuota",
            "LimitRange",
            "PodDisruptionBudget",
        }
        self.seen |= always.union(ADMISSION_POLICIES) | {kind for kind in API_KINDS if objects.of(kind)}
        self._declared += objects.declared
        self._has_inventory = True
        for kind in API_KINDS:
            for each in objects.of(kind):
                self._add(kind, dict(each), lambda: place)

    def read(self, path: Path, data: bytes, expected: str, *, required: bool) -> None:
        """Read a file of kubectl. `required`: it is an error if the file has no object of a kind that is read."""
        if not required and not _READABLE_KIND.search(data):
            return
        kinds: dict[str, ListedObject] = {}
        """The kinds in the file, each with its first object; "" for a list of any kinds."""
        file_problems = Problems()
        try:
            for item in read_output(path, data, file_problems):
                self._take(item, kinds)
        except OutputError as error:
            file_problems.error(error.code, str(error), error.place)
        read = kinds.keys() & API_KINDS.keys()
        for kind in (_NO_OBJECT, _NO_KIND) if read else ():
            if kind in kinds:
                self._leave_out(kind, kinds[kind].place)
        self._problems.items += file_problems.items
        if required and not file_problems.failed and not read:
            self._refuse(str(path), kinds, expected)

    def _refuse(self, name: str, kinds: Mapping[str, ListedObject], expected: str) -> None:
        """Report a file without an object of a kind that is read, unless it is an empty list of any kinds."""
        others = [(kind, item) for kind, item in kinds.items() if kind]
        if others:
            kind, item = others[0]
            self._problems.error(Code.NOT_A_CLUSTER, f"{truncate(kind)} is not read: expected {expected}", item.place())
        elif "" not in kinds:
            self._problems.error(Code.NOT_A_CLUSTER, f"no object found: expected {expected}", Location(name, 1, 1))

    def _take(self, item: ListedObject, kinds: dict[str, ListedObject]) -> None:
        kind, value = item.kind, item.value
        if value is not None and not isinstance(value, dict):
            kind = _NO_OBJECT
        elif value is not None:
            kind = object_kind(value) or kind or _NO_KIND
        kinds.setdefault(kind, item)
        annotations = as_mapping(as_mapping(item.metadata).get("annotations"))
        captured, partial = (text_member(annotations, name) for name in (CAPTURED, PARTIAL))
        self.captured = newest_change_time({"creationTimestamp": captured}, self.captured)
        namespace, *kinds_of_one = partial.split() or [""]
        self._partial |= dict.fromkeys(kinds_of_one, namespace)
        if kind in API_KINDS and value is None:
            self.seen.add(kind)
        elif isinstance(value, dict) and kind in API_KINDS:
            self._add(kind, value, item.place)

    def _leave_out(self, what: str, find_place: Callable[[], Location]) -> None:
        if what not in self._left_out:  # a file may have a million
            self._left_out.add(what)
            self._problems.warning(Code.UNREAD_OBJECT, f"{what} is left out", find_place())

    def _add(self, kind: str, value: dict[str, Json], find_place: Callable[[], Location]) -> None:
        metadata = as_mapping(value.get("metadata"))
        key = text_member(metadata, "namespace"), text_member(metadata, "name")
        if not key[1] or (kind != "Event" and not _has_safe_names(value)):
            self._leave_out(f"a {kind} {'with an invalid name' if key[1] else 'without a name'}", find_place)
            return
        self.seen.add(kind)
        if kind == "Event" and text_member(as_mapping(value.get("source")), "component") == FINDINGS:
            return
        of_kind = self._objects.setdefault(kind, {})
        earlier = of_kind.get(key)
        uids = {text_member(as_mapping(each.get("metadata")), "uid") for each in (earlier or {}, value)} - {""}
        if kind == "Node" and len(uids) > 1:
            message = f"there is another node {escape_controls(key[1])}: are these files of one cluster?"
            self._problems.error(Code.DUPLICATE_NODE, message, find_place())
            return
        if earlier is not None and _version_number(earlier) > _version_number(value):
            return
        value = value if self._whole else remove_values(value, kind)
        value["kind"] = plain_kind(kind)
        if kind == "Event" and "regarding" in value:  # the API server stores one object for both groups
            value = {_CORE_NAMES.get(name, name): member for name, member in value.items()}
        if earlier is not None and value != earlier and _version_number(earlier) == _version_number(value):
            name = escape_controls("/".join(filter(None, key)))
            self._leave_out(f"another {kind} {name} of the same version", find_place)
        of_kind[key] = value


def _has_safe_names(value: Object) -> bool:
    """Return True if the API server accepts the names of an object, of its node and of its containers.

    Commands of remedies contain these names; a shell would run parts of other ones. Events are not checked: their names
    may be almost any text, and no command contains one.
    """
    metadata, spec = as_mapping(value.get("metadata")), as_mapping(value.get("spec"))
    namespace = text_member(metadata, "namespace")
    names = (
        text_member(metadata, "name"),
        text_member(spec, "nodeName"),
        *(text_member(item, "name") for member in CONTAINER_LISTS for item in object_items(spec.get(member))),
    )
    return (not namespace or is_label(namespace)) and all(is_subdomain(name) for name in names if name)


def _version_number(value: Object) -> int:
    version = text_member(as_mapping(value.get("metadata")), "resourceVersion")
    return int(version) if version.isascii() and version.isdigit() and len(version) <= MAX_VERSION_DIGITS else 0
