"""Totals of recorded admissions: lines of decision logs that were read, decided again, or not."""

from collections import Counter

from msgspec import Struct, field


class RecordedTotals(Struct, kw_only=True):
    """Numbers of lines of decision logs.

    `admissions`: lines of decisions. `replayed`: those that were decided again under both rule sets. `other_rules`:
    those of them that were recorded under other rules than the old ones. `differing`: those that were recorded under
    the old rules, which now decide otherwise. `later_calls`: calls of /validate whose pod is decided with its call of
    /mutate. `not_replayable`: by reason. `unreadable`: lines that are no line of a decision log, by reason.
    """

    lines: int = 0
    admissions: int = 0
    replayed: int = 0
    other_rules: int = 0
    differing: int = 0
    later_calls: int = 0
    not_replayable: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)

    def merge(self, other: "RecordedTotals") -> None:
        """Add the numbers of other lines."""
        self.lines += other.lines
        self.admissions += other.admissions
        self.replayed += other.replayed
        self.other_rules += other.other_rules
        self.differing += other.differing
        self.later_calls += other.later_calls
        self.not_replayable.update(other.not_replayable)
        self.unreadable.update(other.unreadable)
