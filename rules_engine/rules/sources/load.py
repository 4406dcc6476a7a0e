"""Loading of files: the documents of some kinds, with every problem of every file."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rules_engine.accelerators.catalogue import read_catalogue
from rules_engine.cluster.read.clusters import load_inventory
from rules_engine.cluster.read.loader import DocumentKind, LoadResult, Part, load
from rules_engine.cluster.workloads.kind import read_workload_kind
from rules_engine.language.files import SourceFile, find_files, read_file
from rules_engine.language.schemas import SCHEMAS
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.rule import Rule
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.compiled import RuleKind


def rule_kind(kind: RuleKind) -> DocumentKind[Rule]:
    """Return the DocumentKind of a kind of rule."""
    read, schemas = kind.read, kind.schemas or SCHEMAS
    return DocumentKind(name=kind.name, part=Part.RULES, schemas=schemas, read=lambda root, to, _: read(root, to))


RULES: Sequence[DocumentKind[Rule]] = tuple(map(rule_kind, KINDS))
"""The kinds that a server reads."""

CATALOGUE = DocumentKind(
    name="AcceleratorCatalogue", part=Part.RULES, read=lambda root, to, _: read_catalogue(root, to)
)

COMMAND_KINDS: Sequence[DocumentKind[object]] = (
    CATALOGUE,
    *RULES,
    DocumentKind(name="WorkloadKind", part=Part.RULES, read=lambda root, to, _: read_workload_kind(root, to)),
)
"""The kinds that commands read for the pods of manifests."""


def load_files(paths: Sequence[Path], kinds: Sequence[DocumentKind[object]] = RULES) -> LoadResult:
    """Load the documents of some kinds in files and folders.

    A document with an error is left out; the others of its file are loaded. Documents of other tools are ignored, even
    if their file is in `paths`: manifests belong to tests, and pre-commit passes any file of a folder.
    """
    problems = Problems()
    files = find_files(paths, problems)
    sources = (read_file(path, problems, regular=True) for path in files)
    return replace(load_texts(filter(None, sources), kinds, problems), files=tuple(map(str, files)))


def load_texts(
    sources: Iterable[SourceFile], kinds: Sequence[DocumentKind[object]] = RULES, problems: Problems | None = None
) -> LoadResult:
    """Load the documents of texts as `load_files` does, without files. `problems`: of reading the texts."""
    return load(sources, kinds, load_inventory, Problems() if problems is None else problems)
