"""Files → rules, with every problem of every file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from rules_engine.loading.documents import Document, read_documents
from rules_engine.loading.files import SourceFile, find_files, read_file
from rules_engine.loading.nodes import MapNode, ScalarNode
from rules_engine.loading.report import Report
from rules_engine.loading.rules import build_rule, name_of
from rules_engine.loading.schemas import KINDS, near, validate
from rules_engine.model.problems import Problem, in_file_order
from rules_engine.model.rules import API_VERSION, AnyRule
from rules_engine.model.source import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All that was read.

    `drafts` are rules of documents with errors, as far as they could be read: fit for finding further problems in
    their expressions, and for nothing else. `sources` holds the lines of each file by its name, for snippets.
    """

    rules: tuple[AnyRule, ...] = ()
    drafts: tuple[AnyRule, ...] = ()
    problems: tuple[Problem, ...] = ()
    sources: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    files: tuple[str, ...] = ()


def load(paths: Sequence[Path]) -> Loaded:
    """Everything in files and folders. A document with an error yields no rule; the others of its file still do."""
    loader = _Loader()
    for path in find_files(paths, loader.report):
        source = read_file(path, loader.report)
        loader.files.append(str(path))
        if source is not None:
            loader.read(source)
    return loader.loaded()


class _Loader:
    """What has been read so far."""

    def __init__(self) -> None:
        self.report = Report()
        self.files: list[str] = []
        self._sources: dict[str, Sequence[str]] = {}
        self._rules: list[AnyRule] = []
        self._drafts: list[AnyRule] = []
        self._places: dict[tuple[str, str], Location] = {}

    def loaded(self) -> Loaded:
        return Loaded(
            rules=tuple(self._rules),
            drafts=tuple(self._drafts),
            problems=in_file_order(self.report.problems, self.files),
            sources=self._sources,
            files=tuple(self.files),
        )

    def read(self, source: SourceFile) -> None:
        """Every document of a file."""
        self._sources[source.name] = source.lines
        before = len(self.report.problems)
        documents = read_documents(source, self.report)
        if not documents and len(self.report.problems) == before:
            self.report.error("empty-file", "the file holds no document", Location(source.name, 1, 1))
        for document in documents:
            self._take(document)

    def _take(self, document: Document) -> None:
        report = Report()
        if document.empty:
            report.warning("empty-document", "the document is empty", document.root.location)
        else:
            self._build(document, report)
        # One problem at a place is enough: what YAML makes of a value is not worth checking further.
        known = {problem.location for problem in document.report.problems}
        self.report.problems.extend(document.report.problems)
        self.report.problems.extend(problem for problem in report.problems if problem.location not in known)

    def _build(self, document: Document, report: Report) -> None:
        kind = kind_of_document(document, report)
        if kind is None or not isinstance(document.root, MapNode):
            return
        root = validate(kind, document.root, report)
        self._report_duplicate(kind, root, report)
        if kind in ("RuleTest", "ClusterInventory"):
            return
        rule = build_rule(kind, root, report)
        failed = report.failed or document.report.failed
        (self._drafts if failed else self._rules).append(rule)

    def _report_duplicate(self, kind: str, root: MapNode, report: Report) -> None:
        name, location, length = name_of(root)
        if not name:
            return
        first = self._places.setdefault((kind, name), location)
        if first is not location:
            report.error("duplicate-rule", f"{kind} '{name}' is already written in {first}", location, length)


def kind_of_document(document: Document, report: Report) -> str | None:
    """Which of KINDS a document is; None, and problems, where it is none of them."""
    root = document.root
    if not isinstance(root, MapNode):
        message = "a document must be a map that begins with apiVersion and kind"
        report.error("wrong-type", message, root.location, root.length)
        return None
    kind, version = root.get("kind"), root.get("apiVersion")
    for field_name, node in (("apiVersion", version), ("kind", kind)):
        if not isinstance(node, ScalarNode):
            report.error("missing-field", f"the document needs '{field_name}'", root.location, root.length)
    if isinstance(version, ScalarNode) and version.source.text != API_VERSION:
        written = version.source.text
        message = f"unknown apiVersion '{written}': write {API_VERSION}"
        report.error("unknown-api-version", message, version.location, version.length)
    if not isinstance(kind, ScalarNode):
        return None
    if kind.source.text not in KINDS:
        message = f"unknown kind '{kind.source.text}'{near(kind.source.text, KINDS)}"
        report.error("unknown-kind", message, kind.location, kind.length)
        return None
    return kind.source.text
