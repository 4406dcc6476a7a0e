"""Files of a cluster's objects: `kubectl get … -o json` or YAML, and must-gather folders → ClusterObjects.

A list in JSON is read as a stream, and its objects are reduced one by one.
"""

import codecs
import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import BinaryIO

from rules_engine.diagnosis.reading.reduction import Reducer, decoder_of, head_of
from rules_engine.loading.files import STDIN, decoded, find_files, is_folder, report_unreadable, standard_input
from rules_engine.loading.json_items import LenientItems, ListError
from rules_engine.loading.json_list import CHUNK_BYTES, MAX_ITEM_BYTES, JsonList, too_large
from rules_engine.loading.yaml_list import read_yaml_objects
from rules_engine.model.json.lenient import Object, mapping, objects, text
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import GROUPS, RESOURCES, ClusterObjects, moment, newest_change
from rules_engine.model.kubernetes.kept_fields import Kept, merged
from rules_engine.model.kubernetes.names import is_label, is_subdomain
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.problems.problem import Problem, Problems, in_file_order
from rules_engine.model.problems.source import Location

MAX_DUMP_BYTES = 4 * 1024 * 1024 * 1024
"""Largest file in JSON: five times the objects of the largest cluster that Kubernetes supports."""

MAX_YAML_BYTES = 128 * 1024 * 1024
"""Largest file in YAML, whose text is held in memory: a namespace of a must-gather folder with 10,000 pods."""

MAX_DUMP_FILES = 100_000
"""Files of a folder: a must-gather folder has one for each node and for each pod of some namespaces."""

MAX_VERSION_DIGITS = 20
"""Digits of a resourceVersion: those of a number of 64 bits."""

SYSTEM_NAMESPACE = "kube-system"
"""The namespace that has pods in every cluster with nodes."""

_OTHER_GROUPS = frozenset({("Event", "events.k8s.io")})
"""Other API groups of kinds that are read. One that is not here has other objects: OpenShift has a Node, too."""

EXPECTED = f"the output of kubectl get {','.join(RESOURCES.values())} -A -o json, or a must-gather folder"

Progress = Callable[[int, int], None]
"""A function that gets the bytes that are read so far, and all bytes; 0 if their number is not known."""

_HEAD = re.compile(r'\{\s*"apiVersion":\s*"([\w./-]*)",\s*"kind":\s*"(\w*)"')
"""The first members of an object as kubectl writes them."""

_OURS = re.compile(rf"""kind"?: *"?(?:{"|".join(RESOURCES)})(?:List)?"?,?[ \t\r]*$""", re.MULTILINE)
"""The kind of an object that may be read, in a text that is not read yet."""

_GZIP = b"\x1f\x8b"
"""The beginning of a file that gzip wrote, such as an archive of a must-gather folder."""

_NO_OBJECT, _NO_KIND = "a value that is not an object", "an object without a kind"

_LARGE_YAML = f"a file in YAML is larger than {MAX_YAML_BYTES // 2**20} MiB: write it with -o json"

_CONDITION_TIMES: Kept = {"status": {"conditions": {"lastHeartbeatTime": None, "lastTransitionTime": None}}}
_KEPT_TIMES: Mapping[str, Kept] = {
    "Node": _CONDITION_TIMES,
    "Pod": _CONDITION_TIMES,
    "Event": {"lastTimestamp": None, "eventTime": None},
}
"""Times at which objects were changed that no expression need read."""

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

    An object that is in several files is read once, in its latest version. In a folder, files of other objects are
    passed over; a file that is named must have an object of a kind that a diagnosis reads.
    """
    collected = Problems()
    files: list[tuple[Path, bool]] = []
    for path in paths:
        inside = find_files([path], collected, MAX_DUMP_FILES)
        files += ((file, not is_folder(path)) for file in inside)
    reader = _Reader(kept, collected, _Meter(progress, sum(_size(file) for file, _ in files)))
    with _without_collections():
        for file, named in dict(files).items():
            reader.read(file, named)
    if not reader.seen and not collected.failed:
        name = str(paths[0]) if paths else str(STDIN)
        collected.error(Code.NOT_A_CLUSTER, f"no object found: expected {EXPECTED}", Location(name, 1, 1))
    problems = in_file_order(collected.items, [str(file) for file, _ in files])
    return Reading(objects=None if collected.failed else reader.objects(), problems=problems, sources=reader.sources)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep the garbage collector from visiting all objects again and again: what is read has no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Meter:
    """Bytes read so far."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._read = 0

    def count(self, size: int) -> None:
        self._read += size
        self._progress(self._read, self._total)


@dataclass(frozen=True, slots=True)
class _Metered:
    """A file whose reads are counted."""

    file: BinaryIO
    meter: _Meter

    def read(self, size: int, /) -> bytes:
        chunk = self.file.read(size)
        self.meter.count(len(chunk))
        return chunk


class _Reader:
    """Reader of files into one set of objects."""

    def __init__(self, kept: Mapping[str, Kept], problems: Problems, meter: _Meter) -> None:
        self.sources: dict[str, Sequence[str]] = {}
        self.seen: set[str] = set()
        """The kinds of which there is an object or a list; "" for a list of any kinds."""
        self._problems = problems
        self._meter = meter
        complete = {kind: _completed(kind, kept.get(kind, {})) for kind in RESOURCES}
        self._reducers = {kind: decoder_of(kind, complete) for kind in RESOURCES}
        self._any = Reducer("", reduce(merged, complete.values()))
        self._found: dict[str, dict[tuple[str, str], dict[str, Json]]] = {kind: {} for kind in RESOURCES}
        self._left_out: set[tuple[str, str, str]] = set()
        """The files and kinds of objects that are left out, each with the reason."""
        self._newest = ""

    def objects(self) -> ClusterObjects:
        """Return all objects."""
        return ClusterObjects(
            {kind: found.values() for kind, found in self._found.items() if kind in self.seen},
            absent=frozenset(RESOURCES) - self.seen,
            partial=frozenset(["Pod"] if self._lacks_system_pods() else []),
            now=moment(self._newest),
        )

    def _lacks_system_pods(self) -> bool:
        """Return True if the pods are those of some namespaces only, as of kubectl get without -A."""
        namespaces = {namespace for namespace, _ in self._found["Pod"]}
        system = any(name == SYSTEM_NAMESPACE for _, name in self._found["Namespace"])
        return bool(namespaces and self._found["Node"]) and system and SYSTEM_NAMESPACE not in namespaces

    def read(self, path: Path, named: bool) -> None:
        """Read a file. `named`: it must have an object that is read."""
        name = str(path)
        start = Location(name, 1, 1)
        kinds: dict[str, Location] = {}
        """The kinds in the file, each with its first place; "" for a list of any kinds."""
        head, failed = b"", False
        try:
            with nullcontext(standard_input()) if path == STDIN else path.open("rb") as opened:
                file = _Metered(opened, self._meter)
                head = file.read(CHUNK_BYTES)
                if head.startswith(_GZIP):
                    raise _StopError(Code.UNREADABLE_FILE, "the file is compressed: unpack it first", start)
                if _is_json(path, head):
                    self._read_json(name, head, file, kinds)
                else:
                    data = head + file.read(MAX_YAML_BYTES + 1 - len(head))
                    if len(data) > MAX_YAML_BYTES:
                        raise _StopError(Code.FILE_TOO_LARGE, _LARGE_YAML, start)
                    failed = self._read_yaml(path, data, kinds, named)
        except FileNotFoundError:
            self._problems.error(Code.MISSING_FILE, "file or folder not found", start)
        except OSError as error:
            report_unreadable(path, error, self._problems)
        except _StopError as stop:
            if named or kinds.keys() & set(RESOURCES) or _OURS.search(head.decode("utf-8", "replace")):
                self._problems.error(stop.code, str(stop), stop.place)
        else:
            self.seen |= kinds.keys() & set(RESOURCES)
            if named and not failed and not kinds.keys() & set(RESOURCES):
                self._refuse(name, [(kind, place) for kind, place in kinds.items() if kind], any_kind="" in kinds)

    def _refuse(self, name: str, others: Sequence[tuple[str, Location]], *, any_kind: bool) -> None:
        """Report a file without an object that is read, but not an empty list of any kinds."""
        if others:
            kind, place = others[0]
            self._problems.error(Code.NOT_A_CLUSTER, f"{truncate(kind)} is not read: expected {EXPECTED}", place)
        elif not any_kind:
            self._problems.error(Code.NOT_A_CLUSTER, f"no object found: expected {EXPECTED}", Location(name, 1, 1))

    def _read_json(self, name: str, head: bytes, file: _Metered, kinds: dict[str, Location]) -> None:
        """Read a list or an object."""
        items = _Items(self._reducers, self._any)
        read = JsonList(name, head, file, MAX_DUMP_BYTES, LenientItems(items.read).scan)
        items.list = read.members
        unknown: list[tuple[Location, dict[str, Json]]] = []
        try:
            for place, (kind, found) in read.items():
                if not kind and found is not None:
                    unknown.append((place, found))
                    continue
                kinds.setdefault(kind or _NO_OBJECT, place)
                if found is not None:
                    self._take(kind, found, place)
            if read.too_large:
                raise ListError(Code.FILE_TOO_LARGE, too_large("an object that is not a list"))
        except ListError as error:
            raise _StopError(error.code, str(error), read.here()) from None
        start = Location(name, 1, 1)
        if read.listed or _is_empty_list(read.members):
            self._reduce_all(unknown, _list_kind(read.members), start, kinds)
        else:
            self._reduce(read.members, "", start, kinds)

    def _read_yaml(self, path: Path, data: bytes, kinds: dict[str, Location], named: bool) -> bool:
        """Read documents with lists or objects; return True if some have errors."""
        problems = Problems()
        source = decoded(path, data, problems)
        if source is not None and (named or _OURS.search(source.text)):
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
        self, found: Iterable[tuple[Location, Json]], kind: str, start: Location, kinds: dict[str, Location]
    ) -> None:
        """Reduce and take the items of a list; `kind` is that of items that have none."""
        for place, item in found:
            self._reduce(item, kind, place, kinds)
        kinds.setdefault(kind, start)

    def _reduce(self, value: Json, default: str, place: Location, kinds: dict[str, Location]) -> None:
        """Reduce an object and take it."""
        if not isinstance(value, dict):
            kinds.setdefault(_NO_OBJECT, place)
            return
        kind = _kind(text(value, "apiVersion"), text(value, "kind")) or default or _NO_KIND
        kinds.setdefault(kind, place)
        if kind in self._reducers:
            self._take(kind, self._reducers[kind].reduce(value), place)

    def _take(self, kind: str, found: dict[str, Json], place: Location) -> None:
        metadata = mapping(found.get("metadata"))
        key = text(metadata, "namespace"), text(metadata, "name")
        if not key[1] or (kind != "Event" and not _are_names(found)):
            lack = "with an invalid name" if key[1] else "without a name"
            if (place.file, kind, lack) not in self._left_out:  # a file may have a million
                self._left_out.add((place.file, kind, lack))
                self._problems.warning(Code.UNREAD_OBJECT, f"a {kind} {lack} is left out", place)
            return
        known = self._found[kind].get(key)
        if known is None or _version(known) <= _version(found):
            self._found[kind][key] = _core_event(found) if kind == "Event" else found
            self._newest = newest_change(self._found[kind][key], self._newest)


def _are_names(found: Object) -> bool:
    """Return True if the API server accepts the names of an object, of its node and of its containers.

    Commands contain these names, and a shell would run others. Those of Events are in none, and almost any text.
    """
    metadata, spec = mapping(found.get("metadata")), mapping(found.get("spec"))
    namespace = text(metadata, "namespace")
    names = (text(metadata, "name"), text(spec, "nodeName"), *(text(one, "name") for one in _containers(spec)))
    return (not namespace or is_label(namespace)) and all(is_subdomain(name) for name in names if name)


def _containers(spec: Object) -> list[Object]:
    return [*objects(spec.get("containers")), *objects(spec.get("initContainers"))]


class _StopError(Exception):
    """A file that cannot be read any further."""

    def __init__(self, code: Code, message: str, place: Location) -> None:
        super().__init__(message)
        self.code = code
        self.place = place


class _Items:
    """Reader of the items of a list in JSON, each with its kind; None for the items of kinds that are not read.

    `list`: the members of the list so far, for the kind of items that have none. The kind of an item is "" if it is not
    known yet: it then has all members that are kept of any kind.
    """

    def __init__(self, reducers: Mapping[str, Reducer], any_kind: Reducer) -> None:
        self.list: Mapping[str, Json] = {}
        self._reducers = reducers
        self._any = any_kind

    def read(self, written: str) -> tuple[str, dict[str, Json] | None]:
        """Return the kind and the kept members of an item. Raises json.JSONDecodeError and TooDeepError."""
        if not written.startswith("{"):
            return "", None
        kind = self._kind(written)
        reducer = self._reducers.get(kind) if kind else self._any
        return kind, None if reducer is None else reducer.decode(written)

    def _kind(self, written: str) -> str:
        found = _HEAD.match(written)
        if found is not None and found[2] in self._reducers:
            return _kind(found[1], found[2])
        # The whole text is parsed: it may be an object of another kind, or no JSON.
        return _kind(*head_of(written)) or _list_kind(self.list)


def _completed(kind: str, kept: Kept) -> Kept:
    """Return the members to keep of a kind, with the times of changes, and those of events.k8s.io."""
    complete = merged(kept, _KEPT_TIMES.get(kind, {}))
    if kind != "Event" or complete is None:
        return complete
    other: Kept = {name: complete[core] for name, core in _CORE_NAMES.items() if core in complete}
    return merged(complete, other)


def _kind(version: str, kind: str) -> str:
    """Return the name of a kind; one of another API group than the kind that is read is named with its version."""
    group = version.rpartition("/")[0]
    ours = not version or group == GROUPS.get(kind, group) or (kind, group) in _OTHER_GROUPS
    return kind if ours else f"{kind} of {version}"


def _list_kind(members: Mapping[str, Json]) -> str:
    """Return the kind of the items of a list; "" if they may have any."""
    kind = text(members, "kind")
    return "" if kind == "List" else _kind(text(members, "apiVersion"), kind.removesuffix("List"))


def _is_empty_list(members: Mapping[str, Json]) -> bool:
    """Return True for a list whose items are null, as Go writes lists that were never filled."""
    return "items" in members and members["items"] is None


def _is_json(path: Path, head: bytes) -> bool:
    """Return True for JSON; YAML may begin with a brace, too."""
    begin = head.removeprefix(codecs.BOM_UTF8).lstrip()
    return begin.startswith(b"{") and (path.suffix not in (".yaml", ".yml") or begin[1:].lstrip()[:1] in (b'"', b"}"))


def _core_event(event: dict[str, Json]) -> dict[str, Json]:
    """Return an Event of events.k8s.io with the names of the core group: the API server stores one object for both."""
    return {_CORE_NAMES.get(name, name): value for name, value in event.items()} if "regarding" in event else event


def _version(found: Object) -> int:
    version = text(mapping(found.get("metadata")), "resourceVersion")
    return int(version) if version.isascii() and version.isdigit() and len(version) <= MAX_VERSION_DIGITS else 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
