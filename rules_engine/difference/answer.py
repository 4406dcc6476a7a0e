"""Answer of a diff: the effects of a change of rules on workloads and recorded admissions."""

from dataclasses import dataclass

from rules_engine.difference.grouping import Grouping, RecordedTotals
from rules_engine.difference.values import Kind

NOTHING_DECIDED = 2
"""Exit code if no pod was decided, for example if no recorded admission can be replayed: changes are possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The lines and totals of a diff.

    `old` and `new`: names of the sources of rules, as in `--old` and `--new`. `same_rules`: both sides have the same
    rules, whatever the names and formats of their files. `without_rules`: the sides without rules, "old" or "new".
    `assumed_cluster`: the name of the default cluster if it matters to some decisions, or "". `recorded`: None if no
    input is a decision log. `allowed`: kinds of change that are permitted.
    """

    old: str
    new: str
    same_rules: bool
    without_rules: tuple[str, ...] = ()
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
