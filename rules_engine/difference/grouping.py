"""Changes and totals of a difference, counted pod by pod."""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from rules_engine.difference.comparison import compare_outcomes
from rules_engine.difference.values import MAX_NAME_LENGTH, Change, Devices, Kind, Outcome, Submitted, Workload
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules.rule import Operation

MAX_LINES = 10_000
"""Workloads of all changes that are kept, of the first changed pods: nobody reads more. Totals count all pods."""


class Totals(Struct, kw_only=True):
    """Numbers of pods of one cluster.

    `as_it_is`: pods that are decided as they are now, by reason. `by_kinds`: changed pods by the set of their kinds of
    change, which shows whether `--allow` covers them. `namespaces` and `rules` count changed pods; a pod counts for
    each rule whose effect differs. `unknown`: changed pods by reason. `gpus`: devices of the admitted pods before and
    after; without pods whose outcome is unknown, and without updates and dry runs, which create no pod.
    """

    pods: int = 0
    as_it_is: Counter[str] = field(default_factory=Counter)
    by_kinds: Counter[tuple[Kind, ...]] = field(default_factory=Counter)
    namespaces: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    gpus_before: dict[str, Devices] = field(default_factory=dict)
    gpus_after: dict[str, Devices] = field(default_factory=dict)

    def add(self, submitted: Submitted, before: Outcome, after: Outcome, change: Change | None) -> None:
        """Count equal pods of a workload."""
        count = submitted.count
        self.pods += count
        if submitted.as_it_is:
            self.as_it_is[truncate(submitted.as_it_is, MAX_NAME_LENGTH)] += count
        request = submitted.request
        reason = before.unknown or after.unknown
        if reason:
            if change is not None:
                self.unknown[reason] += count
        elif request.operation == Operation.CREATE.value and not request.dry_run:
            for total, outcome in ((self.gpus_before, before), (self.gpus_after, after)):
                for resource, devices in outcome.gpus.items():
                    name = truncate(resource, MAX_NAME_LENGTH)
                    total[name] = total.get(name, 0) + devices * count
        if change is not None:
            self.by_kinds[change.kinds] += count
            self.namespaces[submitted.workload.namespace] += count
            for each in change.rules:
                self.rules[each.rule] += count


class Grouping:
    """Changes of pods by workload.

    `totals`: by cluster. `changes`: with the numbers of pods by workload, by the text of the change, since equal
    amounts of two formats are shown differently. `omitted`: number of changed pods that are only counted, beyond
    MAX_LINES.
    """

    def __init__(self, clusters: Iterable[str] = ("",)) -> None:
        self.totals: Mapping[str, Totals] = {cluster: Totals() for cluster in clusters}
        self.omitted = 0
        self.changes: dict[str, tuple[Change, dict[Workload, int]]] = {}
        self._lines = 0

    def add(self, submitted: Submitted, before: Outcome, after: Outcome) -> None:
        """Count equal pods of a workload with their outcomes. Raises KeyError for an unknown cluster."""
        change = compare_outcomes(before, after)
        self.totals[submitted.workload.cluster].add(submitted, before, after, change)
        if change is None:
            return
        workload, key = submitted.workload, repr(change)
        _, counts = stored = self.changes.get(key) or (change, {})
        if workload not in counts:
            if self._lines >= MAX_LINES:
                self.omitted += submitted.count
                return
            self._lines += 1
            self.changes[key] = stored
        counts[workload] = counts.get(workload, 0) + submitted.count
