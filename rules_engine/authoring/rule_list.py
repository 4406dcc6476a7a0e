"""`list`: the rules of files, and their digest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rules_engine.authoring.rule_files import has_errors, no_rules, read_rules
from rules_engine.documents import Sources
from rules_engine.kinds import KINDS
from rules_engine.kinds.diagnostic import Diagnostic, compile_diagnostics
from rules_engine.model.problems import Problem, in_file_order
from rules_engine.model.rules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleList:
    """The rules of files, those in mode Off included, in the order of `in_order`, and the Diagnostics by name.

    `digest` is that of the rule documents, as a server with these files reports it.
    """

    rules: tuple[Rule, ...]
    diagnostics: tuple[Diagnostic, ...]
    digest: str
    problems: tuple[Problem, ...]
    sources: Sources

    @property
    def failed(self) -> bool:
        return has_errors(self.problems)


def list_rules(paths: Sequence[Path]) -> RuleList:
    """Load and compile the rules and Diagnostics in files and folders; none at all is a problem."""
    files = read_rules(paths)
    loaded = files.loaded
    _, found = compile_diagnostics((*loaded.diagnostics, *loaded.diagnostic_drafts))
    problems = in_file_order((*files.problems, *found), loaded.files)
    if not (loaded.rules or loaded.diagnostics or has_errors(problems)):
        problems = (*problems, no_rules(paths))
    return RuleList(
        rules=in_order(loaded.rules),
        diagnostics=tuple(sorted(loaded.diagnostics, key=lambda diagnostic: diagnostic.name)),
        digest=loaded.digest,
        problems=problems,
        sources=loaded.sources,
    )


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return rules by kind, in the order of the registry, and those of a kind in order of evaluation."""
    kinds = [kind.name for kind in KINDS]
    return tuple(sorted(rules, key=lambda rule: (kinds.index(rule.kind), rule.order)))
