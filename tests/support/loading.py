"""Builders for tests of loading."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.cluster.read.loader import LoadResult
from rules_engine.cluster.read.manifest_stream import join_parts, stream_manifests
from rules_engine.cluster.read.manifests import Manifest
from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.documents import Dialect, Document, read_documents
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.rules.sources.documents import load_documents


def documents(
    text: str, dialect: Dialect = Dialect.RULES, *, is_json: bool = False
) -> tuple[tuple[Document, ...], list[Problem]]:
    """Return the documents of a text, and all problems of the file and its documents."""
    problems = Problems()
    found = read_documents(SourceFile("x.yaml", text, is_json), problems, dialect)
    return found, [*problems.items, *(problem for document in found for problem in document.problems.items)]


def codes(problems: list[Problem] | tuple[Problem, ...]) -> list[str]:
    """Return the codes of problems, in order."""
    return [problem.code for problem in problems]


def load_text(folder: Path, text: str, name: str = "x.yaml") -> LoadResult:
    """Write a file in a folder, and load it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load_documents([path])


def load_view(path: Path) -> tuple[Cluster | None, tuple[Problem, ...], Mapping[str, Sequence[str]]]:
    """Load the cluster of a file as rules see it, with problems and lines."""
    reading = read_cluster([path])
    return reading.cluster, reading.problems, reading.sources


def load_pods(path: Path) -> tuple[tuple[Manifest, ...], tuple[Problem, ...], Mapping[str, Sequence[str]]]:
    """Load every pod of a file of manifests, with problems and lines."""
    whole = join_parts(stream_manifests([path]))
    return whole.pods, whole.problems, whole.sources


def read_pods(text: str) -> tuple[tuple[Manifest, ...], tuple[Problem, ...], Mapping[str, Sequence[str]]]:
    """Write a file of pods, and load it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pods.yaml"
        path.write_text(text, encoding="utf-8")
        return load_pods(path)


def rule(kind: str, spec: str, name: str = "x") -> str:
    """Return a rule with a spec in flow style."""
    return f"apiVersion: gpurules.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"
