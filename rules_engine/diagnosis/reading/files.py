"""Files of a cluster's objects: `kubectl get … -o json` or YAML, and must-gather folders → ClusterObjects.

A list in JSON is read as a stream, and its objects are reduced one by one.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import BinaryIO

from rules_engine.diagnosis.reading.reduction import Reducer, type_meta_of
from rules_engine.loading.files import (
    STDIN,
    decode_source,
    find_files,
    is_folder,
    report_unreadable,
    standard_input,
    without_garbage_collection,
)
from rules_engine.loading.json_items import LenientItems, ListError
from rules_engine.loading.json_list import CHUNK_BYTES, MAX_ITEM_BYTES, JsonList, too_large
from rules_engine.loading.kubernetes.yaml_list import read_yaml_objects
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import (
    API_GROUPS,
    API_RESOURCES,
    DIAGNOSED_RESOURCES,
    ClusterObjects,
    newest_change_time,
    parse_change_time,
)
from rules_engine.model.kubernetes.device_objects import DEVICE_KINDS
from rules_engine.model.kubernetes.kept_fields import Kept, merge_fields
from rules_engine.model.kubernetes.names import is_label, is_subdomain
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.problems.problem import Problem, Problems, sort_problems
from rules_engine.model.problems.source import Location

MAX_DUMP_BYTES = 4 * 1024 * 1024 * 1024
"""Largest file in JSON: five times the objects of the largest cluster that Kubernetes supports."""

MAX_YAML_BYTES = 128 * 1024 * 1024
"""Largest file in YAML, whose text is held in memory: a namespace of a must-gather folder with 10,000 pods."""

MAX_DUMP_FILES = 100_000
"""Files of a folder: a must-gather folder has one for each node and for each pod of some namespaces."""

MAX_VERSION_DIGITS = 20
"""Digits of a resourceVersion, a number of 64 bits."""

SYSTEM_NAMESPACE = "kube-system"
"""A namespace that has pods in every cluster with nodes."""

_OTHER_GROUPS = frozenset({("Event", "events.k8s.io")})
"""Other API groups of kinds that are read. In all other groups, these kinds are other objects, as OpenShift's Node."""

EXPECTED_INPUT = f"the output of kubectl get {','.join(API_RESOURCES.values())} -A -o json, or a must-gather folder"

Progress = Callable[[int, int], None]
"""A function that gets the number of bytes read so far, and of all bytes, or 0 if it is unknown."""

_HEAD = re.compile(r'\{\s*"apiVersion":\s*"([\w./-]*)",\s*"kind":\s*"(\w*)"')
"""The first members of an object as kubectl writes them."""

_READABLE_KIND = re.compile(rf"""kind"?: *"?(?:{"|".join(DIAGNOSED_RESOURCES)})(?:List)?"?,?[ \t\r]*$""", re.MULTILINE)
"""The kind of an object that a diagnosis reads, in a text that is not parsed yet."""

_GZIP = b"\x1f\x8b"
"""The first bytes of a gzip file, such as an archive of a must-gather folder."""

_NO_OBJECT, _NO_KIND = "a value that is not an object", "an object without a kind"

_LARGE_YAML = f"a file in YAML is larger than {MAX_YAML_BYTES // 2**20} MiB: write it with -o json"

_CONDITION_TIMES: Kept = {"status": {"conditions": {"lastHeartbeatTime": None, "lastTransitionTime": None}}}
_KEPT_TIMES: Mapping[str, Kept] = {
    "Node": _CONDITION_TIMES,
    "Pod": _CONDITION_TIMES,
    "Event": {"lastTimestamp": None, "eventTime": None},
}
"""Times of changes, which are kept even if no expression reads them: the newest one is the time of the diagnosis."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The objects of files; None if a problem is an error. `sources`: the lines of small files, for snippets."""

    objects: ClusterObjects | None
    problems: tuple[Problem, ...]
    sources: Mapping[str, Sequence[str]]


def read_objects(
    paths: Sequence[Path], kept: Mapping[str, Kept], progress: Progress = lambda _read, _all: None
) -> Reading:
    """Read the objects of files, of folders and of standard input (STDIN), reduced to the members kept by kind.

    An object that is in several files is read once, in its latest version. Files of other objects are skipped in a
    folder; a file in `paths` must have an object of a kind that a diagnosis reads.
    """
    collected = Problems()
    files: list[tuple[Path, bool]] = []
    for path in paths:
        path_files = find_files([path], collected, MAX_DUMP_FILES)
        files += ((file, not is_folder(path)) for file in path_files)
    total, read = sum(_file_size(file) for file, _ in files), 0

    def count(size: int) -> None:
        nonlocal read
        read += size
        progress(read, total)

    reader = _Reader(kept, collected, count)
    with without_garbage_collection():
        for file, required in dict(files).items():
            reader.read(file, required)
    if not reader.seen and not collected.failed:
        name = str(paths[0]) if paths else str(STDIN)
        collected.error(Code.NOT_A_CLUSTER, f"no object found: expected {EXPECTED_INPUT}", Location(name, 1, 1))
    problems = sort_problems(collected.items, [str(file) for file, _ in files])
    return Reading(objects=None if collected.failed else reader.objects(), problems=problems, sources=reader.sources)


@dataclass(frozen=True, slots=True)
class _MeteredFile:
    """A file whose reads are counted."""

    file: BinaryIO
    count: Callable[[int], None]

    def read(self, size: int, /) -> bytes:
        chunk = self.file.read(size)
        self.count(len(chunk))
        return chunk


class _Reader:
    """Reader of files into one set of objects."""

    def __init__(self, kept: Mapping[str, Kept], problems: Problems, count: Callable[[int], None]) -> None:
        self.sources: dict[str, Sequence[str]] = {}
        self.seen: set[str] = set()
        """The kinds of which the files have an object or a list; "" for a list of any kinds."""
        self._problems = problems
        self._count = count
        complete = {kind: _complete_fields(kind, kept.get(kind, {})) for kind in DIAGNOSED_RESOURCES}
        self._reducers = {kind: Reducer(kind, fields) for kind, fields in complete.items()}
        self._any = Reducer("", reduce(merge_fields, complete.values()))
        self._objects: dict[str, dict[tuple[str, str], dict[str, Json]]] = {kind: {} for kind in DIAGNOSED_RESOURCES}
        """The objects by kind, and by namespace and name."""
        self._invalid: set[tuple[str, str, str]] = set()
        """The files, kinds and reasons of objects that are not read, each reported once."""
        self._newest = ""

    def objects(self) -> ClusterObjects:
        """Return all objects. GPUOffers are not missing: only clusters with native policies have them."""
        return ClusterObjects(
            {kind: by_name.values() for kind, by_name in self._objects.items() if kind in self.seen},
            absent=frozenset(API_RESOURCES) - self.seen,
            partial=frozenset(["Pod"] if self._lacks_system_pods() else []),
            now=parse_change_time(self._newest),
        )

    def _lacks_system_pods(self) -> bool:
        """Return True if only pods of some namespaces were read, as by kubectl get without -A."""
        namespaces = {namespace for namespace, _ in self._objects["Pod"]}
        system = any(name == SYSTEM_NAMESPACE for _, name in self._objects["Namespace"])
        return bool(namespaces and self._objects["Node"]) and system and SYSTEM_NAMESPACE not in namespaces

    def read(self, path: Path, required: bool) -> None:
        """Read a file. `required`: it is an error if the file has no object that a diagnosis reads."""
        name = str(path)
        start = Location(name, 1, 1)
        kinds: dict[str, Location] = {}
        """The kinds in the file, each with its first place; "" for a list of any kinds."""
        head, failed = b"", False
        try:
            with nullcontext(standard_input()) if path == STDIN else path.open("rb") as stream:
                file = _MeteredFile(stream, self._count)
                head = file.read(CHUNK_BYTES)
                if head.startswith(_GZIP):
                    raise _StopError(Code.UNREADABLE_FILE, "the file is compressed: unpack it first", start)
                if _is_json(path, head):
                    self._read_json(name, head, file, kinds)
                else:
                    data = head + file.read(MAX_YAML_BYTES + 1 - len(head))
                    if len(data) > MAX_YAML_BYTES:
                        raise _StopError(Code.FILE_TOO_LARGE, _LARGE_YAML, start)
                    failed = self._read_yaml(path, data, kinds, required)
        except FileNotFoundError:
            self._problems.error(Code.MISSING_FILE, "file or folder not found", start)
        except OSError as error:
            report_unreadable(path, error, self._problems)
        except _StopError as stop:
            readable = kinds.keys() & DIAGNOSED_RESOURCES.keys()
            if required or readable or _READABLE_KIND.search(head.decode("utf-8", "replace")):
                self._problems.error(stop.code, str(stop), stop.place)
        else:
            self.seen |= kinds.keys() & DIAGNOSED_RESOURCES.keys()
            if required and not failed and not kinds.keys() & DIAGNOSED_RESOURCES.keys():
                self._refuse(name, [(kind, place) for kind, place in kinds.items() if kind], any_kind="" in kinds)

    def _refuse(self, name: str, others: Sequence[tuple[str, Location]], *, any_kind: bool) -> None:
        """Report a file without an object that a diagnosis reads, unless it is an empty list of any kinds."""
        if others:
            kind, place = others[0]
            self._problems.error(Code.NOT_A_CLUSTER, f"{truncate(kind)} is not read: expected {EXPECTED_INPUT}", place)
        elif not any_kind:
            self._problems.error(
                Code.NOT_A_CLUSTER, f"no object found: expected {EXPECTED_INPUT}", Location(name, 1, 1)
            )

    def _read_json(self, name: str, head: bytes, file: _MeteredFile, kinds: dict[str, Location]) -> None:
        """Read a list or an object."""
        items = _ItemReader(self._reducers, self._any)
        json_list = JsonList(name, head, file, MAX_DUMP_BYTES, LenientItems(items.read).scan)
        items.list = json_list.members
        unknown: list[tuple[Location, dict[str, Json]]] = []
        try:
            for place, (kind, item) in json_list.items():
                if not kind and item is not None:
                    unknown.append((place, item))
                    continue
                kinds.setdefault(kind or _NO_OBJECT, place)
                if item is not None:
                    self._add(kind, item, place)
            if json_list.too_large:
                raise ListError(Code.FILE_TOO_LARGE, too_large("an object that is not a list"))
        except ListError as error:
            raise _StopError(error.code, str(error), json_list.here()) from None
        start = Location(name, 1, 1)
        if json_list.listed or _is_empty_list(json_list.members):
            self._reduce_all(unknown, _list_kind(json_list.members), start, kinds)
        else:
            self._reduce(json_list.members, "", start, kinds)

    def _read_yaml(self, path: Path, data: bytes, kinds: dict[str, Location], required: bool) -> bool:
        """Read documents with lists or objects; return True if some have errors."""
        problems = Problems()
        source = decode_source(path, data, problems)
        if source is not None and (required or _READABLE_KIND.search(source.text)):
            cut: Location | None = None
            for document in read_yaml_objects(source, problems):
                if document.items is not None and document.members and "kind" not in document.members:
                    cut = document.place  # kubectl writes the kind after the items
                if document.items is not None or _is_empty_list(document.members):
                    self._reduce_all(document.items or (), _list_kind(document.members), document.place, kinds)
                else:
                    self._reduce(dict(document.members), "", document.place, kinds)
            if cut is not None and not problems.failed:
                problems.error(Code.NOT_A_CLUSTER, "the list has no kind: is the file cut?", cut)
        self._problems.items += problems.items
        if source is not None and problems.items and len(data) <= MAX_ITEM_BYTES:
            self.sources[source.name] = source.lines
        return problems.failed

    def _reduce_all(
        self, items: Iterable[tuple[Location, Json]], kind: str, start: Location, kinds: dict[str, Location]
    ) -> None:
        """Reduce and add the items of a list; `kind`: the kind of items without one."""
        for place, item in items:
            self._reduce(item, kind, place, kinds)
        kinds.setdefault(kind, start)

    def _reduce(self, value: Json, default: str, place: Location, kinds: dict[str, Location]) -> None:
        """Reduce an object and add it; `default`: the kind of an object without one."""
        if not isinstance(value, dict):
            kinds.setdefault(_NO_OBJECT, place)
            return
        kind = _kind_name(text_member(value, "apiVersion"), text_member(value, "kind")) or default or _NO_KIND
        kinds.setdefault(kind, place)
        if kind in self._reducers:
            self._add(kind, self._reducers[kind].reduce(value), place)

    def _add(self, kind: str, item: dict[str, Json], place: Location) -> None:
        metadata = as_mapping(item.get("metadata"))
        key = text_member(metadata, "namespace"), text_member(metadata, "name")
        if not key[1] or (kind != "Event" and not _has_safe_names(item)):
            lack = "with an invalid name" if key[1] else "without a name"
            if (place.file, kind, lack) not in self._invalid:  # a file may have a million
                self._invalid.add((place.file, kind, lack))
                self._problems.warning(Code.UNREAD_OBJECT, f"a {kind} {lack} is left out", place)
            return
        earlier = self._objects[kind].get(key)
        if earlier is None or _version_number(earlier) <= _version_number(item):
            self._objects[kind][key] = _core_event(item) if kind == "Event" else item
            self._newest = newest_change_time(self._objects[kind][key], self._newest)


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
        *(text_member(item, "name") for item in _all_containers(spec)),
    )
    return (not namespace or is_label(namespace)) and all(is_subdomain(name) for name in names if name)


def _all_containers(spec: Object) -> list[Object]:
    return [*object_items(spec.get("containers")), *object_items(spec.get("initContainers"))]


class _StopError(Exception):
    """A file that cannot be read any further."""

    def __init__(self, code: Code, message: str, place: Location) -> None:
        super().__init__(message)
        self.code = code
        self.place = place


class _ItemReader:
    """Reader of the items of a list in JSON, each with its kind; None for items of other kinds.

    `list`: the members of the list so far, which may have the kind of its items. While the kind of an item is unknown,
    it is "", and the item keeps the members of all kinds.
    """

    def __init__(self, reducers: Mapping[str, Reducer], any_kind: Reducer) -> None:
        self.list: Mapping[str, Json] = {}
        self._reducers = reducers
        self._any = any_kind

    def read(self, encoded: str) -> tuple[str, dict[str, Json] | None]:
        """Return the kind and the kept members of an item. Raises json.JSONDecodeError and TooDeepError."""
        if not encoded.startswith("{"):
            return "", None
        kind = self._kind(encoded)
        reducer = self._reducers.get(kind) if kind else self._any
        return kind, None if reducer is None else reducer.decode(encoded)

    def _kind(self, encoded: str) -> str:
        head = _HEAD.match(encoded)
        if head is not None and head[2] in self._reducers:
            return _kind_name(head[1], head[2])
        # The whole text is parsed, since it may be an object of another kind, or not JSON.
        return _kind_name(*type_meta_of(encoded)) or _list_kind(self.list)


def _complete_fields(kind: str, kept: Kept) -> Kept:
    """Add the times of changes to the members to keep of a kind, and the names of members in events.k8s.io."""
    complete = merge_fields(kept, _KEPT_TIMES.get(kind, {}))
    if kind != "Event" or complete is None:
        return complete
    other: Kept = {name: complete[core] for name, core in _CORE_NAMES.items() if core in complete}
    return merge_fields(complete, other)


def _kind_name(version: str, kind: str) -> str:
    """Return the name of a kind, with the version if its API group is not the group of the kind that is read."""
    group = version.rpartition("/")[0]
    if kind in DEVICE_KINDS:  # earlier versions have other members
        is_read = version in ("", f"{API_GROUPS[kind]}/v1")
    else:
        is_read = not version or group == API_GROUPS.get(kind, group) or (kind, group) in _OTHER_GROUPS
    return kind if is_read else f"{kind} of {version}"


def _list_kind(members: Mapping[str, Json]) -> str:
    """Return the kind of the items of a list; "" if they may have any."""
    kind = text_member(members, "kind")
    return "" if kind == "List" else _kind_name(text_member(members, "apiVersion"), kind.removesuffix("List"))


def _is_empty_list(members: Mapping[str, Json]) -> bool:
    """Return True for a list whose items are null, as Go writes an empty list."""
    return "items" in members and members["items"] is None


def _is_json(path: Path, head: bytes) -> bool:
    """Return True for JSON; YAML may begin with a brace, too."""
    begin = head.removeprefix(codecs.BOM_UTF8).lstrip()
    return begin.startswith(b"{") and (path.suffix not in (".yaml", ".yml") or begin[1:].lstrip()[:1] in (b'"', b"}"))


def _core_event(event: dict[str, Json]) -> dict[str, Json]:
    """Return an Event of events.k8s.io with the names of the core group: the API server stores one object for both."""
    return {_CORE_NAMES.get(name, name): value for name, value in event.items()} if "regarding" in event else event


def _version_number(value: Object) -> int:
    version = text_member(as_mapping(value.get("metadata")), "resourceVersion")
    return int(version) if version.isascii() and version.isdigit() and len(version) <= MAX_VERSION_DIGITS else 0


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
