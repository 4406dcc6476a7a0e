"""Problems of broken files, each with its exact text beside it: more examples than docs/reference/problems.md has."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rules_engine.authoring.check.problem_reference import RULES, ProblemEntry, reference_entries
from rules_engine.cluster.read.inventory import Inventory
from rules_engine.language.files import MAX_FILE_BYTES, MAX_FILES
from rules_engine.model.problems.problem import render_problem
from rules_engine.rules.sources.documents import DOCUMENTS, load_documents
from rules_engine.rules.sources.rule_files import read_rules

BROKEN = Path(__file__).parent / "broken"
EXAMPLES = [entry for entry in reference_entries().values() if entry.wrong and entry.file == RULES]
CASES = sorted(path.stem for path in BROKEN.glob("*.txt"))


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _sparse(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    return path


def _crowded(path: Path) -> Path:
    path.mkdir()
    for index in range(MAX_FILES + 1):
        (path / f"{index}.yaml").touch()
    return path


MADE: dict[str, Callable[[Path], Path]] = {
    "file-too-large": lambda folder: _sparse(folder / "large.yaml"),
    "too-many-files": lambda folder: _crowded(folder / "crowded"),
    "missing-path": lambda folder: folder / "absent.yaml",
    "not-a-regular-file": lambda folder: _pipe(folder / "pipe.yaml"),
    "unreadable-file": lambda folder: _sparse(folder / "file") / "below.yaml",
}
"""Files that a repository cannot hold."""


def broken(name: str, folder: Path) -> Path:
    """The file or folder of a case."""
    if name in MADE:
        return MADE[name](folder)
    return next(path for path in BROKEN.glob(f"{name}*") if path.stem == name and path.suffix != ".txt")


@pytest.mark.parametrize("name", CASES)
def test_each_problem_has_its_exact_text(name: str, tmp_path: Path) -> None:
    files = read_rules([broken(name, tmp_path)], DOCUMENTS)
    rendered = "".join(render_problem(problem, files.loaded.sources) + "\n" for problem in files.problems)
    text = rendered.replace(f"{BROKEN}/", "").replace(f"{tmp_path}/", "")
    assert text == (BROKEN / f"{name}.txt").read_text(encoding="utf-8")


def test_each_broken_file_has_its_text() -> None:
    kept = {path.stem for path in BROKEN.iterdir() if path.suffix != ".txt"}
    assert kept | MADE.keys() == set(CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name not in MADE])
def test_a_document_with_an_error_yields_nothing(name: str, tmp_path: Path) -> None:
    assert_no_document_has_an_error(broken(name, tmp_path))


@pytest.mark.parametrize("entry", EXAMPLES, ids=lambda entry: entry.code.value)
def test_an_example_with_an_error_yields_nothing(entry: ProblemEntry, tmp_path: Path) -> None:
    path = tmp_path / entry.file
    path.write_text(entry.wrong, encoding="utf-8")
    assert_no_document_has_an_error(path)


def assert_no_document_has_an_error(path: Path) -> None:
    loaded = load_documents([path])
    wrong = {
        (problem.location.file, problem.location.line)
        for problem in loaded.problems
        if problem.severity.value == "error"
    }
    rules, tests = [item.location for item in loaded.rules], [item.location for item in loaded.tests]
    for location in (*rules, *tests, *(item.location for item in loaded.of(Inventory))):
        assert (location.file, location.line) not in wrong
