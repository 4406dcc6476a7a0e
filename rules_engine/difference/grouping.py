"""Lines and totals of a difference, counted pod by pod in bounded memory."""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from hashlib import blake2b

from msgspec import Struct, field

from rules_engine.difference.comparison import compare_outcomes, differing_rules
from rules_engine.difference.values import Change, Kind, Line, Outcome, Submitted, Workload
from rules_engine.model.kubernetes.quantity import Format
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.rules.rule import Operation

MAX_LINES = 10_000
"""Lines that are kept, the first by workload, whatever the order of pods: nobody reads more. Totals count all pods."""

MAX_CHANGE_CHARACTERS = 12_000_000
"""Characters of the changes of all lines as text, each of which takes some three bytes of memory: a pod may have
thousands of containers. Twice as much is used at most before the last lines are left out."""

MAX_NAME_LENGTH = 320
"""Characters of the names of workloads and of the names that totals count. Kubernetes has no longer names: a subdomain
has up to 253 characters, and a name in it up to 63."""

MAX_NAMES = 10_000
"""Names that one total counts separately, the first in sorted order: no cluster has as many namespaces, rules or GPU
resources. A total has twice as many at most before the last are left out."""

OTHERS = "(others)"
"""The name under which the names beyond MAX_NAMES are counted. No Kubernetes name has parentheses."""


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

    @property
    def kinds(self) -> Mapping[Kind, int]:
        """Numbers of pods by kind of change; a pod may have several. In the order of Kind."""
        counts = {kind: sum(n for kinds, n in self.by_kinds.items() if kind in kinds) for kind in Kind}
        return {kind: count for kind, count in counts.items() if count}

    @property
    def changed(self) -> int:
        """Number of pods with a change or an unknown outcome."""
        return self.by_kinds.total()

    @property
    def gpus(self) -> Mapping[str, tuple[int, int]]:
        """Amounts of GPU resources before and after, in nanos, by name."""
        names = sorted({*self.gpus_before, *self.gpus_after})
        return {name: (self.gpus_before[name], self.gpus_after[name]) for name in names}

    def disallowed_pods(self, allowed: Set[Kind]) -> int:
        """Return the number of pods with a kind of change that is not allowed."""
        return sum(count for kinds, count in self.by_kinds.items() if not kinds <= allowed)

    def merge(self, other: "Totals") -> None:
        """Add the numbers of other pods of the cluster."""
        self.pods += other.pods
        self.by_kinds.update(other.by_kinds)
        for counter, other_counter in zip(self.by_name, other.by_name, strict=True):
            for name, count in other_counter.items():
                _add_count(counter, name, count)

    def leave_out(self) -> None:
        """Count the names beyond MAX_NAMES as OTHERS."""
        for total in self.by_name:
            _leave_out_names(total)

    @property
    def by_name(self) -> tuple[Counter[str], ...]:
        """The totals by name, of MAX_NAMES names each."""
        return self.as_it_is, self.namespaces, self.rules, self.unknown, self.gpus_before, self.gpus_after

    def add(self, submitted: Submitted, before: Outcome, after: Outcome, change: Change | None) -> None:
        """Count equal pods of a workload."""
        count = submitted.count
        self.pods += count
        if submitted.as_it_is:
            _add_count(self.as_it_is, truncate(submitted.as_it_is, MAX_NAME_LENGTH), count)
        request = submitted.request
        reason = before.unknown or after.unknown
        if reason:
            if change is not None:
                _add_count(self.unknown, reason, count)
        elif request.operation == Operation.CREATE.value and not request.dry_run:
            for total, outcome in ((self.gpus_before, before), (self.gpus_after, after)):
                for resource, nanos in outcome.gpus:
                    _add_count(total, truncate(resource, MAX_NAME_LENGTH), nanos * count)
        if change is not None:
            self.by_kinds[change.kinds] += count
            _add_count(self.namespaces, truncate(submitted.workload.namespace, MAX_NAME_LENGTH), count)
            for rule in differing_rules(change):
                _add_count(self.rules, rule, count)


def _add_count(total: Counter[str], name: str, count: int) -> None:
    total[name] += count
    if len(total) > 2 * MAX_NAMES:
        _leave_out_names(total)


def _leave_out_names(total: Counter[str]) -> None:
    """Count the last names beyond MAX_NAMES as OTHERS. The first names were never left out before."""
    for name in sorted(total.keys() - {OTHERS})[MAX_NAMES:]:
        total[OTHERS] += total.pop(name)


class _Stored(Struct, frozen=True):
    """A change, which several workloads may have, with the digest and the length of its text."""

    change: Change
    digest: bytes
    size: int


class _Entry(Struct):
    """The counts of a line to come. `first`: the position of its first pod."""

    stored: _Stored
    first: int
    count: int


_Key = tuple[Workload, bytes]
"""The order in which lines are kept, the same for any order of pods: a workload, and the digest of a change."""


class Grouping:
    """Changes of pods by workload: pods of one workload with equal changes are one line.

    The result depends neither on the order of the pods nor on their distribution to several groupings.
    `totals`: by cluster. `omitted`: number of changed pods that have no line, beyond the bounds. Both, and `lines`, are
    complete after `leave_out`.
    """

    def __init__(self, clusters: Iterable[str] = ("",)) -> None:
        self.totals: Mapping[str, Totals] = {cluster: Totals() for cluster in clusters}
        self.omitted = 0
        self._entries: dict[_Key, _Entry] = {}
        self._first_omitted: _Key | None = None
        self._characters = 0
        self._stored: dict[tuple[Change, tuple[Format, ...]], _Stored] = {}

    def add(self, submitted: Submitted, before: Outcome, after: Outcome, position: int = 0) -> None:
        """Count equal pods of a workload with their outcomes. Raises KeyError for an unknown cluster.

        `position`: the place of the pods in the input; the lines of one workload are in the order of their first pods.
        """
        change = compare_outcomes(before, after)
        self.totals[submitted.workload.cluster].add(submitted, before, after, change)
        if change is not None:
            self._add_line(_truncate_names(submitted.workload), change, submitted.count, position)

    def merge(self, other: "Grouping") -> None:
        """Add the pods that another process has counted. Raises KeyError for an unknown cluster."""
        for cluster, totals in other.totals.items():
            self.totals[cluster].merge(totals)
        self.omitted += other.omitted
        if other._first_omitted is not None:  # noqa: SLF001 - its own class
            self._first_omitted = min(self._first_omitted or other._first_omitted, other._first_omitted)  # noqa: SLF001
        for (workload, _), entry in other._entries.items():  # noqa: SLF001
            self._add_line(workload, entry.stored.change, entry.count, entry.first)

    def leave_out(self) -> None:
        """Leave out the lines beyond the bounds, and the names of totals beyond MAX_NAMES."""
        for totals in self.totals.values():
            totals.leave_out()
        self._leave_out_lines()

    def _add_line(self, workload: Workload, change: Change, count: int, position: int) -> None:
        # Equal amounts of two formats are shown differently.
        exact = change, _amount_formats(change)
        stored = self._stored.get(exact)
        if stored is None:
            text = _change_text(change).encode(errors="surrogatepass")
            stored = self._stored[exact] = _Stored(change, blake2b(text, digest_size=16).digest(), len(text))
            self._characters += stored.size
        key = workload, stored.digest
        entry = self._entries.get(key)
        if entry is not None:
            entry.count += count
            entry.first = min(entry.first, position)
            return
        self._entries[key] = _Entry(stored, position, count)
        if len(self._entries) > 2 * MAX_LINES or self._characters > 2 * MAX_CHANGE_CHARACTERS:
            self._leave_out_lines()

    def _leave_out_lines(self) -> None:
        """Leave out the last lines. The final lines were never left out before, so their counts are complete.

        Nothing takes the place of a line that was left out, or else the lines would depend on the order of the pods.
        """
        changes: dict[int, _Stored] = {}
        keys = sorted(self._entries)
        kept, used = 0, 0
        for key in keys[:MAX_LINES]:
            if self._first_omitted is not None and key >= self._first_omitted:
                break
            stored = self._entries[key].stored
            used += 0 if id(stored) in changes else stored.size
            if used > MAX_CHANGE_CHARACTERS:
                break
            changes[id(stored)] = stored
            kept += 1
        if kept < len(keys):
            self._first_omitted = min(self._first_omitted or keys[kept], keys[kept])
        for key in keys[kept:]:
            self.omitted += self._entries.pop(key).count
        self._stored = {(stored.change, _amount_formats(stored.change)): stored for stored in changes.values()}
        self._characters = sum(stored.size for stored in changes.values())

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines by workload; within a workload, in the order of their first pods."""
        entries = sorted(self._entries.items(), key=lambda item: (item[0][0], item[1].first, item[0][1]))
        return tuple(Line(workload=key[0], change=entry.stored.change, count=entry.count) for key, entry in entries)


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


def _change_text(change: Change) -> str:
    """Return a text of a change that is the same in each process and in each run."""
    return repr((sorted(change.kinds), change.before, change.after))


class RecordedTotals(Struct, kw_only=True):
    """Numbers of lines of decision logs.

    `admissions`: lines of decisions. `replayed`: admissions decided again under both rule sets. `other_rules`: replayed
    admissions recorded under other rules than the old ones. `differing`: admissions recorded under the old rules, which
    now decide differently. `later_calls`: calls of /validate whose pod is decided with its call of /mutate.
    `not_replayable`: admissions by reason. `unreadable`: lines that do not come from a decision log, by reason.
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
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
