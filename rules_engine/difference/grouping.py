"""Lines and totals of a difference, counted pod by pod in bounded memory."""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from sys import getsizeof

from msgspec import Struct, field

from rules_engine.difference.comparison import compare, rules_of
from rules_engine.difference.values import Change, Kind, Line, Outcome, Submitted, Workload
from rules_engine.model.rules import Operation

MAX_LINES = 10_000
"""Lines that are kept; nobody reads more. Totals count all pods."""

MAX_BYTES = 64 * 1024 * 1024
"""Memory of the changes of all lines, as estimated: several times that of 10,000 ordinary ones, but a pod may have
thousands of containers."""

_OBJECT_BYTES = 400
"""Estimated memory of an amount or another part of an outcome, with its short texts and numbers."""

MAX_NAMES = 10_000
"""Names that one total counts separately: more namespaces, rules and GPU resources than clusters have."""

OTHERS = "(others)"
"""The name under which the names beyond MAX_NAMES are counted. No Kubernetes name has parentheses."""


class Totals(Struct, kw_only=True):
    """Numbers of pods of one cluster.

    `as_it_is`: those without a template. `by_kinds`: changed pods by the set of their kinds of change, which shows
    whether `--allow` covers them. `namespaces` and `rules` count changed pods; a pod counts for each rule whose effect
    differs. `unknown`: by reason. `gpus`: effective requests of the admitted pods before and after, in nanos, by
    resource; without the pods whose outcome is not known, and without updates of pods.
    """

    pods: int = 0
    as_it_is: int = 0
    by_kinds: Counter[frozenset[Kind]] = field(default_factory=Counter)
    namespaces: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    gpus_before: Counter[str] = field(default_factory=Counter)
    gpus_after: Counter[str] = field(default_factory=Counter)

    @property
    def kinds(self) -> Mapping[Kind, int]:
        """Numbers of pods by kind of change; a pod may have several. In the order of Kind."""
        counts = {kind: sum(n for kinds, n in self.by_kinds.items() if kind in kinds) for kind in Kind}
        return {kind: count for kind, count in counts.items() if count}

    @property
    def changed(self) -> int:
        """Number of pods with a change, or with an outcome that is not known."""
        return self.by_kinds.total()

    @property
    def gpus(self) -> Mapping[str, tuple[int, int]]:
        """Amounts of GPU resources before and after, in nanos, by name."""
        names = sorted({*self.gpus_before, *self.gpus_after})
        return {name: (self.gpus_before[name], self.gpus_after[name]) for name in names}

    def beyond(self, allowed: Set[Kind]) -> int:
        """Return the number of pods with a kind of change that is not allowed."""
        return sum(count for kinds, count in self.by_kinds.items() if not kinds <= allowed)

    def merge(self, other: "Totals") -> None:
        """Add the numbers of other pods of the cluster."""
        self.pods += other.pods
        self.as_it_is += other.as_it_is
        self.by_kinds.update(other.by_kinds)
        for mine, further in zip(self.by_name, other.by_name, strict=True):
            for name, count in further.items():
                _count(mine, name, count)

    @property
    def by_name(self) -> tuple[Counter[str], ...]:
        """The totals by name, of MAX_NAMES names each."""
        return self.namespaces, self.rules, self.unknown, self.gpus_before, self.gpus_after

    def add(self, submitted: Submitted, before: Outcome, after: Outcome, change: Change | None) -> None:
        """Count equal pods of a workload."""
        count = submitted.count
        self.pods += count
        self.as_it_is += count if submitted.as_it_is else 0
        reason = before.unknown or after.unknown
        if reason:
            _count(self.unknown, reason, count)
        elif submitted.request.operation == Operation.CREATE.value:
            for total, outcome in ((self.gpus_before, before), (self.gpus_after, after)):
                for resource, nanos in outcome.gpus:
                    _count(total, resource, nanos * count)
        if change is not None:
            self.by_kinds[change.kinds] += count
            _count(self.namespaces, submitted.workload.namespace, count)
            for rule in rules_of(change):
                _count(self.rules, rule, count)


def _count(total: Counter[str], name: str, count: int) -> None:
    total[name if name in total or len(total) < MAX_NAMES else OTHERS] += count


class Grouping:
    """Changes of pods by workload: pods of one workload with equal changes are one line.

    `totals`: by cluster. `omitted`: number of changed pods that have no line, beyond MAX_LINES or MAX_BYTES.
    """

    def __init__(self, clusters: Iterable[str] = ("",)) -> None:
        self.totals: Mapping[str, Totals] = {cluster: Totals() for cluster in clusters}
        self.omitted = 0
        self._counts: Counter[tuple[Workload, Change]] = Counter()
        self._bytes = 0
        self._changes: dict[Change, Change] = {}
        """Equal changes of several workloads, stored once."""

    def add(self, submitted: Submitted, before: Outcome, after: Outcome) -> None:
        """Count equal pods of a workload with their outcomes. Raises KeyError for a cluster that is not known."""
        change = compare(before, after)
        self.totals[submitted.workload.cluster].add(submitted, before, after, change)
        if change is not None:
            self._add_line(submitted.workload, change, submitted.count)

    def merge(self, other: "Grouping") -> None:
        """Add the pods that another process has counted. Raises KeyError for a cluster that is not known."""
        for cluster, totals in other.totals.items():
            self.totals[cluster].merge(totals)
        self.omitted += other.omitted
        for line in other.lines:
            self._add_line(line.workload, line.change, line.count)

    def _add_line(self, workload: Workload, change: Change, count: int) -> None:
        known = self._changes.get(change)
        size = _size(change.before) + _size(change.after) if known is None else 0
        key = (workload, known or change)
        if key not in self._counts:
            if len(self._counts) >= MAX_LINES or self._bytes + size > MAX_BYTES:
                self.omitted += count
                return
            self._bytes += size
            self._changes.setdefault(change, change)
        self._counts[key] += count

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines by workload; those of one workload in the order in which they were found."""
        found = sorted(self._counts.items(), key=lambda item: item[0][0])
        return tuple(Line(workload=workload, change=change, count=count) for (workload, change), count in found)

    def exit_code(self, allowed: Set[Kind] = frozenset()) -> int:
        """Return the command's exit code: 0 if nothing changed that is not allowed, else 1."""
        return int(any(totals.beyond(allowed) for totals in self.totals.values()))


def _size(outcome: Outcome) -> int:
    """Return the estimated memory of an outcome, in bytes."""
    objects = 1 + len(outcome.resources) + len(outcome.annotations) + len(outcome.gpus)
    texts = [outcome.message, *outcome.warnings, *(text for _, text in outcome.annotations if text)]
    for deciding in outcome.deciding:
        objects += 1 + len(deciding.falls) + len(deciding.amounts) + len(deciding.annotations)
        texts += [deciding.message, *deciding.warnings]
    return _OBJECT_BYTES * objects + sum(map(getsizeof, texts))
