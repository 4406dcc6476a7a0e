"""Loading of files: rules, tests, simulations and inventories, with every problem of every file."""

import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType

from rules_engine.documents.cases import build_test
from rules_engine.documents.digest import digest as digest_of
from rules_engine.documents.large_clusters import read_large_cluster
from rules_engine.documents.references import Reader
from rules_engine.documents.simulations import build_simulation
from rules_engine.kinds import KINDS, Kind, diagnostic
from rules_engine.kinds.diagnostic import Diagnostic
from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.fields import section
from rules_engine.loading.files import (
    MAX_FILE_BYTES,
    OTHER_TOOLS,
    SourceFile,
    find_files,
    read_file,
    report_too_large,
)
from rules_engine.loading.kubernetes.inventory import build_cluster
from rules_engine.loading.kubernetes.kubectl import is_cluster, read_cluster
from rules_engine.loading.kubernetes.manifests import TEMPLATES, Manifest, manifest_json, manifests
from rules_engine.loading.kubernetes.objects import inventory_objects, kubectl_objects
from rules_engine.loading.kubernetes.pods import read_pod
from rules_engine.loading.rule_fields import name_of
from rules_engine.loading.schemas import SCHEMAS, near, validate
from rules_engine.loading.yaml.documents import Dialect, Document, parts, read_documents
from rules_engine.loading.yaml.nodes import MapNode, Node, ScalarNode, first_key
from rules_engine.loading.yaml.scalars import AMBIGUOUS
from rules_engine.model.cluster import Cluster
from rules_engine.model.excerpt import truncate
from rules_engine.model.json.patch import Json
from rules_engine.model.problem_codes import Code
from rules_engine.model.problems import Problem, in_file_order
from rules_engine.model.rules import API_VERSION, Rule
from rules_engine.model.ruletest import ObjectsOf, RuleTest
from rules_engine.model.simulation import Simulation
from rules_engine.model.source import Location

_CLUSTER = "ClusterInventory"
_DIAGNOSTIC = diagnostic.Diagnostic.kind
_TEST = "RuleTest"
_SIMULATION = "Simulation"

DOCUMENT_KINDS = (*(kind.name for kind in KINDS), _DIAGNOSTIC, _TEST, _SIMULATION, _CLUSTER)
"""The kinds of documents that files may have."""

_FOR_TESTS = frozenset({_TEST, _SIMULATION, _CLUSTER})
"""Kinds of documents of which an error leaves the rules as they are."""

_WRITTEN_KIND = re.compile(r"^kind:[ \t]*[\"']?(\w*)", re.MULTILINE)
"""The kind of a document that YAML cannot read."""

_ARTICLES: Mapping[Code, str] = {Code.NOT_A_CLUSTER: "a cluster", Code.NOT_A_SIMULATION: "a Simulation"}

_EXPECTED_CLUSTER = "a ClusterInventory, or the output of kubectl get nodes,pods,namespaces -A -o json"

_GROUP = "gpurule"
"""Part of the API group without punctuation, by which misspelt ones are found."""

_MISSPELT_KIND = 0.85
"""Similarity of a kind to one of ours, in an object of another group: `Test` of other tools is no RuleTest."""

Sources = Mapping[str, Sequence[str]]
"""The lines of each file by its name, for snippets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The cluster of a file; the output of kubectl has the name of its file."""

    name: str
    location: Location
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All loaded documents, problems in file order.

    `drafts` and `diagnostic_drafts` are documents with errors, as far as they could be read: they serve only to find
    further problems in their expressions. `written` has the rule documents as they were read, those with errors
    included, each with its kind and name. `test_drafts` are tests with errors: their cases cannot be run.
    `diagnostic_problems` are those of Diagnostics, `test_problems` those of tests, simulations and inventories and of
    the files that these name; the rules are complete in spite of them. `files` are those of the paths. Those
    `passed_over` have no document of gpu-rules, and no other document refers to them.
    """

    rules: tuple[Rule, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    tests: tuple[RuleTest, ...] = ()
    simulations: tuple[Simulation, ...] = ()
    inventories: tuple[Inventory, ...] = ()
    drafts: tuple[Rule, ...] = ()
    diagnostic_drafts: tuple[Diagnostic, ...] = ()
    test_drafts: tuple[RuleTest, ...] = ()
    written: tuple[tuple[str, str, MapNode], ...] = ()
    problems: tuple[Problem, ...] = ()
    diagnostic_problems: frozenset[Problem] = frozenset()
    test_problems: frozenset[Problem] = frozenset()
    sources: Sources = field(default_factory=lambda: MappingProxyType({}))
    files: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    references: tuple[Path, ...] = ()
    """Files and folders that tests and simulations refer to, found or not."""

    @property
    def digest(self) -> str:
        """Digest of the rule documents, those with errors included."""
        return digest_of(self.written)


def load(paths: Sequence[Path], kinds: Sequence[Kind] = KINDS) -> Loaded:
    """Load files and folders. A document with an error is left out; the others of its file are loaded.

    Documents of other tools are passed over, even if their file is named: manifests belong to tests, and pre-commit
    passes any file of a folder.
    """
    loader = _Loader(kinds)
    files = find_files(paths, loader.diagnostics)
    for path in files:
        source = read_file(path, loader.diagnostics, regular=True)
        if source is not None:
            loader.read(source)
    return loader.loaded(tuple(map(str, files)))


def load_rules(sources: Iterable[SourceFile], kinds: Sequence[Kind] = KINDS) -> Loaded:
    """Load the rules of texts, which need not be files, like `load`.

    Other documents are not read: tests and simulations name files beside them.
    """
    loader = _Loader(kinds, rules_only=True)
    names = []
    for source in sources:
        names.append(source.name)
        loader.read(source)
    return loader.loaded(tuple(names))


def load_cluster(path: Path, *, regular: bool = False) -> tuple[Cluster | None, tuple[Problem, ...], Sources]:
    """Load the cluster of a file: its one ClusterInventory, or kubectl's output; None if it has errors.

    `regular`: a pipe or a device is a problem, as in `read_file`.
    """
    found, problems, sources = _load_cluster(path, regular=regular)
    return found[0] if found else None, problems, sources


def _load_cluster(
    path: Path, *, regular: bool
) -> tuple[tuple[Cluster, ObjectsOf] | None, tuple[Problem, ...], Sources]:
    """Load the cluster of a file, with a function of its objects."""
    loader = _Loader()
    source = read_file(path, loader.diagnostics, regular=regular)
    if source is not None:
        loader.read(source)
    found = loader.inventories
    if not loader.failed:
        loader.report_unless_one(_CLUSTER, found, Code.NOT_A_CLUSTER, _EXPECTED_CLUSTER, path)
    cluster = None if loader.failed else (found[0].cluster, loader.objects[0])
    return cluster, in_file_order(loader.problems), loader.sources


def load_simulation(path: Path, cluster: Path | None = None) -> tuple[Simulation | None, tuple[Problem, ...], Sources]:
    """Load the one Simulation of a file; None if it has errors.

    `cluster`: a file with a cluster in place of its own, as for `load_cluster`.
    """
    loader = _Loader(wanted=_SIMULATION, cluster=cluster)
    source = read_file(path, loader.diagnostics)
    if source is not None:
        loader.read(source)
    found = loader.simulations
    if not loader.failed:
        loader.report_unless_one(_SIMULATION, found, Code.NOT_A_SIMULATION, "a Simulation", path)
    return None if loader.failed else found[0], in_file_order(loader.problems, (str(path),)), loader.sources


def load_pods(path: Path) -> tuple[tuple[Manifest, ...], tuple[Problem, ...], Sources]:
    """Load every pod of a file of manifests, read like kubectl does; none if the file has errors."""
    diagnostics = Diagnostics()
    source = read_file(path, diagnostics)
    if source is None:
        return (), tuple(diagnostics.problems), {}
    found = pods_in(source, diagnostics)
    return found, in_file_order(diagnostics.problems), {source.name: source.lines}


def pods_in(source: SourceFile, diagnostics: Diagnostics) -> tuple[Manifest, ...]:
    """Read every pod of a text of manifests; none if it has errors."""
    roots = _manifest_documents(source, diagnostics)
    found = [manifest for root in roots for manifest in manifests(root)]
    if not found and not diagnostics.failed:
        _report_no_pod(source, roots, diagnostics)
    if not diagnostics.failed:
        _check_pods(found, diagnostics)
    return () if diagnostics.failed else tuple(found)


def pods_below(root: Node, diagnostics: Diagnostics) -> tuple[Manifest, ...]:
    """Read every pod of an object, which may have none."""
    found = manifests(root)
    _check_pods(found, diagnostics)
    return found


def _check_pods(found: Sequence[Manifest], diagnostics: Diagnostics) -> None:
    for manifest in found:
        if read_pod(manifest.pod, manifest.node, diagnostics) is not None:
            manifest.warn(diagnostics)


def _report_no_pod(source: SourceFile, roots: Sequence[Node], diagnostics: Diagnostics) -> None:
    kinds = [root.get("kind") for root in roots if isinstance(root, MapNode)]
    place = next((kind for kind in kinds if isinstance(kind, ScalarNode)), None)
    if place is None:
        message = "no pod and no object with a pod template found"
        diagnostics.error(Code.NOT_A_POD, message, Location(source.name, 1, 1))
        return
    kind = place.source.text
    rules = ": pass rules with --rules" if kind in {known.name for known in KINDS} else ""
    hint = rules or near(kind, ["Pod", *TEMPLATES])
    message = f"{truncate(kind)} is not a pod and has no pod template{hint}"
    diagnostics.error(Code.NOT_A_POD, message, place.location, place.length)


def _manifest_documents(source: SourceFile, diagnostics: Diagnostics) -> list[Node]:
    if len(source.text) > MAX_FILE_BYTES:
        report_too_large(source.name, MAX_FILE_BYTES, diagnostics)
        return []
    documents = read_documents(source, diagnostics, Dialect.MANIFESTS)
    for document in documents:
        diagnostics.problems.extend(document.diagnostics.problems)
    return [document.root for document in documents if not document.empty]


class _Loader:
    """Loader of rules of some kinds, of their tests, of simulations and of inventories.

    Without `kinds` it loads `wanted` documents only and ignores all other objects; `other` is the kind of the first.
    `rules_only`: it ignores all but rules. `cluster`: the file of a cluster that replaces those of simulations.
    """

    def __init__(
        self,
        kinds: Sequence[Kind] = (),
        *,
        rules_only: bool = False,
        wanted: str = _CLUSTER,
        cluster: Path | None = None,
    ) -> None:
        self.diagnostics = Diagnostics()
        self.test_diagnostics = Diagnostics()
        """Problems of tests and inventories, and of the files that tests name."""
        self.of_diagnostics = Diagnostics()
        """Problems of Diagnostics."""
        self.sources: dict[str, Sequence[str]] = {}
        self.rules: list[Rule] = []
        self.drafts: list[Rule] = []
        self.diagnostics_found: list[Diagnostic] = []
        self.diagnostic_drafts: list[Diagnostic] = []
        self.written: list[tuple[str, str, MapNode]] = []
        """Kind, name and document of each rule, as written."""
        self.tests: list[RuleTest] = []
        self.test_drafts: list[RuleTest] = []
        self.simulations: list[Simulation] = []
        self.inventories: list[Inventory] = []
        self.objects: list[ObjectsOf] = []
        """A function of the objects of each inventory."""
        self.other: ScalarNode | None = None
        self.passed_over: list[str] = []
        """Files without a document of gpu-rules."""
        self.references: dict[Path, None] = {}
        """Files and folders that tests and simulations refer to, found or not, in order."""
        self._kinds = {kind.name: kind for kind in kinds}
        self._known = (*self._kinds, _DIAGNOSTIC, _TEST, _SIMULATION, _CLUSTER) if kinds else DOCUMENT_KINDS
        self._wanted = tuple(self._kinds) if rules_only else self._known if kinds else (wanted,)
        self._cluster = cluster
        self._places: dict[tuple[str, str], Location] = {}
        self._clusters: dict[Path, tuple[Cluster, ObjectsOf] | None] = {}
        self._manifests: dict[Path, tuple[Node, ...] | None] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        return (*self.diagnostics.problems, *self.of_diagnostics.problems, *self.test_diagnostics.problems)

    @property
    def failed(self) -> bool:
        return self.diagnostics.failed or self.test_diagnostics.failed

    def loaded(self, files: tuple[str, ...]) -> Loaded:
        """Return all that was read from files of these names."""
        referenced = set(map(os.path.realpath, self.references))
        return Loaded(
            rules=tuple(self.rules),
            diagnostics=tuple(self.diagnostics_found),
            tests=tuple(self.tests),
            simulations=tuple(self.simulations),
            inventories=tuple(self.inventories),
            drafts=tuple(self.drafts),
            diagnostic_drafts=tuple(self.diagnostic_drafts),
            test_drafts=tuple(self.test_drafts),
            written=tuple(self.written),
            problems=in_file_order(self.problems, files),
            diagnostic_problems=frozenset(self.of_diagnostics.problems),
            test_problems=frozenset(self.test_diagnostics.problems),
            sources=self.sources,
            files=files,
            passed_over=tuple(name for name in self.passed_over if os.path.realpath(name) not in referenced),
            references=tuple(self.references),
        )

    def read(self, source: SourceFile) -> None:
        """Read every document of a file."""
        if source.is_json and self._read_cluster(_json(source.text), source.name):
            return
        if len(source.text) > MAX_FILE_BYTES:
            report_too_large(source.name, MAX_FILE_BYTES, self.diagnostics)
            return
        self.sources[source.name] = source.lines
        diagnostics = Diagnostics()
        documents = read_documents(source, diagnostics)
        if OTHER_TOOLS.fullmatch(Path(source.name).name) and not any(_has_our_version(d.root) for d in documents):
            self.passed_over.append(source.name)
            return
        if not documents and not diagnostics.failed:
            diagnostics.error(Code.EMPTY_FILE, "the file has no documents", Location(source.name, 1, 1))
        for problem, kind in _with_kinds(diagnostics.problems, source):
            self._diagnostics_of(kind).problems.append(problem)
        clusters = len(self.inventories)
        ours = [document for document in documents if not self._passed_over(document.root)]
        none_ours = len(ours) < len(documents) and all(document.empty for document in ours)
        if none_ours and len(self.inventories) == clusters and not diagnostics.failed:
            self.passed_over.append(source.name)
        for document in ours:
            # Manifests may have empty documents among them.
            if not document.empty or len(ours) == len(documents):
                self._take(document)

    def _read_cluster(self, value: Json, file: str) -> bool:
        """Read kubectl's output; return False for any other document."""
        if not is_cluster(value):
            return False
        location = Location(file, 1, 1)
        cluster = read_cluster(value, location, self.test_diagnostics)
        self.inventories.append(Inventory(name=Path(file).stem, location=location, cluster=cluster))
        self.objects.append(cache(lambda: kubectl_objects(value)))
        return True

    def _passed_over(self, root: Node) -> bool:
        """Read kubectl's output; return True if the document is that, or of another tool."""
        if not self._kinds:
            kind = root.get("kind") if isinstance(root, MapNode) else None
            if isinstance(kind, ScalarNode) and kind.source.text not in self._wanted:
                self.other = self.other or kind
        if not _is_foreign(root, self._known):
            return False
        if self._read_cluster(manifest_json(root), root.location.file):
            return True
        return not self._kinds or _version(root) is not None or bool(manifests(root))

    def _diagnostics_of(self, kind: str | None) -> Diagnostics:
        if kind == _DIAGNOSTIC:
            return self.of_diagnostics
        return self.test_diagnostics if kind in _FOR_TESTS else self.diagnostics

    def _take(self, document: Document) -> None:
        root = document.root
        if _is_foreign(root, self._known):
            _kind(root, self.diagnostics, self._known)
            return
        diagnostics = Diagnostics()
        kind = None
        if document.empty:
            diagnostics.warning(Code.EMPTY_DOCUMENT, "the document is empty", root.location)
        else:
            kind = _kind(root, diagnostics, self._known)
        if kind in self._wanted and isinstance(root, MapNode):
            self._build(kind, root, document, diagnostics)
        elif kind is not None:
            return
        self._diagnostics_of(kind).problems.extend(_yaml_problems(diagnostics, document))

    def _build(self, kind: str, written: MapNode, document: Document, diagnostics: Diagnostics) -> None:
        folder = self._kinds[kind].schemas if kind in self._kinds else SCHEMAS
        root = validate(kind, written, diagnostics, folder)
        self._report_duplicate(kind, root, diagnostics)
        name, location, _ = name_of(root)
        if kind == _CLUSTER:
            cluster = build_cluster(section(root, "spec"), diagnostics)
            if not _failed(diagnostics, document):
                self.inventories.append(Inventory(name=name, location=location, cluster=cluster))
                self.objects.append(cache(lambda: inventory_objects(section(root, "spec"), cluster)))
        elif kind == _TEST:
            test = build_test(root, diagnostics, self._reader)
            (self.test_drafts if _failed(diagnostics, document) else self.tests).append(test)
        elif kind == _SIMULATION:
            simulation = self._simulation(root, diagnostics)
            if not _failed(diagnostics, document):
                self.simulations.append(simulation)
        elif kind == _DIAGNOSTIC:
            found = diagnostic.read(root, diagnostics)
            if found is not None:
                (self.diagnostic_drafts if _failed(diagnostics, document) else self.diagnostics_found).append(found)
        else:
            self.written.append((kind, name, written))
            rule = self._kinds[kind].read(root, diagnostics)
            (self.drafts if _failed(diagnostics, document) else self.rules).append(rule)

    @property
    def _reader(self) -> Reader:
        return Reader(cluster=self._cluster_file, manifests=self._manifest_file, refer=self.references.setdefault)

    def _simulation(self, root: MapNode, diagnostics: Diagnostics) -> Simulation:
        replaced = self._cluster is not None
        given = self._cluster_file(self._cluster) if self._cluster is not None else None
        if not self._kinds and not replaced and section(root, "spec").get("cluster") is None:
            place = first_key(root)
            message = "the simulation has no 'cluster': write one, or pass --cluster"
            diagnostics.error(Code.MISSING_FIELD, message, place.location, place.length)
        return build_simulation(root, diagnostics, self._reader, given, replaced=replaced)

    def report_unless_one(
        self, name: str, found: Sequence[Inventory | Simulation], code: Code, expected: str, file: Path
    ) -> None:
        """Report a file that has not one wanted document: at the second one, or at the kind of the first other one."""
        if len(found) > 1:
            self.diagnostics.error(code, f"expected one {name}, not {len(found)}", found[1].location)
        if found:
            return
        kind = self.other
        given = f"{truncate(kind.source.text)} is not {_ARTICLES[code]}: " if kind else ""
        place, length = (kind.location, kind.length) if kind else (Location(str(file), 1, 1), 1)
        self.diagnostics.error(code, f"{given}expected {expected}", place, length)

    def _report_duplicate(self, kind: str, root: MapNode, diagnostics: Diagnostics) -> None:
        name, location, length = name_of(root)
        first = self._places.setdefault((kind, name), location)
        if name and first is not location:
            diagnostics.error(
                Code.DUPLICATE_DOCUMENT, f"{kind} '{name}' is already defined in {first}", location, length
            )

    def _cluster_file(self, path: Path) -> tuple[Cluster, ObjectsOf] | None:
        if path not in self._clusters:
            self._clusters[path] = self._read_cluster_file(path)
        return self._clusters[path]

    def _read_cluster_file(self, path: Path) -> tuple[Cluster, ObjectsOf] | None:
        if self._wanted == (_SIMULATION,):
            diagnostics = Diagnostics()
            large = read_large_cluster(path, diagnostics)
            self.test_diagnostics.problems.extend(diagnostics.problems)
            if large is not None:
                cluster = read_cluster(large, Location(str(path), 1, 1), self.test_diagnostics)
                return cluster, cache(lambda: kubectl_objects(large))
            if diagnostics.failed:
                return None
        found, problems, sources = _load_cluster(path, regular=True)
        self.test_diagnostics.problems.extend(problems)
        self.sources.update(sources)
        return found

    def _manifest_file(self, path: Path) -> tuple[Node, ...] | None:
        if path not in self._manifests:
            self._manifests[path] = self._read_manifest_file(path)
        return self._manifests[path]

    def _read_manifest_file(self, path: Path) -> tuple[Node, ...] | None:
        diagnostics = Diagnostics()
        source = read_file(path, diagnostics, regular=True)
        roots = _manifest_documents(source, diagnostics) if source else []
        self.test_diagnostics.problems.extend(diagnostics.problems)
        if source is not None:
            self.sources[source.name] = source.lines
        return None if diagnostics.failed else tuple(roots)


def _with_kinds(problems: Sequence[Problem], source: SourceFile) -> Iterator[tuple[Problem, str | None]]:
    """Yield problems of documents that YAML cannot read, with the kind that is written there; None if it is not one."""
    found = list(parts(source.text)) if problems else []
    starts = [part.line for part in found]
    for problem in problems:
        # An empty file has no parts.
        around = found[bisect_left(starts, problem.location.line) - 1 :][:1]
        kinds = [kind for part in around for kind in _WRITTEN_KIND.findall(part.text)]
        yield problem, kinds[0] if len(kinds) == 1 else None


def _json(text: str) -> Json:
    """Parse kubectl's output, fractions as their text; None if it is not JSON: the YAML parser's errors are better."""
    try:
        found: Json = json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return found


def _failed(diagnostics: Diagnostics, document: Document) -> bool:
    return diagnostics.failed or document.diagnostics.failed


def _yaml_problems(diagnostics: Diagnostics, document: Document) -> list[Problem]:
    """Return the YAML problems of a document, one per place: the value is not checked further.

    Values that readers interpret differently are left to the schema, which knows their range and type.
    """
    checked = {problem.location for problem in diagnostics.problems}
    read = [p for p in document.diagnostics.problems if p.code not in AMBIGUOUS or p.location not in checked]
    known = {problem.location for problem in read}
    return [*read, *(problem for problem in diagnostics.problems if problem.location not in known)]


def _is_foreign(root: Node, known: Sequence[str]) -> bool:
    """Return True if a document does not have an apiVersion or kind of gpu-rules, misspelt ones included."""
    if not isinstance(root, MapNode):
        return False
    version, node = _version(root), root.get("kind")
    kind = node.source.text if isinstance(node, ScalarNode) else None
    if version is None:
        return kind is not None and not near(kind, known)
    if _GROUP in version.casefold().replace("-", "").replace(".", ""):
        return False
    # A file that is not written to its end yet is not another tool's.
    if kind is None and API_VERSION.startswith(version):
        return False
    # Files of Helm have an apiVersion only; a rule without its kind has a spec.
    return not get_close_matches(kind, known, 1, _MISSPELT_KIND) if kind else root.get("spec") is None


def _version(root: Node) -> str | None:
    """Return the apiVersion of a document; None if it has none."""
    version = root.get("apiVersion") if isinstance(root, MapNode) else None
    return version.source.text if isinstance(version, ScalarNode) else None


def _has_our_version(root: Node) -> bool:
    return _version(root) == API_VERSION


def _kind(root: Node, diagnostics: Diagnostics, known: Sequence[str]) -> str | None:
    """Return the kind of a document, one of `known`; None, with problems, if it is none of them."""
    if not isinstance(root, MapNode):
        message = "a document must be a map that begins with apiVersion and kind"
        diagnostics.error(Code.WRONG_TYPE, message, root.location, root.length)
        return None
    version, kind = root.get("apiVersion"), root.get("kind")
    first = next((key for key, _ in root), root)
    for name, node in (("apiVersion", version), ("kind", kind)):
        if node is not None and not isinstance(node, ScalarNode):
            diagnostics.error(Code.WRONG_TYPE, f"{name} must be text", node.location, node.length)
        # Without a kind there is no schema to find other missing fields.
        elif node is None and kind is None:
            diagnostics.error(Code.MISSING_FIELD, f"the document needs '{name}'", first.location, first.length)
    if isinstance(version, ScalarNode) and version.source.text != API_VERSION and not _is_foreign(root, known):
        message = f"unknown apiVersion '{truncate(version.source.text)}': write {API_VERSION}"
        diagnostics.error(Code.UNKNOWN_API_VERSION, message, version.location, version.length)
    if not isinstance(kind, ScalarNode):
        return None
    if kind.source.text not in known:
        meant = near(kind.source.text, known) or f": expected one of {', '.join(known)}"
        message = f"unknown kind '{truncate(kind.source.text)}'{meant}"
        diagnostics.error(Code.UNKNOWN_KIND, message, kind.location, kind.length)
        return None
    return kind.source.text
