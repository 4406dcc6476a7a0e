"""Bound pods in groups of equal labels, which topology spread and pod affinity select."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from rules_engine.cluster.nodes import NodeSet
from rules_engine.cluster.scheduling.filters.selector_index import SelectorIndex
from rules_engine.cluster.scheduling.filters.topologies import Domains, PodsByNode, Topologies, add_count
from rules_engine.cluster.scheduling.requirements import Footprint
from rules_engine.language.cel import Budget
from rules_engine.model.rules.rule import ConditionKind, LabelSelector

_INCLUDING = (ConditionKind.IN, ConditionKind.EXISTS)

GroupKey = tuple[frozenset[tuple[str, str]], bool]
"""The labels of pods, and whether they are being deleted."""

Tally: TypeAlias = Domains | PodsByNode
T = TypeVar("T", Domains, PodsByNode)


class PodSelection(Hashable, Protocol):
    """Pods that are counted."""

    @property
    def selector(self) -> LabelSelector | None:
        """A selector that matches all pods that are counted; None: no pod is counted."""

    def includes(self, pod: Footprint) -> bool:
        """Return True if pods like this one are counted."""

    def groups(self, pods: "BoundPods") -> Iterable["LabelGroup"]:
        """Yield the groups that are counted. Raises CostExceeded."""


@dataclass(frozen=True, slots=True)
class SelectedPods:
    """The pods of a namespace that a selector matches, without pods that are being deleted."""

    namespace: str
    selector: LabelSelector

    def includes(self, pod: Footprint) -> bool:
        return not pod.terminating and pod.namespace == self.namespace and self.selector.matches(pod.labels)

    def groups(self, pods: "BoundPods") -> Iterable["LabelGroup"]:
        return (group for group in pods.matching(self.namespace, self.selector) if not group.terminating)


@dataclass(frozen=True, slots=True)
class LabelGroup:
    """Pods of one namespace with the same labels, all being deleted or none: their number by node.

    `tallies`: the cached tallies that count them.
    """

    labels: Mapping[str, str]
    terminating: bool
    nodes: dict[int, int] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)

    def change(self, number: int, by: int) -> None:
        """Count pods on a node."""
        add_count(self.nodes, number, by)
        for tally in self.tallies:
            tally.change(number, by)


class BoundPods:
    """The bound pods of a cluster. Groups that are compared, and their nodes, cost a unit each."""

    def __init__(
        self, pods: Iterable[tuple[int, Footprint]], topologies: Topologies, budget: Budget, most_tallies: int
    ) -> None:
        """Take each pod with the number of its node.

        `most_tallies`: tallies that are cached for equal pods; when there are more, all are dropped.
        """
        self._topologies = topologies
        self._budget = budget
        self._most_tallies = most_tallies
        self._by_namespace: dict[str, _NamespaceGroups] = {}
        self._by_domain: dict[tuple[PodSelection, str, NodeSet], Domains] = {}
        self._by_node: dict[PodSelection, PodsByNode] = {}
        self._index: SelectorIndex[tuple[PodSelection, Tally]] = SelectorIndex()
        for number, pod in pods:
            self.count(number, pod, 1)

    def count(self, number: int, pod: Footprint, sign: int) -> None:
        """Count a pod on a node, or with the sign -1 no longer, which may be one that was not counted."""
        namespace = self._by_namespace.setdefault(pod.namespace, _NamespaceGroups())
        key = (frozenset(pod.labels.items()), pod.terminating)
        group = namespace.groups.get(key)
        if group is None:
            group = LabelGroup(pod.labels, pod.terminating)
            namespace.add(key, group)
            group.tallies.extend(tally for each, tally in self._index.matching(pod.labels) if each.includes(pod))
        group.change(number, sign)
        if not group.nodes:
            namespace.remove(key, group)
            if not namespace.groups:
                del self._by_namespace[pod.namespace]

    def namespaces(self, among: Callable[[str], bool]) -> Sequence[str]:
        """Return the namespaces of bound pods for which a function is true."""
        return [name for name in self._by_namespace if among(name)]

    def matching(self, namespace: str, selector: LabelSelector) -> Iterator[LabelGroup]:
        """Yield the groups of a namespace that a selector matches. Raises CostExceeded."""
        groups_of_namespace = self._by_namespace.get(namespace)
        if groups_of_namespace is None:
            return
        groups = groups_of_namespace.candidates(selector)
        self._budget.spend(len(groups))
        for group in groups:
            if selector.matches(group.labels):
                self._budget.spend(len(group.nodes))
                yield group

    def by_domain(self, selection: PodSelection, key: str, among: NodeSet) -> Domains:
        """Return the number of selected pods on the nodes in `among`, by domain of a label. Raises CostExceeded."""
        domains = self._by_domain.get((selection, key, among))
        if domains is None:
            domains = self._count_pods(selection, Domains(self._topologies, key, among))
            self._by_domain[selection, key, among] = domains
        return domains

    def by_node(self, selection: PodSelection) -> PodsByNode:
        """Return the nodes by their number of selected pods. Raises CostExceeded."""
        tally = self._by_node.get(selection)
        if tally is None:
            tally = self._by_node[selection] = self._count_pods(selection, PodsByNode())
        return tally

    def _count_pods(self, selection: PodSelection, tally: T) -> T:
        """Count the selected pods in a new tally, which follows all changes until it is dropped."""
        groups = [*selection.groups(self)]
        if len(self._by_domain) + len(self._by_node) >= self._most_tallies:
            self._forget()
        self._index.add(selection.selector, (selection, tally))
        for group in groups:
            for number, count in group.nodes.items():
                tally.change(number, count)
            group.tallies.append(tally)
        return tally

    def _forget(self) -> None:
        self._by_domain.clear()
        self._by_node.clear()
        self._index = SelectorIndex()
        for namespace in self._by_namespace.values():
            for group in namespace.groups.values():
                group.tallies.clear()


class _NamespaceGroups:
    """The groups of one namespace, indexed by label."""

    __slots__ = ("_by_label", "groups")

    def __init__(self) -> None:
        self.groups: dict[GroupKey, LabelGroup] = {}
        self._by_label: dict[str, dict[str, dict[GroupKey, LabelGroup]]] = {}

    def add(self, key: GroupKey, group: LabelGroup) -> None:
        self.groups[key] = group
        for name, value in group.labels.items():
            self._by_label.setdefault(name, {}).setdefault(value, {})[key] = group

    def remove(self, key: GroupKey, group: LabelGroup) -> None:
        del self.groups[key]
        for name, value in group.labels.items():
            values = self._by_label[name]
            del values[value][key]
            if not values[value]:
                del values[value]

    def candidates(self, selector: LabelSelector) -> Sequence[LabelGroup]:
        """Return the groups to compare with a selector: the groups of its first required label."""
        requirement = next((candidate for candidate in selector.requirements if candidate.operator in _INCLUDING), None)
        if requirement is None:
            return [*self.groups.values()]
        values = self._by_label.get(requirement.key, {})
        values_to_read: Sequence[str] = (
            [*values] if requirement.operator is ConditionKind.EXISTS else requirement.values
        )
        return [group for value in dict.fromkeys(values_to_read) for group in values.get(value, {}).values()]
