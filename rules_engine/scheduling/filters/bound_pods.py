"""Bound pods in groups of equal labels, which topology spread and pod affinity select."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rules_engine.cel import Budget
from rules_engine.model.rules import ConditionKind, LabelSelector
from rules_engine.scheduling.requirements import Footprint

CACHED_COUNTS = 64
"""Counts by node that are cached for selectors: equal pods have equal ones. One has an item for each node at most."""

_INCLUDING = (ConditionKind.IN, ConditionKind.EXISTS)

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one namespace with the same labels: their number by node; `live`: of those that are not being deleted.

    `counts`: the cached counts that include the group.
    """

    labels: Mapping[str, str]
    nodes: Counter[int] = field(default_factory=Counter)
    live: Counter[int] = field(default_factory=Counter)
    counts: list[Counter[int]] = field(default_factory=list)


class BoundPods:
    """The bound pods of a cluster. Groups that are compared, and their nodes, cost a unit each."""

    def __init__(self, pods: Iterable[tuple[int, Footprint]], budget: Budget) -> None:
        """Take each pod with the number of its node."""
        self.budget = budget
        self._by_namespace: dict[str, _Namespace] = {}
        self._counts: dict[tuple[str, LabelSelector], Counter[int]] = {}
        """The live pods by node, of a namespace and a selector; updated when pods are added and removed."""
        for number, pod in pods:
            self.add(number, pod)

    def add(self, number: int, pod: Footprint) -> None:
        """Add a pod that is bound to a node."""
        namespace = self._by_namespace.get(pod.namespace)
        if namespace is None:
            namespace = self._by_namespace[pod.namespace] = _Namespace()
        key = frozenset(pod.labels.items())
        group = namespace.groups.get(key)
        if group is None:
            group = PodGroup(pod.labels)
            namespace.add(key, group)
            group.counts.extend(
                counts
                for (name, selector), counts in self._counts.items()
                if name == pod.namespace and selector.matches(pod.labels)
            )
        group.nodes[number] += 1
        if not pod.terminating:
            for counts in (group.live, *group.counts):
                counts[number] += 1

    def remove(self, number: int, pod: Footprint) -> None:
        """Undo an `add`."""
        namespace = self._by_namespace[pod.namespace]
        key = frozenset(pod.labels.items())
        group = namespace.groups[key]
        _decrement(group.nodes, number)
        if not pod.terminating:
            for counts in (group.live, *group.counts):
                _decrement(counts, number)
        if not group.nodes:
            namespace.remove(key, group)
            if not namespace.groups:
                del self._by_namespace[pod.namespace]

    def namespaces(self, among: Callable[[str], bool]) -> Sequence[str]:
        """Return the namespaces of bound pods for which a function is true."""
        return [name for name in self._by_namespace if among(name)]

    def matching(self, namespace: str, selector: LabelSelector) -> Iterator[PodGroup]:
        """Yield the groups of a namespace that a selector matches. Raises CostExceeded."""
        found = self._by_namespace.get(namespace)
        if found is None:
            return
        groups = found.candidates(selector)
        self.budget.spend(len(groups))
        for group in groups:
            if selector.matches(group.labels):
                self.budget.spend(len(group.nodes))
                yield group

    def live_counts(self, namespace: str, selector: LabelSelector) -> Mapping[int, int]:
        """Return the number of a namespace's pods that a selector matches, by node, without those being deleted."""
        found = self._counts.get((namespace, selector))
        if found is None:
            matched = [*self.matching(namespace, selector)]
            if len(self._counts) >= CACHED_COUNTS:
                self._forget()
            found = self._counts[namespace, selector] = Counter()
            for group in matched:
                found.update(group.live)
                group.counts.append(found)
        return found

    def _forget(self) -> None:
        self._counts.clear()
        for namespace in self._by_namespace.values():
            for group in namespace.groups.values():
                group.counts.clear()


def _decrement(counts: Counter[int], number: int) -> None:
    if counts[number] > 1:
        counts[number] -= 1
    else:
        del counts[number]


class _Namespace:
    """The groups of one namespace, indexed by label on first use."""

    __slots__ = ("_by_label", "groups")

    def __init__(self) -> None:
        self.groups: dict[Labels, PodGroup] = {}
        self._by_label: dict[str, dict[str, dict[Labels, PodGroup]]] | None = None

    def add(self, key: Labels, group: PodGroup) -> None:
        self.groups[key] = group
        if self._by_label is not None:
            _list(self._by_label, key, group)

    def remove(self, key: Labels, group: PodGroup) -> None:
        del self.groups[key]
        if self._by_label is not None:
            for name, value in group.labels.items():
                values = self._by_label[name]
                del values[value][key]
                if not values[value]:
                    del values[value]

    def candidates(self, selector: LabelSelector) -> Sequence[PodGroup]:
        """Return the groups to compare with a selector: those of its first required label."""
        requirement = next((found for found in selector.requirements if found.operator in _INCLUDING), None)
        if requirement is None:
            return [*self.groups.values()]
        values = self._index().get(requirement.key, {})
        listed: Sequence[str] = [*values] if requirement.operator is ConditionKind.EXISTS else requirement.values
        return [group for value in dict.fromkeys(listed) for group in values.get(value, {}).values()]

    def _index(self) -> Mapping[str, Mapping[str, Mapping[Labels, PodGroup]]]:
        if self._by_label is None:
            self._by_label = {}
            for key, group in self.groups.items():
                _list(self._by_label, key, group)
        return self._by_label


def _list(by_label: dict[str, dict[str, dict[Labels, PodGroup]]], key: Labels, group: PodGroup) -> None:
    for name, value in group.labels.items():
        by_label.setdefault(name, {}).setdefault(value, {})[key] = group
