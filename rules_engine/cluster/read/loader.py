"""Loader: the documents of some kinds in texts, with every problem of every text; and a kind of document.

Each text passes these stages: text → YAML documents → header → schema → value. A failure is a problem of its part.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from rules_engine.accelerators.catalogue import Catalogue, add_catalogue
from rules_engine.cluster.read.inventory import Inventory, build_inventory
from rules_engine.cluster.read.manifests import manifest_json
from rules_engine.cluster.read.references import ReadCluster, References, Sources
from rules_engine.cluster.workloads.kind import WorkloadKind
from rules_engine.cluster.workloads.table import own_kinds
from rules_engine.cluster.workloads.templates import find_templates
from rules_engine.language.document_fields import document_name
from rules_engine.language.fields import list_items, map_field
from rules_engine.language.files import MAX_FILE_BYTES, OTHER_TOOLS, SourceFile, report_too_large
from rules_engine.language.headers import (
    DOCUMENT_KINDS,
    api_version,
    document_kind,
    is_foreign,
    member_text,
    pair_with_kinds,
    read_kind,
)
from rules_engine.language.schemas import SCHEMAS, validate
from rules_engine.language.yaml.digest import digest_documents
from rules_engine.language.yaml.documents import Document, read_documents
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode
from rules_engine.language.yaml.scalars import AMBIGUOUS_CODES
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, Severity, sort_problems
from rules_engine.model.problems.source import Location, truncate
from rules_engine.model.rules.rule import API_VERSION, Rule
from rules_engine.model.rules.rule_test import RuleTest

T_co = TypeVar("T_co", covariant=True)


class Part(Enum):
    """A part of a load: an error in one part leaves the others valid."""

    RULES = "rules"
    DIAGNOSTICS = "diagnostics"
    TESTS = "tests"
    """RuleTests, Simulations, ClusterInventories, and the files they refer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind(Generic[T_co]):
    """A kind of document.

    `read` returns the value of a document that the schema in `schemas` has validated, or None if it has no value in
    which to look for further problems. The value is valid only if neither the schema nor `read` reports an error. Files
    that the document refers to come from `References`.
    """

    name: str
    part: Part
    read: Callable[[MapNode, Problems, References], T_co | None]
    schemas: Path = SCHEMAS


T = TypeVar("T")


def _read_inventory(root: MapNode, problems: Problems, _: References) -> Inventory:
    name, location, _length = document_name(root)
    return build_inventory(name, location, map_field(root, "spec"), problems)


CLUSTER = DocumentKind(name="ClusterInventory", part=Part.TESTS, read=_read_inventory)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDocument:
    """A document as written and as read; unless it is `valid`, its value serves only to find more problems."""

    kind: str
    name: str
    location: Location
    written: MapNode
    value: object
    valid: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The documents of files, and the problems of each part.

    `files` are the files of the paths. `passed_over` are the files without a gpu-rules document to which no document
    refers. `references` are the files and folders to which documents refer, whether they exist or not.
    `unread` are the `kind` scalars of documents that were not loaded.
    """

    documents: tuple[LoadedDocument, ...] = ()
    by_part: Mapping[Part, Sequence[Problem]] = field(default_factory=lambda: MappingProxyType({}))
    sources: Sources = field(default_factory=lambda: MappingProxyType({}))
    files: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    references: tuple[Path, ...] = ()
    unread: tuple[ScalarNode, ...] = ()

    def of(self, values: type[T], *, valid: bool = True) -> tuple[T, ...]:
        """Return the values of a type, from valid documents or, with `valid=False`, from documents with errors."""
        every = (document.value for document in self.documents if document.valid is valid)
        return tuple(value for value in every if isinstance(value, values))

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.of(Rule)  # type: ignore[type-abstract]

    @property
    def drafts(self) -> tuple[Rule, ...]:
        """Rules with errors, as far as they could be read."""
        return self.of(Rule, valid=False)  # type: ignore[type-abstract]

    @property
    def tests(self) -> tuple[RuleTest, ...]:
        return self.of(RuleTest)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of all parts, in file order."""
        return self.problems_of(*Part)

    def problems_of(self, *parts: Part) -> tuple[Problem, ...]:
        """Return the problems of some parts, in file order."""
        return sort_problems([problem for part in parts for problem in self.by_part.get(part, ())], self.files)

    @property
    def failed(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.problems)

    def require_one(self, code: Code, title: str, expected: str) -> "LoadResult":
        """Return the result of one file, with a problem unless it has just one document of the kind.

        The problem is at the second document, or at the first one of another kind.
        """
        if self.failed or len(self.documents) == 1:
            return self
        place, length = Location(self.files[0], 1, 1), 1
        message = f"expected {expected}"
        if self.documents:
            second = self.documents[1]
            message, place = f"expected one {second.kind}, not {len(self.documents)}", second.location
        elif self.unread:
            kind = self.unread[0]
            message = f"{truncate(kind.source.text)} is not {title}: {message}"
            place, length = kind.location, kind.length
        problem = Problem(code=code, message=message, location=place, length=length)
        return replace(self, by_part={**self.by_part, Part.RULES: (*self.by_part[Part.RULES], problem)})

    @property
    def digest(self) -> str:
        """Digest of the rule documents, including documents with errors."""
        rules = (document for document in self.documents if isinstance(document.value, Rule))
        return digest_documents((document.kind, document.name, document.written) for document in rules)


def load(
    sources: Iterable[SourceFile],
    kinds: Sequence[DocumentKind[object]],
    read_cluster: ReadCluster,
    problems: Problems,
    *,
    single: bool = False,
) -> LoadResult:
    """Load the documents of some kinds in texts. `problems`: of reading the texts.

    `single`: one document is expected, and objects of other tools are ignored.
    """
    loader = _Loader(kinds, read_cluster, problems, single=single)
    files = []
    for source in sources:
        files.append(source.name)
        loader.read(source)
    return loader.result(tuple(files))


class _Loader:
    """Loader of documents of some kinds."""

    def __init__(
        self, kinds: Sequence[DocumentKind[object]], read_cluster: ReadCluster, problems: Problems, *, single: bool
    ) -> None:
        self._problems = {part: problems if part is Part.RULES else Problems() for part in Part}
        self._sources: dict[str, Sequence[str]] = {}
        self._kinds = {kind.name: kind for kind in kinds}
        self._known_kinds = tuple(dict.fromkeys((*DOCUMENT_KINDS, *self._kinds)))
        self._single = single
        self._found: list[Document] = []
        self._unread: list[ScalarNode] = []
        self._ignored_files: list[str] = []
        self._documents: list[LoadedDocument] = []
        self._places: dict[tuple[str, str], Location] = {}
        self._references = References(read_cluster, self._problems[Part.TESTS], self._sources)

    def result(self, files: tuple[str, ...]) -> LoadResult:
        """Return the documents and problems of these files."""
        # Other documents of any file may be about what these add.
        first = ("AcceleratorCatalogue", "WorkloadKind")
        for document in sorted(self._found, key=lambda each: document_kind(each.root) not in first):
            self._take(document)
        referenced = set(map(os.path.realpath, self._references.paths))
        return LoadResult(
            documents=tuple(self._documents),
            by_part={part: tuple(problems.items) for part, problems in self._problems.items()},
            sources=self._sources,
            files=files,
            passed_over=tuple(name for name in self._ignored_files if os.path.realpath(name) not in referenced),
            references=tuple(self._references.paths),
            unread=tuple(self._unread),
        )

    def read(self, source: SourceFile) -> None:
        """Find the documents of a file that are ours."""
        if source.other_tool:
            self._ignored_files.append(source.name)
            return
        if len(source.text) > MAX_FILE_BYTES:
            report_too_large(source.name, MAX_FILE_BYTES, self._problems[Part.RULES])
            return
        self._sources[source.name] = source.lines
        problems = Problems()
        documents = [item for document in read_documents(source, problems) for item in self._split_list(document)]
        if OTHER_TOOLS.fullmatch(Path(source.name).name) and not any(
            api_version(document.root) == API_VERSION for document in documents
        ):
            self._ignored_files.append(source.name)
            return
        if not documents and not problems.failed:
            problems.error(Code.EMPTY_FILE, "the file has no documents", Location(source.name, 1, 1))
        for problem, kind in pair_with_kinds(problems.items, source):
            self._report(kind, [problem])
        ours = [document for document in documents if not self._skip_other_tool(document.root)]
        no_own_document = len(ours) < len(documents) and all(document.empty for document in ours)
        if no_own_document and not problems.failed:
            self._ignored_files.append(source.name)
        # Manifests may have empty documents among them.
        self._found += [each for each in ours if not each.empty or len(ours) == len(documents)]

    def _split_list(self, document: Document) -> Sequence[Document]:
        """Return the items of a List that kubectl printed, if one belongs to gpu-rules and none is a Node's."""
        root = document.root
        items = list_items(root, "items") if isinstance(root, MapNode) and member_text(root, "kind") == "List" else ()
        ours = (api_version(item) is not None and not is_foreign(item, self._known_kinds) for item in items)
        if not any(ours) or any(isinstance(item, MapNode) and member_text(item, "kind") == "Node" for item in items):
            return (document,)
        split = [Document(root=item, problems=Problems()) for item in items]
        starts = [item.location for item in items]
        for problem in document.problems.items:
            split[max(0, bisect_right(starts, problem.location) - 1)].problems.items.append(problem)
        return split

    def _skip_other_tool(self, root: YamlNode) -> bool:
        """Return True for a document of another tool, such as kubectl's output."""
        kind = root.get("kind") if isinstance(root, MapNode) else None
        if isinstance(kind, ScalarNode) and kind.source.text not in self._kinds:
            self._unread.append(kind)
        if not is_foreign(root, self._known_kinds):
            return False
        name = document_kind(root) or ""
        if self._single or name.endswith("List") or api_version(root) is not None or name in own_kinds():
            return True
        return any(find_templates(manifest_json(root)))

    def _take(self, document: Document) -> None:
        root = document.root
        if is_foreign(root, self._known_kinds):
            read_kind(root, self._problems[Part.RULES], self._known_kinds)
            return
        problems = Problems()
        kind = None
        if document.empty:
            problems.warning(Code.EMPTY_DOCUMENT, "the document is empty", root.location)
        else:
            kind = read_kind(root, problems, self._known_kinds)
        if kind in self._kinds and isinstance(root, MapNode):
            self._read(self._kinds[kind], root, document.problems, problems)
        self._report(kind, _yaml_problems(problems, document))

    def _read(self, kind: DocumentKind[object], written: MapNode, yaml: Problems, problems: Problems) -> None:
        root = validate(kind.name, written, problems, kind.schemas)
        name, location, length = document_name(root)
        first = self._places.setdefault((kind.name, name), location)
        if name and first is not location:
            message = f"{kind.name} '{name}' is already defined in {first}"
            problems.error(Code.DUPLICATE_DOCUMENT, message, location, length)
        value = kind.read(root, problems, self._references)
        valid = not (problems.failed or yaml.failed)
        if valid and isinstance(value, WorkloadKind):
            self._references.workload_kinds.append(value)
        if valid and isinstance(value, Catalogue):
            add_catalogue(value)
        self._documents.append(
            LoadedDocument(kind=kind.name, name=name, location=location, written=written, value=value, valid=valid)
        )

    def _report(self, kind: str | None, problems: Iterable[Problem]) -> None:
        """Add problems of a document to its part; a document of a kind that is not read has none."""
        if kind in self._kinds:
            self._problems[self._kinds[kind].part].items.extend(problems)
        elif kind not in DOCUMENT_KINDS:
            self._problems[Part.RULES].items.extend(problems)


def _yaml_problems(problems: Problems, document: Document) -> list[Problem]:
    """Return the problems of a document, one per place: a value that YAML cannot read is not checked further.

    For values that YAML parsers read differently, a problem of the schema wins: it knows their range and type.
    """
    checked = {problem.location for problem in problems.items}
    read = [p for p in document.problems.items if p.code not in AMBIGUOUS_CODES or p.location not in checked]
    reported = {problem.location for problem in read}
    return [*read, *(problem for problem in problems.items if problem.location not in reported)]
