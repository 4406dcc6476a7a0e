"""Loading of files: the documents of some kinds, with every problem of every file."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from rules_engine.cluster.read.clusters import load_inventory
from rules_engine.cluster.read.loader import DocumentKind, Loader, LoadResult, Part
from rules_engine.cluster.read.references import ReadCluster, Sources
from rules_engine.cluster.workloads.kind import read_workload_kind
from rules_engine.language.files import SourceFile, find_files, read_file
from rules_engine.language.schemas import SCHEMAS
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem
from rules_engine.model.rules.rule import Rule
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.compiled import RuleKind

T = TypeVar("T")


def rule_kind(kind: RuleKind) -> DocumentKind[Rule]:
    """Return the DocumentKind of a kind of rule."""
    read, schemas = kind.read, kind.schemas or SCHEMAS
    return DocumentKind(name=kind.name, part=Part.RULES, schemas=schemas, read=lambda root, to, _: read(root, to))


RULES: Sequence[DocumentKind[Rule]] = tuple(map(rule_kind, KINDS))
"""The kinds that a server reads."""

COMMAND_KINDS: Sequence[DocumentKind[object]] = (
    *RULES,
    DocumentKind(name="WorkloadKind", part=Part.RULES, read=lambda root, to, _: read_workload_kind(root, to)),
)
"""The kinds that commands read for the pods of manifests."""


def load_files(paths: Sequence[Path], kinds: Sequence[DocumentKind[object]] = RULES) -> LoadResult:
    """Load the documents of some kinds in files and folders.

    A document with an error is left out; the others of its file are loaded. Documents of other tools are ignored, even
    if their file is in `paths`: manifests belong to tests, and pre-commit passes any file of a folder.
    """
    loader = Loader(kinds, load_inventory)
    files = find_files(paths, loader.problems[Part.RULES])
    for path in files:
        source = read_file(path, loader.problems[Part.RULES], regular=True)
        if source is not None:
            loader.read(source)
    return loader.result(tuple(map(str, files)))


def load_texts(sources: Iterable[SourceFile], kinds: Sequence[DocumentKind[object]] = RULES) -> LoadResult:
    """Load the documents of texts as `load_files` does, without files."""
    loader = Loader(kinds, load_inventory)
    names = []
    for source in sources:
        names.append(source.name)
        loader.read(source)
    return loader.result(tuple(names))


def load_single_document(
    path: Path,
    kind: DocumentKind[T],
    code: Code,
    title: str,
    expected: str,
    read_cluster: ReadCluster = load_inventory,
    *,
    regular: bool = False,
) -> tuple[T | None, tuple[Problem, ...], Sources]:
    """Load the only document of a kind in a file, which may have other kinds; None, with problems, if it has errors."""
    loader = Loader((kind,), read_cluster, single=True)
    problems = loader.problems[Part.RULES]
    source = read_file(path, problems, regular=regular)
    if source is not None:
        loader.read(source)
    values: list[T] = [document.value for document in loader.documents if document.valid]  # type: ignore[misc]
    if len(values) != 1 and not loader.failed:
        loader.report_not_one(code, title, expected, path)
    value = values[0] if not loader.failed else None
    return value, loader.result((str(path),)).problems, loader.sources
