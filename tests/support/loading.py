"""Builders for tests of what reads files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rules_engine.loading import Loaded, Manifest, load, load_pods
from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.files import SourceFile
from rules_engine.loading.yaml.documents import Dialect, Document, read_documents
from rules_engine.model.problems import Problem


def documents(
    text: str, dialect: Dialect = Dialect.RULES, *, is_json: bool = False
) -> tuple[tuple[Document, ...], list[Problem]]:
    """The documents of a text, and all problems of the file and of each document."""
    report = Diagnostics()
    found = read_documents(SourceFile("x.yaml", text, is_json), report, dialect)
    return found, [*report.problems, *(problem for document in found for problem in document.diagnostics.problems)]


def codes(problems: list[Problem] | tuple[Problem, ...]) -> list[str]:
    """The codes of problems, in order."""
    return [problem.code for problem in problems]


def load_text(folder: Path, text: str, name: str = "x.yaml") -> Loaded:
    """A file with this text in a folder, loaded."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load([path])


def read_pods(text: str) -> tuple[tuple[Manifest, ...], tuple[Problem, ...], Mapping[str, Sequence[str]]]:
    """The pods of a file with this text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pods.yaml"
        path.write_text(text, encoding="utf-8")
        return load_pods(path)


def rule(kind: str, spec: str, name: str = "x") -> str:
    """A document with a spec in flow style."""
    return f"apiVersion: gpurules.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"
