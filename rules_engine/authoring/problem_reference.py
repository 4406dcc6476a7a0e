"""Reference of problems: the cause, an example and the remedy of each code.

The texts are TOML: a file for each area in the folder `problems`, and `problems.toml` in the package of each kind.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from rules_engine.kinds import KINDS, Kind
from rules_engine.model.problem_codes import Code, ProblemCode
from rules_engine.model.problems import Severity
from rules_engine.model.rules import API_VERSION

FOLDER = Path(__file__).parent / "problems"

AREAS = ("files", "yaml", "fields", "rules", "expressions", "tests", "together", "gpuinjector")
"""Files of `FOLDER`, in the order of the reference; those of the kinds follow."""

RULES = "rules.yaml"
"""File of most examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The reference of one code.

    `severity`: the usual one. `file` and `wrong`: name and text of a file that has this problem alone. `right`: the
    corrected text. `commands`: commands of a shell that show the problem, in place of a file.
    """

    code: ProblemCode
    area: str
    severity: Severity
    cause: str
    remedy: str
    file: str = RULES
    wrong: str = ""
    right: str = ""
    commands: str = ""


def reference(kinds: Sequence[Kind] = KINDS) -> Mapping[ProblemCode, Entry]:
    """Return the entry of each code, sorted by area."""
    files: list[tuple[Path, type[ProblemCode]]] = [(FOLDER / f"{area}.toml", Code) for area in AREAS]
    files += [(kind.problems, kind.codes) for kind in kinds]
    return {entry.code: entry for path, codes in files for entry in _entries(path, codes)}


def _entries(path: Path, codes: type[ProblemCode]) -> Iterator[Entry]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    area = tables.pop("area")
    for code, table in tables.items():
        yield _entry(codes(code), area, table)


def _entry(code: ProblemCode, area: str, table: dict[str, Any]) -> Entry:
    severity, kind = Severity(table.pop("severity")), table.pop("kind", "")
    if kind:
        for name in table.keys() & {"wrong", "right"}:
            table[name] = _document(kind, table[name])
    return Entry(code=code, area=area, severity=severity, **table)


def _document(kind: str, spec: str) -> str:
    """Return a document of which the text has only the fields of its spec."""
    return f"apiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {{name: example}}\nspec:\n{indent(spec, '  ')}"
