"""Bound pods in groups of equal labels, which topology spread and pod affinity select."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rules_engine.cel import Budget
from rules_engine.model.json.lenient import Object, mapping, strings, text
from rules_engine.model.rules import ConditionKind, LabelSelector
from rules_engine.scheduling.requirements import DEFAULT_NAMESPACE

CACHED_COUNTS = 64
"""Counts by node that are cached for selectors: equal pods have equal ones. One has an item for each node at most."""

_INCLUDING = (ConditionKind.IN, ConditionKind.EXISTS)


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one namespace with the same labels: their number by node; `live`: of those that are not being deleted."""

    labels: Mapping[str, str]
    nodes: Counter[int] = field(default_factory=Counter)
    live: Counter[int] = field(default_factory=Counter)


class BoundPods:
    """The bound pods of a cluster; they never change. Groups that are compared, and their nodes, cost a unit each."""

    def __init__(self, pods: Iterable[tuple[int, Object]], budget: Budget) -> None:
        """Take each pod with the number of its node."""
        self.budget = budget
        found: dict[tuple[str, frozenset[tuple[str, str]]], PodGroup] = {}
        for number, pod in pods:
            metadata = mapping(pod.get("metadata"))
            labels = strings(metadata.get("labels"))
            key = text(metadata, "namespace") or DEFAULT_NAMESPACE, frozenset(labels.items())
            group = found.get(key)
            if group is None:
                group = found[key] = PodGroup(labels)
            group.nodes[number] += 1
            if not metadata.get("deletionTimestamp"):
                group.live[number] += 1
        self._by_namespace: dict[str, _Namespace] = {}
        for (namespace, _), group in found.items():
            self._by_namespace.setdefault(namespace, _Namespace()).groups.append(group)
        self.live_counts = lru_cache(CACHED_COUNTS)(self._live_counts)
        """Return the number of a namespace's pods that a selector matches, by node, without those being deleted."""

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

    def _live_counts(self, namespace: str, selector: LabelSelector) -> Mapping[int, int]:
        counts: Counter[int] = Counter()
        for group in self.matching(namespace, selector):
            counts.update(group.live)
        return counts


class _Namespace:
    """The groups of one namespace, indexed by label on first use."""

    __slots__ = ("_by_label", "groups")

    def __init__(self) -> None:
        self.groups: list[PodGroup] = []
        self._by_label: dict[str, dict[str, list[PodGroup]]] | None = None

    def candidates(self, selector: LabelSelector) -> Sequence[PodGroup]:
        """Return the groups to compare with a selector: those of its first required label."""
        requirement = next((found for found in selector.requirements if found.operator in _INCLUDING), None)
        if requirement is None:
            return self.groups
        values = self._index().get(requirement.key, {})
        listed: Sequence[str] = [*values] if requirement.operator is ConditionKind.EXISTS else requirement.values
        return [group for value in dict.fromkeys(listed) for group in values.get(value, ())]

    def _index(self) -> Mapping[str, Mapping[str, list[PodGroup]]]:
        if self._by_label is None:
            self._by_label = {}
            for group in self.groups:
                for key, value in group.labels.items():
                    self._by_label.setdefault(key, {}).setdefault(value, []).append(group)
        return self._by_label
