"""`list`: the rules of files, and their digest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rules_engine.authoring.rule_files import has_errors, read_some_rules
from rules_engine.documents import Sources
from rules_engine.kinds import KINDS
from rules_engine.model.problems import Problem
from rules_engine.model.rules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleList:
    """The rules of files, those in mode Off included, in the order of `in_order`.

    `digest` is that of the rule documents, as a server with these files reports it.
    """

    rules: tuple[Rule, ...]
    digest: str
    problems: tuple[Problem, ...]
    sources: Sources

    @property
    def failed(self) -> bool:
        return has_errors(self.problems)


def list_rules(paths: Sequence[Path]) -> RuleList:
    """Load and compile the rules in files and folders; no rule at all is a problem."""
    files = read_some_rules(paths)
    return RuleList(
        rules=in_order(files.loaded.rules),
        digest=files.loaded.digest,
        problems=files.problems,
        sources=files.loaded.sources,
    )


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return rules by kind, in the order of the registry, and those of a kind in order of evaluation."""
    kinds = [kind.name for kind in KINDS]
    return tuple(sorted(rules, key=lambda rule: (kinds.index(rule.kind), rule.order)))
