"""Packaged rule sets: the folders of rules and RuleTests that the package contains."""

from dataclasses import dataclass
from pathlib import Path

from rules_engine.model.rules.rule import ExpressionDocument
from rules_engine.rules.diagnostic import Diagnostic
from rules_engine.rules.sources.documents import DIAGNOSTIC
from rules_engine.rules.sources.load import RULES, load_files
from rules_engine.rules.sources.rule_files import DEFAULT_RULES
from rules_engine.rules.sources.schemas import without_schema_comments


@dataclass(frozen=True, slots=True)
class PackagedSet:
    """A packaged rule set: its name and its files, rules before tests."""

    name: str
    files: tuple[Path, ...]

    @property
    def rules(self) -> tuple[ExpressionDocument, ...]:
        """The rules, then the Diagnostics, each in file order."""
        loaded = load_files(self.files, (*RULES, DIAGNOSTIC))
        return (*loaded.rules, *loaded.of(Diagnostic))

    def texts(self) -> dict[str, str]:
        """Return the texts by file name, without schema comments, whose paths are valid only in this package."""
        return {file.name: without_schema_comments(file.read_text(encoding="utf-8")) for file in self.files}


def list_packaged_sets() -> dict[str, PackagedSet]:
    """Return all packaged sets by name, the default first."""
    folders = [folder for folder in DEFAULT_RULES.parent.iterdir() if folder.is_dir()]
    folders.sort(key=lambda folder: (folder != DEFAULT_RULES, folder.name))
    sets = {}
    for folder in folders:
        files = sorted(folder.glob("*.yaml"), key=lambda file: (file.name.endswith(".test.yaml"), file.name))
        sets[folder.name] = PackagedSet(folder.name, (*files,))
    return sets
