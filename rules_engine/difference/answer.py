"""Answer of a diff: the effects of a change of rules on workloads and recorded admissions."""

from dataclasses import dataclass
from enum import StrEnum

from rules_engine.difference.grouping import Grouping, RecordedTotals
from rules_engine.difference.values import Kind

NOTHING_DECIDED = 2
"""Exit code if no pod was decided, for example if no recorded admission can be replayed: changes are possible."""


class ActiveSide(StrEnum):
    """The side of a diff that has the active rules at a server."""

    OLD = "old"
    NEW = "new"
    BOTH = "both"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRules:
    """The active rules at a server: its URL, their digest, and the side that has them.

    `native`: rules that the API server evaluates itself; None if unknown, or if the policies of these rules are not
    active.
    """

    url: str
    digest: str
    side: ActiveSide
    native: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The lines and totals of a diff.

    `old` and `new`: names of the sources of rules, as in `--old` and `--new`. `same_rules`: both sides have the same
    rules, whatever the names and formats of their files. `without_rules`: the sides without rules, "old" or "new".
    `active_rules`: None if no server was read. `assumed_cluster`: the name of the default cluster if it matters to some
    decisions, or "". `recorded`: None if no input is a decision log. `allowed`: kinds of change that are permitted.
    """

    old: str
    new: str
    same_rules: bool
    without_rules: tuple[str, ...] = ()
    active_rules: ActiveRules | None = None
    assumed_cluster: str = ""
    grouping: Grouping
    recorded: RecordedTotals | None = None
    allowed: frozenset[Kind] = frozenset()

    @property
    def exit_code(self) -> int:
        """The command's exit code: 0 if all changes are allowed, else 1; 2 if no pod was decided."""
        clusters = self.grouping.totals.values()
        if not any(totals.pods for totals in clusters):
            return NOTHING_DECIDED
        return int(any(totals.disallowed_pods(self.allowed) for totals in clusters))
