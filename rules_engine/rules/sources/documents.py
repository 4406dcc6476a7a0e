"""The registry: the only list of the kinds of documents."""

from collections.abc import Sequence
from pathlib import Path

from rules_engine.cluster.read.loader import CLUSTER, DocumentKind, LoadResult, Part
from rules_engine.rules.diagnostic.reading import read_diagnostic
from rules_engine.rules.sources.cases import TEST
from rules_engine.rules.sources.load import COMMAND_KINDS, load_files
from rules_engine.rules.sources.simulations import SIMULATION

DIAGNOSTIC = DocumentKind(
    name="Diagnostic", part=Part.DIAGNOSTICS, read=lambda root, problems, _: read_diagnostic(root, problems)
)

DOCUMENTS: Sequence[DocumentKind[object]] = (*COMMAND_KINDS, DIAGNOSTIC, TEST, SIMULATION, CLUSTER)


def load_documents(paths: Sequence[Path]) -> LoadResult:
    """Load the documents of all kinds in files and folders, as `load_files` does."""
    return load_files(paths, DOCUMENTS)
