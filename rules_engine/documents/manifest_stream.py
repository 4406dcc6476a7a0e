"""Pods of manifests, one part of a file at a time, since kubectl's lists may be far larger than rule files.

A list larger than MAX_FILE_BYTES is read object by object, as JSON. A problem has the place of its object.
"""

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rules_engine.documents.pods import read_object_pods, read_pods
from rules_engine.documents.references import Sources
from rules_engine.loading.files import (
    MAX_CLUSTER_BYTES,
    MAX_FILE_BYTES,
    OTHER_TOOLS,
    STDIN,
    decode_source,
    find_files,
    is_folder,
    report_too_large,
    report_unreadable,
    standard_input,
)
from rules_engine.loading.json_items import ListError, TooDeepError, scan_strict
from rules_engine.loading.json_list import JsonList, Readable, too_large
from rules_engine.loading.kubernetes.manifests import Manifest
from rules_engine.loading.yaml.documents import MAX_DEPTH
from rules_engine.loading.yaml.nodes import ListNode, MapNode, Node, ScalarNode
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, sort_problems
from rules_engine.model.problems.source import Location, SourceText


@dataclass(frozen=True, slots=True)
class PodPart:
    """The pods of a part of a file, with its problems; no pods if a problem is an error."""

    pods: tuple[Manifest, ...]
    problems: tuple[Problem, ...]
    sources: Sources


def stream_manifests(paths: Sequence[Path]) -> Iterator[PodPart]:
    """Yield the pods of files and folders of manifests, at least one part.

    Files of a folder may have no pods, unless none of them has any.
    """
    for path in paths:
        if not is_folder(path):
            yield from stream_pods(path)
            continue
        problems = Problems()
        files = find_files([path], problems)
        empty = not problems.failed
        for part in (part for file in files if not OTHER_TOOLS.fullmatch(file.name) for part in stream_pods(file)):
            others = tuple(problem for problem in part.problems if problem.code is not Code.NOT_A_POD)
            empty = empty and not (part.pods or others)
            yield PodPart(part.pods, others, part.sources)
        if empty:
            problems.error(Code.NOT_A_POD, "no pod and no object with a pod template found", Location(str(path), 1, 1))
        yield PodPart((), tuple(problems.items), {})


def join_parts(parts: Iterable[PodPart]) -> PodPart:
    """Return all parts in one: the pods of them are in memory at once."""
    every = [*parts]
    sources = {name: lines for part in every for name, lines in part.sources.items()}
    problems = tuple(problem for part in every for problem in part.problems)
    return PodPart(tuple(pod for part in every for pod in part.pods), problems, sources)


def stream_pods(path: Path, limit: int = MAX_CLUSTER_BYTES, opened: Readable | None = None) -> Iterator[PodPart]:
    """Yield the pods of a file of manifests: all at once, or, for a large list in JSON, object by object.

    MAX_FILE_BYTES bounds memory, whatever the size of the list, which may have `limit` bytes.
    `opened`: the file, if it is already open, at its beginning; it is not closed.
    """
    problems = Problems()
    try:
        with _open_manifests(path) if opened is None else nullcontext(opened) as file:
            head = file.read(MAX_FILE_BYTES + 1)
            if len(head) > MAX_FILE_BYTES and head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
                yield from _list_parts(str(path), head, file, limit)
                return
    except OSError as error:
        report_unreadable(path, error, problems)
        yield PodPart((), tuple(problems.items), {})
        return
    if len(head) > MAX_FILE_BYTES:
        report_too_large(str(path), MAX_FILE_BYTES, problems)
        yield PodPart((), tuple(problems.items), {})
        return
    source = decode_source(path, head, problems)
    pods = read_pods(source, problems) if source is not None else ()
    lines = {} if source is None else {source.name: source.lines}
    yield PodPart(pods, sort_problems(problems.items), lines)


def _open_manifests(path: Path) -> AbstractContextManager[Readable]:
    return nullcontext(standard_input()) if path == STDIN else path.open("rb")


def _list_parts(name: str, head: bytes, file: Readable, limit: int) -> Iterator[PodPart]:
    """Yield the pods of each object of a list; a problem of the list itself comes last, in a part without pods."""
    problems = Problems()
    has_content = False
    listed = JsonList(name, head, file, limit, scan_strict)
    try:
        for place, value in listed.items():
            part = _object_part(value, place)
            has_content = has_content or bool(part.pods or part.problems)
            yield part
        if not listed.listed:
            raise ListError(Code.FILE_TOO_LARGE, too_large("an object that is not a list"))
        if not has_content:
            problems.error(Code.NOT_A_POD, "no pod and no object with a pod template found", listed.here())
    except ListError as error:
        problems.error(error.code, str(error), listed.here())
    if problems.items:
        yield PodPart((), tuple(problems.items), {})


def _object_part(value: Json, place: Location) -> PodPart:
    problems = Problems()
    pods = read_object_pods(_json_node(value, place, MAX_DEPTH), problems)
    return PodPart(() if problems.failed else pods, sort_problems(problems.items), {})


def _json_node(value: Json, place: Location, depth: int) -> Node:
    """Return a value as a tree whose nodes all have the same place. Raises TooDeepError."""
    if not depth:
        raise TooDeepError
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
