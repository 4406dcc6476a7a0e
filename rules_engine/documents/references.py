"""Files that documents name: clusters and manifests, relative to the file of the document."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.files import exists
from rules_engine.loading.kubernetes.inventory import build_cluster
from rules_engine.loading.kubernetes.objects import inventory_objects
from rules_engine.loading.yaml.nodes import MapNode, Node, ScalarNode
from rules_engine.model.cluster import Cluster
from rules_engine.model.excerpt import truncate
from rules_engine.model.problem_codes import Code
from rules_engine.model.problems import did_you_mean
from rules_engine.model.ruletest import ObjectsOf

MAX_PATH = 255
"""Characters of a path that a message quotes: no file's name is longer on Linux."""

MAX_MANIFESTS = 1000
"""Documents of a file with manifests: a release of a chart has some hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reader of the files that a document names.

    `cluster` returns the cluster and a function of its objects, and `manifests` the documents of a file. Both return
    None for a file with errors, which are reported. `refer` is called first with each file or folder, found or not.
    """

    cluster: Callable[[Path], tuple[Cluster, ObjectsOf] | None]
    manifests: Callable[[Path], tuple[Node, ...] | None]
    refer: Callable[[Path], None]


def existing(node: Node | None, folder: Path, diagnostics: Diagnostics, reader: Reader) -> Path | None:
    """Resolve a file name relative to the file it is written in; None, with a problem, if it does not exist."""
    if not isinstance(node, ScalarNode):
        return None
    path = folder / node.source.text
    if "\0" not in node.source.text:  # which no file system accepts
        reader.refer(path)
    if not exists(path):
        message = f"file or folder '{truncate(str(path), MAX_PATH)}' not found{_near(path)}"
        diagnostics.error(Code.MISSING_FILE, message, node.location, node.length)
        return None
    return path


def _near(path: Path) -> str:
    """Return a "did you mean" for a file, by its name without the suffix, which many share."""
    try:
        beside = list(path.parent.iterdir())
    except OSError:
        return ""
    return did_you_mean(path.name, [entry.name for entry in beside if did_you_mean(path.stem, [entry.stem])])


def read_cluster(
    node: MapNode, folder: Path, diagnostics: Diagnostics, reader: Reader
) -> tuple[Cluster, ObjectsOf] | None:
    """Read a cluster that is written in a document, or that of the file that it names: None if that has errors."""
    file = node.get("file")
    if file is None:
        cluster = build_cluster(node, diagnostics)
        return cluster, cache(lambda: inventory_objects(node, cluster))
    path = existing(file, folder, diagnostics, reader)
    found = reader.cluster(path) if path else None
    if path and found is None:
        diagnostics.error(Code.BAD_REFERENCE, f"'{path}' is not a cluster, or has errors", file.location, file.length)
    return found


def read_manifests(
    file: Node | None, folder: Path, diagnostics: Diagnostics, reader: Reader, *, most: int = MAX_MANIFESTS
) -> tuple[Node, ...] | None:
    """Return the documents of a file, one to `most`; None, with a problem, if it has errors, no or more documents."""
    path = existing(file, folder, diagnostics, reader)
    if file is None or path is None:
        return None
    found = reader.manifests(path)
    if not found or len(found) > most:
        diagnostics.error(Code.BAD_REFERENCE, f"'{path}' is not a manifest, or has errors", file.location, file.length)
        return None
    return found


def report_both(node: MapNode, one: str, other: str, diagnostics: Diagnostics) -> None:
    """Report two fields that exclude each other."""
    key = node.key(other)
    if node.get(one) is not None and key is not None:
        message = f"'{one}' and '{other}' cannot be used together"
        diagnostics.error(Code.CONFLICTING_FIELDS, message, key.location, key.length)
