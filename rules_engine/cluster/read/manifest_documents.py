"""Pods of manifests, read as kubectl does."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from rules_engine.cluster.read.manifests import Manifest, find_manifests, manifest_json, split_list
from rules_engine.cluster.read.pods import read_pod
from rules_engine.cluster.workloads.table import ObjectKey, WorkloadTable, own_kinds
from rules_engine.language.files import MAX_FILE_BYTES, SourceFile, report_too_large
from rules_engine.language.headers import RULE_KINDS
from rules_engine.language.schemas import spelling_hint
from rules_engine.language.yaml.documents import Dialect, read_documents
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, unknown_pods
from rules_engine.model.problems.source import Location, truncate

NO_POD = "no pod and no object with a pod template found"


def read_pods(source: SourceFile, problems: Problems, table: WorkloadTable | None = None) -> tuple[Manifest, ...]:
    """Read every pod of a text of manifests; none if it has errors."""
    roots = manifest_documents(source, problems)
    whole = with_objects(table or WorkloadTable(), roots)
    pods = [pod for root in roots for pod in read_object_pods(root, problems, whole)] if not problems.failed else []
    if not (pods or problems.failed or unknown_pods(problems.items)):
        _report_no_pod(source, roots, problems)
    return () if problems.failed else tuple(pods)


def with_objects(table: WorkloadTable, roots: Sequence[YamlNode]) -> WorkloadTable:
    """Return a table that finds the objects of these documents, too."""
    objects = cache(partial(index_objects, roots))
    return replace(table, find=lambda group, key: objects(group).get(key) or table.find(group, key))


def index_objects(roots: Iterable[YamlNode], group: str) -> Mapping[ObjectKey, Json]:
    """Return the objects of an API group in documents."""
    found: dict[ObjectKey, Json] = {}
    for value in (value for root in roots for value, _ in split_list(manifest_json(root), root)):
        if text_member(value, "apiVersion").rpartition("/")[0] == group:
            metadata = as_mapping(value.get("metadata"))
            key = text_member(value, "kind"), text_member(metadata, "name"), text_member(metadata, "namespace")
            found.setdefault(key, value)
    return found


def read_object_pods(root: YamlNode, problems: Problems, table: WorkloadTable | None = None) -> tuple[Manifest, ...]:
    """Read every pod of an object, which may have none."""
    pods = find_manifests(root, problems, table)
    for manifest in pods:
        if read_pod(manifest.pod, manifest.node, problems) is not None:
            manifest.warn(problems)
    return pods


def manifest_documents(source: SourceFile, problems: Problems) -> tuple[YamlNode, ...]:
    """Return the non-empty documents of a text of manifests."""
    if len(source.text) > MAX_FILE_BYTES:
        report_too_large(source.name, MAX_FILE_BYTES, problems)
        return ()
    documents = read_documents(source, problems, Dialect.MANIFESTS)
    for document in documents:
        problems.items.extend(document.problems.items)
    return tuple(document.root for document in documents if not document.empty)


def _report_no_pod(source: SourceFile, roots: Sequence[YamlNode], problems: Problems) -> None:
    kinds = [root.get("kind") for root in roots if isinstance(root, MapNode)]
    place = next((kind for kind in kinds if isinstance(kind, ScalarNode)), None)
    if place is None:
        problems.error(Code.NOT_A_POD, NO_POD, Location(source.name, 1, 1))
        return
    kind = place.source.text
    rules = ": pass rules with --rules" if kind in RULE_KINDS else ""
    hint = rules or spelling_hint(kind, ["Pod", *own_kinds()])
    message = f"{truncate(kind)} is not a pod and has no pod template{hint}"
    problems.error(Code.NOT_A_POD, message, place.location, place.length)
