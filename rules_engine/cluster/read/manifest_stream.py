"""Pods of manifests, one part of a file at a time, since kubectl's lists may be far larger than rule files.

A file larger than MAX_FILE_BYTES is read object by object, as JSON. A problem has the place of its object.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rules_engine.cluster.read.kubectl import OutputError, read_output
from rules_engine.cluster.read.manifest_documents import (
    NO_POD,
    index_objects,
    manifest_documents,
    read_object_pods,
    read_pods,
    with_objects,
)
from rules_engine.cluster.read.manifests import Manifest
from rules_engine.cluster.read.references import Sources
from rules_engine.cluster.workloads.kind import WorkloadKind
from rules_engine.cluster.workloads.table import FindObject, ObjectKey, WorkloadTable
from rules_engine.language.files import (
    MAX_CLUSTER_BYTES,
    MAX_FILE_BYTES,
    OTHER_TOOLS,
    STDIN,
    decode_source,
    each_of,
    find_files,
    is_folder,
    read_bytes,
    report_too_large,
)
from rules_engine.language.yaml.documents import MAX_DEPTH, TOO_DEEP
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, sort_problems, warn_of
from rules_engine.model.problems.source import Location, SourceText

_LOG = re.compile(rb'\s*\{[^\n]*"endpoint": ?"(?:mutate|validate)"')
"""The first line of a decision log."""


@dataclass(frozen=True, slots=True)
class PodPart:
    """The pods of a part of a file, with its problems; no pods if a problem is an error."""

    pods: tuple[Manifest, ...]
    problems: tuple[Problem, ...]
    sources: Sources


def stream_manifests(paths: Sequence[Path], kinds: Sequence[WorkloadKind] = ()) -> Iterator[PodPart]:
    """Yield the pods of files and folders of manifests, at least one part.

    `kinds`: of workloads, in addition to the packaged ones. Files of a folder may lack pods if another one has some.
    """
    table = WorkloadTable(kinds, _find_in(paths))
    for path in paths:
        yield from _stream_path(path, table)


def _stream_path(path: Path, table: WorkloadTable) -> Iterator[PodPart]:
    if not is_folder(path):
        yield from stream_pods(path, table)
        return
    problems = Problems()
    files = find_files([path], problems)
    empty = not problems.failed
    for part in (part for file in files if not OTHER_TOOLS.fullmatch(file.name) for part in stream_pods(file, table)):
        others = tuple(problem for problem in part.problems if problem.code is not Code.NOT_A_POD)
        empty = empty and not (part.pods or others)
        yield PodPart(part.pods, others, part.sources)
    if empty:
        problems.error(Code.NOT_A_POD, NO_POD, Location(str(path), 1, 1))
    yield PodPart((), tuple(problems.items), {})


def _find_in(paths: Sequence[Path]) -> FindObject:
    """Return a function that finds objects of files, which are read once for each API group."""

    @cache
    def objects(group: str) -> Mapping[ObjectKey, Json]:
        problems, roots = Problems(), list[YamlNode]()
        for file in find_files(paths, problems):
            data = read_bytes(file, MAX_FILE_BYTES, problems, regular=True) if file != STDIN else None
            source = decode_source(file, data, problems) if data is not None and group.encode() in data else None
            roots += () if source is None else manifest_documents(source, problems)
        return index_objects(roots, group)

    return lambda group, key: objects(group).get(key)


def load_manifests(
    items: str | Path | Mapping[str, Json] | Iterable[str | Path | Mapping[str, Json]],
    kinds: Sequence[WorkloadKind] = (),
) -> tuple[Manifest, ...]:
    """Load the pods of manifests: each item is a file, a folder, or an object such as a Pod or a Job.

    `kinds`: as in `stream_manifests`. Warnings are issued as UserWarning. Raises InputError.

    >>> from rules_engine import load_manifests
    >>> [pod] = load_manifests([{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}])
    >>> pod.title()
    'Pod a'
    """
    every = [items] if isinstance(items, Mapping) else [*each_of(items)]
    read = [
        _json_node({**item}, Location(f"items[{number}]", 1, 1), MAX_DEPTH) if isinstance(item, Mapping) else Path(item)
        for number, item in enumerate(every)
    ]
    table = WorkloadTable(kinds, _find_in([item for item in read if isinstance(item, Path)]))
    table = with_objects(table, [item for item in read if not isinstance(item, Path)])
    parts: list[PodPart] = []
    for item in read:
        if isinstance(item, Path):
            parts.extend(_stream_path(item, table))
            continue
        parts.append(_object_part(item, table))
        if not (parts[-1].pods or parts[-1].problems):
            parts.append(_problem_part(Code.NOT_A_POD, NO_POD, item.location))
    joined = join_parts(parts)
    warn_of(joined.problems)
    return joined.pods


def join_parts(parts: Iterable[PodPart]) -> PodPart:
    """Return all parts in one: the pods of them are in memory at once."""
    every = [*parts]
    sources = {name: lines for part in every for name, lines in part.sources.items()}
    problems = tuple(problem for part in every for problem in part.problems)
    return PodPart(tuple(pod for part in every for pod in part.pods), problems, sources)


def stream_pods(path: Path, table: WorkloadTable | None = None) -> Iterator[PodPart]:
    """Yield the pods of a file of manifests: all at once, or, for a large file in JSON, object by object."""
    problems = Problems()
    data = read_bytes(path, MAX_CLUSTER_BYTES, problems)
    if data is not None and _LOG.match(data):  # its requests have pods, which are no manifests
        message = "this is a decision log: explain and diff read it by --from-log"
        yield _problem_part(Code.NOT_A_POD, message, Location(str(path), 1, 1))
        return
    if data is not None and len(data) > MAX_FILE_BYTES and data.lstrip().startswith((b"{", b"[")):
        yield from _large_parts(path, data, table or WorkloadTable())
        return
    pods: tuple[Manifest, ...] = ()
    lines: Sources = {}
    if data is not None and len(data) > MAX_FILE_BYTES:
        report_too_large(str(path), MAX_FILE_BYTES, problems)
    elif data is not None and (source := decode_source(path, data, problems)) is not None:
        pods, lines = read_pods(source, problems, table), {source.name: source.lines}
    yield PodPart(pods, sort_problems(problems.items), lines)


def _large_parts(path: Path, data: bytes, table: WorkloadTable) -> Iterator[PodPart]:
    """Yield the pods of each object; a problem of the file itself comes last, in a part without pods."""
    problems = Problems()
    has_content = False
    try:
        for item in read_output(path, data, problems):
            if item.value is not None:
                part = _object_part(_json_node(item.value, item.place(), MAX_DEPTH), table)
                has_content = has_content or bool(part.pods or part.problems)
                yield part
        if not has_content:
            yield _problem_part(Code.NOT_A_POD, NO_POD, Location(str(path), 1, 1))
    except OutputError as error:
        problems.error(error.code, str(error), error.place)
    if problems.items:
        yield PodPart((), tuple(problems.items), {})


def _object_part(root: YamlNode, table: WorkloadTable) -> PodPart:
    problems = Problems()
    pods = read_object_pods(root, problems, table)
    return PodPart(() if problems.failed else pods, sort_problems(problems.items), {})


def _problem_part(code: Code, message: str, place: Location) -> PodPart:
    problems = Problems()
    problems.error(code, message, place)
    return PodPart((), tuple(problems.items), {})


def _json_node(value: Json, place: Location, depth: int) -> YamlNode:
    """Return a value as a tree whose nodes all have the same place. Raises OutputError."""
    if not depth:
        raise OutputError(Code.YAML_TOO_DEEP, TOO_DEEP, place)
    if isinstance(value, Mapping):
        members = {
            name: (_json_scalar(name, place), _json_node(member, place, depth - 1)) for name, member in value.items()
        }
        return MapNode(members=members, location=place)
    if isinstance(value, list):
        return ListNode(items=tuple(_json_node(item, place, depth - 1) for item in value), location=place)
    return _json_scalar(value, place)


def _json_scalar(value: Json, place: Location) -> ScalarNode:
    plain = value if isinstance(value, bool | int | float | str) else None
    text = plain if isinstance(plain, str) else json.dumps(plain)
    return ScalarNode(value=plain, source=SourceText(text, place.file, ((0, place.line, place.column),)), quoted=True)
