"""Pods of manifests, read like kubectl does."""

from collections.abc import Sequence
from pathlib import Path

from rules_engine.kinds import KINDS
from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.files import MAX_FILE_BYTES, SourceFile, read_file, report_too_large
from rules_engine.loading.kubernetes.manifests import TEMPLATES, Manifest, manifests
from rules_engine.loading.kubernetes.pods import read_pod
from rules_engine.loading.schemas import near
from rules_engine.loading.yaml.documents import Dialect, read_documents
from rules_engine.loading.yaml.nodes import MapNode, Node, ScalarNode
from rules_engine.model.excerpt import truncate
from rules_engine.model.problem_codes import Code
from rules_engine.model.problems import Problem, in_file_order
from rules_engine.model.source import Location


def load_pods(path: Path) -> tuple[tuple[Manifest, ...], tuple[Problem, ...], dict[str, Sequence[str]]]:
    """Load every pod of a file of manifests; none if the file has errors. Return problems and lines, too."""
    diagnostics = Diagnostics()
    source = read_file(path, diagnostics)
    if source is None:
        return (), tuple(diagnostics.problems), {}
    found = pods_in(source, diagnostics)
    return found, in_file_order(diagnostics.problems), {source.name: source.lines}


def pods_in(source: SourceFile, diagnostics: Diagnostics) -> tuple[Manifest, ...]:
    """Read every pod of a text of manifests; none if it has errors."""
    roots = manifest_documents(source, diagnostics)
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


def manifest_documents(source: SourceFile, diagnostics: Diagnostics) -> tuple[Node, ...]:
    """Return the documents of a text of manifests that are not empty."""
    if len(source.text) > MAX_FILE_BYTES:
        report_too_large(source.name, MAX_FILE_BYTES, diagnostics)
        return ()
    documents = read_documents(source, diagnostics, Dialect.MANIFESTS)
    for document in documents:
        diagnostics.problems.extend(document.diagnostics.problems)
    return tuple(document.root for document in documents if not document.empty)


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
