"""Lines and totals of a difference, counted pod by pod."""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from rules_engine.difference.comparison import compare_outcomes, differing_rules
from rules_engine.difference.values import Change, Kind, Line, Outcome, Submitted, Workload
from rules_engine.model.kubernetes.quantity import Format
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.rules.rule import Operation

MAX_LINES = 10_000
"""Lines that are kept, of the first changed pods: nobody reads more. Totals count all pods."""

MAX_NAME_LENGTH = 320
"""Characters of the names of workloads and of the names that totals count. Kubernetes has no longer names: a subdomain
has up to 253 characters, and a name in it up to 63."""


class Totals(Struct, kw_only=True):
    """Numbers of pods of one cluster.

    `as_it_is`: pods that are decided as they are now, by reason. `by_kinds`: changed pods by the set of their kinds of
    change, which shows whether `--allow` covers them. `namespaces` and `rules` count changed pods; a pod counts for
    each rule whose effect differs. `unknown`: changed pods by reason. `gpus`: effective requests of the admitted pods
    before and after, in nanos, by resource; without pods whose outcome is unknown, and without updates and dry runs,
    which create no pod.
    """

    pods: int = 0
    as_it_is: Counter[str] = field(default_factory=Counter)
    by_kinds: Counter[frozenset[Kind]] = field(default_factory=Counter)
    namespaces: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    gpus_before: Counter[str] = field(default_factory=Counter)
    gpus_after: Counter[str] = field(default_factory=Counter)

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
                for resource, nanos in outcome.gpus:
                    total[truncate(resource, MAX_NAME_LENGTH)] += nanos * count
        if change is not None:
            self.by_kinds[change.kinds] += count
            self.namespaces[truncate(submitted.workload.namespace, MAX_NAME_LENGTH)] += count
            for rule in differing_rules(change):
                self.rules[rule] += count


class Grouping:
    """Changes of pods by workload: pods of one workload with equal changes are one line.

    `totals`: by cluster. `omitted`: number of changed pods that have no line, beyond MAX_LINES.
    """

    def __init__(self, clusters: Iterable[str] = ("",)) -> None:
        self.totals: Mapping[str, Totals] = {cluster: Totals() for cluster in clusters}
        self.omitted = 0
        self._lines: dict[tuple[Workload, int], Line] = {}
        """By workload and identity of the stored change, in the order of their first pods."""
        self._changes: dict[tuple[Change, tuple[Format, ...]], Change] = {}

    def add(self, submitted: Submitted, before: Outcome, after: Outcome) -> None:
        """Count equal pods of a workload with their outcomes. Raises KeyError for an unknown cluster."""
        change = compare_outcomes(before, after)
        self.totals[submitted.workload.cluster].add(submitted, before, after, change)
        if change is None:
            return
        workload = _truncate_names(submitted.workload)
        # Equal amounts of two formats are shown differently.
        exact = change, _amount_formats(change)
        stored = self._changes.get(exact, change)
        line = self._lines.get((workload, id(stored)))
        if line is not None:
            line.count += submitted.count
        elif len(self._lines) >= MAX_LINES:
            self.omitted += submitted.count
        else:
            self._changes[exact] = stored
            self._lines[workload, id(stored)] = Line(workload=workload, change=stored, count=submitted.count)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines by workload; within a workload, in the order of their first pods."""
        return tuple(sorted(self._lines.values(), key=lambda line: line.workload))


def _truncate_names(workload: Workload) -> Workload:
    """Return a workload with names of at most MAX_NAME characters."""
    names = workload.namespace, workload.kind, workload.name
    namespace, kind, name = (truncate(text, MAX_NAME_LENGTH) for text in names)
    return Workload(cluster=workload.cluster, namespace=namespace, kind=kind, name=name)


def _amount_formats(change: Change) -> tuple[Format, ...]:
    """Return the formats of all amounts, which equality ignores."""
    amounts = (*change.before.resources, *change.after.resources)
    return tuple(
        quantity.format for amount in amounts for quantity in (amount.request, amount.limit) if quantity is not None
    )


class RecordedTotals(Struct, kw_only=True):
    """Numbers of lines of a decision log.

    `replayed`: admissions decided again under both rule sets. `later_calls`: calls of /validate whose pod is decided
    with its call of /mutate. `not_replayable`: admissions by reason. `unreadable`: lines that do not come from a
    decision log, by reason.
    """

    lines: int = 0
    replayed: int = 0
    later_calls: int = 0
    not_replayable: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)

    @property
    def admissions(self) -> int:
        """The number of lines of decisions."""
        return self.lines - self.unreadable.total()
