"""The reference of problems: an entry for each code, whose example has exactly this problem."""

import ast
import re
from pathlib import Path

import pytest

from rules_engine.authoring.check.problem_reference import FOLDER, ProblemEntry, nearest_code, reference_entries
from rules_engine.model.problems.codes import Code, ProblemCode
from rules_engine.rules.diagnostic.value import DiagnosticCode
from rules_engine.rules.kinds import KINDS
from tests.rules import toy
from tools.documents import REPOSITORY
from tools.problem_reference import DOCUMENT, document, problems, without_output

ENTRIES = tuple(reference_entries().values())
FILES = [entry for entry in ENTRIES if not entry.commands]
COMMANDS = [entry for entry in ENTRIES if entry.commands]


def code_of(entry: ProblemEntry) -> str:
    return entry.code.value


def test_each_code_has_an_entry() -> None:
    every: set[ProblemCode] = {*Code, *DiagnosticCode, *(code for kind in KINDS for code in kind.codes)}
    assert set(reference_entries()) == every
    assert len({code.value for code in every}) == len(every)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("yaml-sintax", "yaml-syntax"),
        ("match-nothing", "matches-nothing"),
        ("duplicate-key", "yaml-duplicate-key"),
        ("unknown-code", None),
        ("cel-unknown", None),
        ("missing-pod", None),
        ("wrong-field", None),
        ("yaml-int", None),
        ("", None),
        ("a" * 10_000, None),
    ],
)
def test_only_a_code_with_similar_words_is_suggested(written: str, meant: str | None) -> None:
    assert nearest_code(written, map(str, reference_entries())) == (f" (did you mean '{meant}'?)" if meant else "")


def test_a_new_kind_brings_its_own_entries() -> None:
    added = reference_entries((*KINDS, toy.KIND)).keys() - reference_entries().keys()
    assert added == set(toy.KIND.codes) != set()


def test_each_text_is_read() -> None:
    areas = {entry.area for entry in ENTRIES}
    assert len(areas) == len([*FOLDER.glob("*.toml")]) + len(KINDS) + 1


@pytest.mark.parametrize("entry", ENTRIES, ids=code_of)
def test_causes_and_remedies_are_sentences(entry: ProblemEntry) -> None:
    for text in (entry.cause, entry.remedy):
        assert text[0].isupper() or text.startswith(("`", "gpuinjector"))
        assert text.endswith(".")


@pytest.mark.parametrize("entry", FILES, ids=code_of)
def test_an_example_has_exactly_its_problem(entry: ProblemEntry) -> None:
    actual, _ = problems(entry, entry.wrong)
    assert {(problem.code, problem.severity) for problem in actual} == {(entry.code, entry.severity)}


@pytest.mark.parametrize("entry", FILES, ids=code_of)
def test_a_corrected_example_has_no_problem(entry: ProblemEntry) -> None:
    assert entry.right != entry.wrong
    assert problems(entry, entry.right) == ((), "")


def test_problems_that_need_a_cluster_are_shown_on_one() -> None:
    assert [entry.code for entry in ENTRIES if entry.needs_cluster] == [
        entry.code for entry in COMMANDS if "check --cluster" in entry.commands
    ]


@pytest.mark.parametrize("entry", COMMANDS, ids=code_of)
def test_commands_show_their_problem(entry: ProblemEntry) -> None:
    """The document has their output, which `tests/docs` compares."""
    section = DOCUMENT.read_text(encoding="utf-8").partition(f"\n### {entry.code}\n")[2].partition("\n### ")[0]
    assert not entry.wrong
    assert all(f"$ {command}\n" in section for command in entry.commands.splitlines())
    in_text = f" {entry.severity.value}: " in section and f" [{entry.code}]\n" in section
    assert in_text or f'"code": "{entry.code}"' in section


def test_the_document_is_current() -> None:
    assert without_output(DOCUMENT.read_text(encoding="utf-8")) == document()


def members(path: Path) -> set[str]:
    """Return the attributes of enumerations of codes that a module names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    enumerations: list[type[ProblemCode]] = [Code, DiagnosticCode, *(kind.codes for kind in KINDS)]
    classes = {codes.__name__ for codes in enumerations}
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in classes
    }


SOURCES = [path for room in ("rules_engine", "server") for path in (REPOSITORY / room).rglob("*.py")]


def test_an_example_and_its_output_name_the_same_file() -> None:
    example = r"^```yaml (\S+)\n(?:(?!```).*\n)*```\n\n```text\n([^:]+):"
    examples = re.findall(example, DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(examples) > 90
    assert [title for title, file in examples if title != file] == []


@pytest.mark.parametrize("entry", ENTRIES, ids=code_of)
def test_no_text_has_a_link_of_markdown(entry: ProblemEntry) -> None:
    """It is also printed by `check --explain` and in the playground."""
    assert "](" not in f"{entry.cause}{entry.remedy}"


def test_each_code_is_used() -> None:
    assert {code.name for code in reference_entries()} == set().union(*map(members, SOURCES))


def test_no_problem_has_a_code_in_quotes() -> None:
    """mypy rejects them, too: `Problem.code` is a ProblemCode."""
    codes = {str(code) for code in reference_entries()}
    quoted = [
        f"{path}:{node.lineno}: {node.value}"
        for path in SOURCES
        if path.name not in ("value.py", "codes.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in codes
    ]
    assert quoted == []
