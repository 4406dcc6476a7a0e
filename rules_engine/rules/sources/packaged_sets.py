"""Packaged rule sets: the folders of rules and RuleTests that the package contains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rules_engine.accelerators.catalogue import packaged_catalogue
from rules_engine.language.files import SourceFile, read_file
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.rule import ExpressionDocument
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.sources.card_files import card_sets, set_files
from rules_engine.rules.sources.documents import DIAGNOSTIC
from rules_engine.rules.sources.load import RULES, load_texts
from rules_engine.rules.sources.rule_files import DEFAULT_RULES
from rules_engine.rules.sources.schemas import without_schema_comments


@dataclass(frozen=True, slots=True)
class PackagedSet:
    """A packaged rule set: its name and its files, rules before tests; or the texts made for a card, by file."""

    name: str
    files: tuple[Path, ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)

    @property
    def rules(self) -> tuple[ExpressionDocument, ...]:
        """The rules, then the Diagnostics, each in file order."""
        loaded = load_texts(self.sources(Problems()), (*RULES, DIAGNOSTIC))
        return (*loaded.rules, *loaded.of(Diagnostic))

    def texts(self) -> dict[str, str]:
        """Return the texts by file name, without schema comments, whose paths are valid only in this package."""
        return {Path(each.name).name: without_schema_comments(each.text) for each in self.sources(Problems())}

    def sources(self, problems: Problems) -> Sequence[SourceFile]:
        """Read the files; their names in messages are `SET/FILE`."""
        read = (read_file(file, problems) for file in self.files)
        every = (*filter(None, read), *(SourceFile(file, text) for file, text in self.made.items()))
        return [replace(each, name=f"{self.name}/{Path(each.name).name}") for each in every]


def list_packaged_sets() -> dict[str, PackagedSet]:
    """Return all packaged sets by name, the default first; then the sets of cards that users add or replace."""
    folders = [folder for folder in DEFAULT_RULES.parent.iterdir() if folder.is_dir()]
    folders.sort(key=lambda folder: (folder != DEFAULT_RULES, folder.name))
    sets = {}
    for folder in folders:
        files = sorted(folder.glob("*.yaml"), key=lambda file: (file.name.endswith(".test.yaml"), file.name))
        sets[folder.name] = PackagedSet(folder.name, (*files,))
    packaged = packaged_catalogue().cards
    added = {name: card for name, card in card_sets().items() if card not in packaged}
    return sets | {name: PackagedSet(name, made=set_files(name, card)) for name, card in added.items()}
