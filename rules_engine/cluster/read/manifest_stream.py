"""Pods of manifests, one part of a file at a time, since kubectl's lists may be far larger than rule files.

A file larger than MAX_FILE_BYTES is read object by object, as JSON. A problem has the place of its object.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from rules_engine.cluster.read.kubectl import OutputError, read_output
from rules_engine.cluster.read.manifests import (
    Manifest,
    find_manifests,
    index_objects,
    manifest_documents,
    with_objects,
)
from rules_engine.cluster.read.references import Sources
from rules_engine.cluster.workloads.kind import WorkloadKind
from rules_engine.cluster.workloads.table import ObjectKey, WorkloadTable, own_kinds
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
from rules_engine.language.headers import RULE_KINDS
from rules_engine.language.log_lines import DECISION_LOG, is_decision_log
from rules_engine.language.schemas import spelling_hint
from rules_engine.language.yaml.documents import MAX_DEPTH, TOO_DEEP
from rules_engine.language.yaml.nodes import ListNode, MapNode, ScalarNode, YamlNode
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.device_objects import CLAIM_KINDS, DEVICE_GROUP
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, sort_problems, unknown_pods, warn_of
from rules_engine.model.problems.source import Location, SourceText, truncate

_NO_POD = "no pod and no object with a pod template found"


@dataclass(frozen=True, slots=True)
class PodPart:
    """The pods of a part of a file, with its problems; no pods if a problem is an error.

    `claims`: its ResourceClaims and ResourceClaimTemplates, as they are written.
    """

    pods: tuple[Manifest, ...]
    problems: tuple[Problem, ...]
    sources: Sources
    claims: tuple[Json, ...] = ()

    def claims_beside(self, cluster: ClusterObjects, namespace: str) -> Mapping[str, Sequence[dict[str, Json]]]:
        """Return the claims and templates of a cluster by kind, with those of the part that it does not have.

        `namespace`: of those without one.
        """
        by_kind: dict[str, list[dict[str, Json]]] = {}
        for each in map(as_mapping, self.claims):
            metadata: Object = {"namespace": namespace or DEFAULT_NAMESPACE, **as_mapping(each.get("metadata"))}
            kind, name = text_member(each, "kind"), text_member(metadata, "name")
            if cluster.find(kind, name, text_member(metadata, "namespace")) is None:
                by_kind.setdefault(kind, [*cluster.of(kind)]).append({**each, "metadata": {**metadata}})
        return by_kind


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
    whole = join_parts(stream_manifests(read, kinds))
    warn_of(whole.problems)
    return whole.pods


def join_parts(parts: Iterable[PodPart]) -> PodPart:
    """Return all parts in one: the pods of them are in memory at once."""
    every = [*parts]
    sources = {name: lines for part in every for name, lines in part.sources.items()}
    problems = tuple(problem for part in every for problem in part.problems)
    claims = tuple(claim for part in every for claim in part.claims)
    return PodPart(tuple(pod for part in every for pod in part.pods), problems, sources, claims)


def stream_manifests(items: Sequence[Path | YamlNode], kinds: Sequence[WorkloadKind] = ()) -> Iterator[PodPart]:
    """Yield the pods of files, folders and objects, at least one part.

    `kinds`: of workloads, in addition to the packaged ones. Files of a folder may lack pods if another one has some.
    """
    paths = [item for item in items if isinstance(item, Path)]

    @cache
    def objects(group: str) -> Mapping[ObjectKey, Json]:
        problems, roots = Problems(), list[YamlNode]()
        for file in find_files(paths, problems):
            data = read_bytes(file, MAX_FILE_BYTES, problems, regular=True) if file != STDIN else None
            source = decode_source(file, data, problems) if data is not None and group.encode() in data else None
            roots += () if source is None else manifest_documents(source, problems)
        return index_objects(roots, group)

    table = WorkloadTable(kinds, lambda group, key: objects(group).get(key))
    table = with_objects(table, (item for item in items if not isinstance(item, Path)))
    for item in items:
        if not isinstance(item, Path):
            yield from _object_parts([item], item.location, table)
        elif is_folder(item):
            yield from _folder_parts(item, table)
        else:
            yield from _file_parts(item, table)


def _folder_parts(folder: Path, table: WorkloadTable) -> Iterator[PodPart]:
    problems = Problems()
    files = [file for file in find_files([folder], problems) if not OTHER_TOOLS.fullmatch(file.name)]
    empty = not problems.failed
    for part in (part for file in files for part in _file_parts(file, table)):
        others = tuple(problem for problem in part.problems if problem.code is not Code.NOT_A_POD)
        empty = empty and not (part.pods or others)
        yield PodPart(part.pods, others, part.sources, part.claims)
    if empty:
        problems.error(Code.NOT_A_POD, _NO_POD, Location(str(folder), 1, 1))
    yield _part((), problems)


def _file_parts(path: Path, table: WorkloadTable) -> Iterator[PodPart]:
    """Yield the pods of a file: all at once, or, for a large file in JSON, object by object."""
    problems, place = Problems(), Location(str(path), 1, 1)
    pods: Sequence[Manifest] = ()
    claims: Iterable[Json] = ()
    sources: Sources = {}
    data = read_bytes(path, MAX_CLUSTER_BYTES, problems)
    if data is not None and is_decision_log(data):  # its requests have pods, which are no manifests
        problems.error(Code.NOT_A_POD, DECISION_LOG, place)
    elif data is not None and len(data) <= MAX_FILE_BYTES:
        source = decode_source(path, data, problems)
        if source is not None:
            sources = {source.name: source.lines}
            roots = manifest_documents(source, problems)
            pods = _read_pods(roots, place, problems, table)
            claims = index_objects(roots, DEVICE_GROUP).values() if DEVICE_GROUP.encode() in data else ()
    elif data is not None and data.lstrip().startswith((b"{", b"[")):
        try:
            items = (item for item in read_output(path, data, problems) if item.value is not None)
            yield from _object_parts((_json_node(item.value, item.place(), MAX_DEPTH) for item in items), place, table)
        except OutputError as error:
            problems.error(error.code, str(error), error.place)
    elif data is not None:
        report_too_large(str(path), MAX_FILE_BYTES, problems)
    yield _part(pods, problems, sources, claims)


def _object_parts(roots: Iterable[YamlNode], place: Location, table: WorkloadTable) -> Iterator[PodPart]:
    """Yield the pods of each object. `place`: of the problem that none has pods."""
    empty = True
    for root in roots:
        problems = Problems()
        pods = _find_pods(root, problems, table)
        empty = empty and not (pods or problems.items)
        kind = root.get("kind") if isinstance(root, MapNode) else None
        is_claim = isinstance(kind, ScalarNode) and kind.source.text.startswith("ResourceClaim")
        yield _part(pods, problems, claims=index_objects([root], DEVICE_GROUP).values() if is_claim else ())
    if empty:
        problems = Problems()
        problems.error(Code.NOT_A_POD, _NO_POD, place)
        yield _part((), problems)


def _part(
    pods: Sequence[Manifest],
    problems: Problems,
    sources: Sources = MappingProxyType({}),
    claims: Iterable[Json] = (),
) -> PodPart:
    found = tuple(each for each in claims if text_member(as_mapping(each), "kind") in CLAIM_KINDS)
    return PodPart(() if problems.failed else tuple(pods), sort_problems(problems.items), sources, found)


def _find_pods(root: YamlNode, problems: Problems, table: WorkloadTable) -> Sequence[Manifest]:
    pods = find_manifests(root, problems, table)
    for pod in pods:
        pod.check(problems)
    return pods


def _read_pods(
    roots: Sequence[YamlNode], place: Location, problems: Problems, table: WorkloadTable
) -> Sequence[Manifest]:
    """Return the pods of the documents of a file; having none is a problem."""
    if problems.failed:
        return ()
    table = with_objects(table, roots)
    pods = [pod for root in roots for pod in _find_pods(root, problems, table)]
    if pods or problems.failed or unknown_pods(problems.items):
        return pods
    kinds = [root.get("kind") for root in roots if isinstance(root, MapNode)]
    kind = next((kind for kind in kinds if isinstance(kind, ScalarNode)), None)
    if kind is None:
        problems.error(Code.NOT_A_POD, _NO_POD, place)
        return ()
    name = kind.source.text
    hint = ": pass rules with --rules" if name in RULE_KINDS else spelling_hint(name, ["Pod", *own_kinds()])
    problems.error(Code.NOT_A_POD, f"{truncate(name)} is not a pod and has no pod template{hint}", kind)
    return ()


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
