"""docs/reference/problems.md, generated from the reference. `python -m tools.problem_reference` updates it."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.check.problem_reference import ProblemEntry, reference_entries
from rules_engine.authoring.convert import convert_text
from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.model.problems.problem import Problem, render_problem
from tools.documents import REPOSITORY, renewed

DOCUMENT = REPOSITORY / "docs/reference/problems.md"

_CONSOLE = re.compile(r"^```console\n.*?^```$", re.DOTALL | re.MULTILINE)

CONFIGURATION = "gpuinjector.json"
"""File of the examples that `convert` reads; `check` reads all others."""

CLUSTER = "cluster.json"
"""File of the examples that are a cluster."""

HEAD = """\
# Problems

Each problem that a command or the server reports has a code, which does not change. An error keeps the rules, or other
input, from being used; a warning does not. Each section has the cause, an example with its output, the remedy and the
corrected example.

This page is generated from `rules_engine/authoring/check/problems/` and from `problems.toml` in the package of
each kind of rule, in `rules_engine/rules/`.
"""


def problems(entry: ProblemEntry, text: str) -> tuple[tuple[Problem, ...], str]:
    """Return the problems of the text of an example, and the output for people."""
    if entry.file == CONFIGURATION:
        converted = convert_text(text, CONFIGURATION)
        return converted.findings, _output(converted.findings, {})
    with TemporaryDirectory() as folder:
        path = Path(folder) / entry.file
        path.write_text(text, encoding="utf-8")
        checked = check_files([], read_cluster([path])) if entry.file == CLUSTER else check_files([path])
    return checked.answer.problems, _output(checked.answer.problems, checked.sources).replace(f"{folder}/", "")


def _output(found: Sequence[Problem], sources: Mapping[str, Sequence[str]]) -> str:
    return "".join(f"{render_problem(problem, sources)}\n" for problem in found)


def _console(entry: ProblemEntry) -> str:
    """Return the block of an example's commands, without their output."""
    commands = "".join(f"$ {command}\n" for command in entry.commands.splitlines())
    return f"```console\n{commands}```\n"


def document() -> str:
    """Return the document, without the output of commands."""
    areas = groupby(reference_entries().values(), key=lambda entry: entry.area)
    return HEAD + "".join(f"\n## {area}\n{''.join(map(_section, entries))}" for area, entries in areas)


def without_output(text: str) -> str:
    """Return a document without the output of its commands."""
    return _CONSOLE.sub(lambda block: re.sub(r"^(?![$`]).*\n", "", block[0], flags=re.MULTILINE), text)


def _section(entry: ProblemEntry) -> str:
    meaning = f"\n### {entry.code}\n\n{entry.severity.value.capitalize()}. {entry.cause}\n\n"
    if entry.commands:
        return f"{meaning}{_console(entry)}\n{entry.remedy}\n"
    shown = f"{_block(entry, entry.wrong)}\n```text\n{problems(entry, entry.wrong)[1]}```\n"
    return f"{meaning}{shown}\n{entry.remedy}\n\n{_block(entry, entry.right)}"


def _block(entry: ProblemEntry, text: str) -> str:
    suffix = Path(entry.file).suffix.removeprefix(".")
    return f"```{suffix}{f' {entry.file}' if suffix == 'yaml' else ''}\n{text}```\n"


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(document()))
