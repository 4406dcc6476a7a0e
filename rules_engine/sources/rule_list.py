"""`list`: the rules of files, and their digest."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rules_engine.diagnosis.diagnostic import Diagnostic, compile_diagnostics
from rules_engine.documents.loader import RULES
from rules_engine.documents.references import Sources
from rules_engine.documents.registry import DIAGNOSTIC
from rules_engine.kinds import sort_rules
from rules_engine.model.problems.problem import Problem, sort_problems
from rules_engine.model.rules.rule import Rule
from rules_engine.report.documents import field_members, location_members, problem_members
from rules_engine.report.values import Table
from rules_engine.sources.rule_files import has_errors, no_rules_problem, read_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleList:
    """The rules of files, including mode Off, in the order of `sort_rules`, and the Diagnostics by name.

    `digest`: the digest of the rule documents, as a server with these files reports it.
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
    """Load and compile the rules and Diagnostics in files and folders; it is a problem if there are none."""
    files = read_rules(paths, (*RULES, DIAGNOSTIC))
    loaded = files.loaded
    diagnostics = loaded.of(Diagnostic)
    _, diagnostic_problems = compile_diagnostics((*diagnostics, *loaded.of(Diagnostic, valid=False)))
    problems = sort_problems((*files.problems, *diagnostic_problems), loaded.files)
    if not (loaded.rules or diagnostics or has_errors(problems)):
        problems = (*problems, no_rules_problem(paths))
    return RuleList(
        rules=sort_rules(loaded.rules),
        diagnostics=tuple(sorted(diagnostics, key=lambda diagnostic: diagnostic.name)),
        digest=loaded.digest,
        problems=problems,
        sources=loaded.sources,
    )


def rule_table(listing: RuleList) -> Table:
    """Return a table of the rules and Diagnostics."""
    rules = [(rule.kind, rule.name, rule.mode.value, str(rule.priority), str(rule.location)) for rule in listing.rules]
    diagnostics = [(each.kind, each.name, "-", "-", str(each.location)) for each in listing.diagnostics]
    return Table(heads=("kind", "name", "mode", "priority", "place"), rows=[*rules, *diagnostics])


def rule_list_json(listing: RuleList) -> dict[str, Any]:
    """Return the document of `list --output json`."""
    return {
        "digest": listing.digest,
        "rules": [
            {**field_members(rule, "kind name mode priority"), **location_members(rule.location)}
            for rule in listing.rules
        ],
        "diagnostics": [
            {**field_members(each, "name for_each reason severity"), **location_members(each.location)}
            for each in listing.diagnostics
        ],
        "problems": [*map(problem_members, listing.problems)],
    }
