"""Reference of problems: the cause, an example and the remedy of each code.

The texts are TOML files: one for each area in the folder `problems`, and `problems.toml` in the package of each kind.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from textwrap import indent

from rules_engine.model.problems.codes import Code, ProblemCode
from rules_engine.model.problems.problem import MAX_NAME, Severity, did_you_mean
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.rules.diagnostic import value
from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.compiled import RuleKind

FOLDER = Path(__file__).parent / "problems"

AREAS = (
    "files",
    "yaml",
    "ignores",
    "fields",
    "rules",
    "expressions",
    "tests",
    "simulations",
    "together",
    "gpuinjector",
)
"""Files of `FOLDER`, in the order of the reference; the files of the kinds follow."""

PROJECT_URL = "https://github.com/gpu-rules/gpu-rules"

DOCUMENT_URL = f"{PROJECT_URL}/blob/main/docs/reference/problems.md"
"""Page with all entries. The main branch's page fits every version, since codes do not change."""

RULES = "rules.yaml"
"""File name in most examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemEntry:
    """The reference of one code.

    `severity`: the usual severity. `file` and `wrong`: name and text of a file with only this problem. `right`: the
    corrected text. `commands`: shell commands that show the problem, instead of a file. `needs_cluster`: only
    `check --cluster` reports it.
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
    needs_cluster: bool = False

    @property
    def url(self) -> str:
        """The section of the entry in docs/reference/problems.md."""
        return f"{DOCUMENT_URL}#{self.code}"

    @property
    def example(self) -> str:
        """The text with the problem, or the commands that show it."""
        return self.wrong or "".join(f"$ {command}\n" for command in self.commands.splitlines())

    def explanation(self) -> str:
        """Return the entry as text."""
        parts = [
            f"{self.code} ({self.severity.value}): {self.cause}",
            f"Example, in {self.file}:" if self.wrong else "Example:",
            indent(self.example, "    ").rstrip(),
            f"Remedy: {self.remedy}",
            *(["Corrected:", indent(self.right, "    ").rstrip()] if self.right else []),
            self.url,
        ]
        return "\n\n".join(parts)

    def markdown(self) -> str:
        """Return the entry as Markdown, without its code."""
        language = "console" if self.commands else Path(self.file).suffix[1:]
        example, *fixed = [f"```{language}\n{text}```" for text in (self.example, self.right) if text]
        return "\n\n".join([self.cause, example, self.remedy, *fixed])


_DIAGNOSTIC = Path(value.__file__).with_name("problems.toml")


def reference_entries(kinds: Sequence[RuleKind] = KINDS) -> Mapping[ProblemCode, ProblemEntry]:
    """Return the entry of each code, sorted by area."""
    files: list[tuple[Path, type[ProblemCode]]] = [(FOLDER / f"{area}.toml", Code) for area in AREAS]
    files += [*((kind.problems, kind.codes) for kind in kinds), (_DIAGNOSTIC, value.DiagnosticCode)]
    return {entry.code: entry for path, codes in files for entry in _read_entries(path, codes)}


def nearest_code(name: str, codes: Iterable[str]) -> str:
    """Return a "did you mean" clause with a code whose words are all similar to the words of `name`.

    Many codes differ in one word only, so a similar whole is not enough.
    """
    words = name[:MAX_NAME].split("-")
    likely = [code for code in codes if all(get_close_matches(word, code.split("-"), cutoff=0.8) for word in words)]
    return did_you_mean(name, likely)


def _read_entries(path: Path, codes: type[ProblemCode]) -> Iterator[ProblemEntry]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    area = tables.pop("area")
    for code, table in tables.items():
        if kind := table.pop("kind", ""):
            # The text of its spec.
            begin = f"apiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {{name: example}}\nspec:\n"
            table |= {name: begin + indent(table[name], "  ") for name in table.keys() & {"wrong", "right"}}
        yield ProblemEntry(code=codes(code), area=area, severity=Severity(table.pop("severity")), **table)
