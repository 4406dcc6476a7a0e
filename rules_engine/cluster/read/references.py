"""Files that documents refer to, relative to their own file: clusters and manifests."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from rules_engine.cluster.read.inventory import Inventory, build_inventory
from rules_engine.cluster.read.manifests import manifest_documents
from rules_engine.cluster.workloads.kind import WorkloadKind
from rules_engine.language.files import path_exists, read_file
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, did_you_mean
from rules_engine.model.problems.source import truncate

Sources = Mapping[str, Sequence[str]]
"""The lines of each file by its name, for snippets."""

ReadCluster = Callable[[Path], tuple[Inventory | None, tuple[Problem, ...], Sources]]
"""A function that reads the cluster of a file; None if it has errors."""


class References:
    """The files that documents refer to, each read once, with their problems.

    `paths` are the files and folders in order, whether they exist or not. `workload_kinds`: those of the same input,
    for the workloads of the files.
    """

    def __init__(self, read_cluster: ReadCluster, problems: Problems, sources: dict[str, Sequence[str]]) -> None:
        self.paths: dict[Path, None] = {}
        self.workload_kinds: list[WorkloadKind] = []
        self.cluster = cache(self._cluster)
        self.manifests = cache(self._manifests)
        self._read_cluster = read_cluster
        self._problems = problems
        self._sources = sources

    def _cluster(self, path: Path) -> Inventory | None:
        """Return the cluster of a file; None if it has errors, which are reported."""
        inventory, problems, sources = self._read_cluster(path)
        self._problems.items.extend(problems)
        self._sources.update(sources)
        return inventory

    def _manifests(self, path: Path) -> tuple[YamlNode, ...] | None:
        """Return the documents of a file; None if it has errors, which are reported."""
        problems = Problems()
        source = read_file(path, problems, regular=True)
        roots = manifest_documents(source, problems) if source else ()
        self._problems.items.extend(problems.items)
        if source is not None:
            self._sources[source.name] = source.lines
        return None if problems.failed else roots


def resolve_path(node: YamlNode | None, problems: Problems, references: References) -> Path | None:
    """Resolve a file name relative to the file it is written in; None, with a problem, if it does not exist."""
    if not isinstance(node, ScalarNode):
        return None
    path = Path(node.location.file).parent / node.source.text
    if "\0" not in node.source.text:  # which no file system accepts
        references.paths.setdefault(path)
    if not path_exists(path):
        message = f"file or folder '{truncate(str(path), MAX_PATH)}' not found{_path_hint(path)}"
        problems.error(Code.MISSING_FILE, message, node)
        return None
    return path


MAX_PATH = 255
"""Characters of a path that a message quotes: the longest file name on Linux."""


def _path_hint(path: Path) -> str:
    """Return a "did you mean" clause for a file; names are compared without suffixes, since many files share one."""
    try:
        beside = list(path.parent.iterdir())
    except OSError:
        return ""
    return did_you_mean(path.name, [entry.name for entry in beside if did_you_mean(path.stem, [entry.stem])])


def read_cluster(node: MapNode, problems: Problems, references: References) -> Inventory | None:
    """Read the cluster in a document, or in the file that it refers to; None if that file is missing or has errors."""
    file = node.get("file")
    if file is None:
        return build_inventory("", node.location, node, problems)
    path = resolve_path(file, problems, references)
    cluster = references.cluster(path) if path else None
    if path and cluster is None:
        problems.error(Code.BAD_REFERENCE, f"'{path}' is not a cluster, or has errors", file)
    return cluster


def read_manifests(
    file: YamlNode | None, problems: Problems, references: References, *, single: bool = False
) -> tuple[YamlNode, ...] | None:
    """Return the documents of a file, at least one; None, with a problem, on errors, or on several with `single`."""
    path = resolve_path(file, problems, references)
    if file is None or path is None:
        return None
    roots = references.manifests(path)
    if not roots or (single and len(roots) > 1):
        problems.error(Code.BAD_REFERENCE, f"'{path}' is not a manifest, or has errors", file)
        return None
    return roots


def report_conflict(node: MapNode, name: str, other: str, problems: Problems) -> None:
    """Report two mutually exclusive fields."""
    key = node.key(other)
    if node.get(name) is not None and key is not None:
        problems.error(Code.CONFLICTING_FIELDS, f"'{name}' and '{other}' cannot be used together", key)
