"""Nodes counted by what they offer: a decision looks at the distinct kinds of node, not at every node.

A tally is made the first time that something is asked, kept with the cluster, and carried on from one view of a live
cluster to the next by the few nodes that changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rules_engine.model.cluster import Change, Cluster, Node, Taint
from rules_engine.model.placement import Placement
from rules_engine.model.quantity import Quantity
from rules_engine.model.rules import FallbackLadder, NodeFilter, NodeRequirement, Offered

MAX_TALLIES = 64
"""Tallies of one cluster. Rules need a few; each set of label keys that pods select nodes by is one more, and pods
come from anybody."""

EVERY_NODE = NodeFilter()

Demand = Mapping[str, int]
"""Nanos of each resource that one node has to cover, all of them together."""

Amounts = tuple[int, ...]
"""Nanos of each resource of a question, in its order; ABSENT for what a node does not have at all."""

ABSENT = -1

Shape = tuple[tuple[str | None, ...], tuple[Taint, ...]]
"""What a pod sees of a node: the values of the question's labels, and taints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is counted: amounts of `resources`, offered in one sense, on nodes that pass a filter.

    Where the filter asks whether a node matches the pod, nodes are told apart by `labels` and taints.
    """

    nodes: NodeFilter = EVERY_NODE
    offered: Offered
    resources: tuple[str, ...]
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, ladder: FallbackLadder) -> Self:
        """What a ladder asks of nodes, whatever the pod."""
        resources = tuple(rung.resource for rung in ladder.rungs)
        return cls(nodes=ladder.nodes, offered=ladder.offered, resources=resources)

    @property
    def by_pod(self) -> bool:
        return NodeRequirement.MATCHES_POD in self.nodes.require

    def counts(self, node: Node) -> bool:
        """Whether a node passes the filter, as far as it does not depend on the pod."""
        require = self.nodes.require
        return (
            (node.ready or NodeRequirement.READY not in require)
            and not (node.unschedulable and NodeRequirement.SCHEDULABLE in require)
            and self.nodes.selector.matches(node.labels)
        )

    def amounts(self, node: Node) -> Amounts:
        """What a node offers."""
        allocatable, used = node.allocatable, node.used
        if self.offered is Offered.AVAILABLE:
            # Node.available without its Quantities: this is done for every node.
            return tuple([_nanos(allocatable, name, 0) - _nanos(used, name, 0) for name in self.resources])
        return tuple([_nanos(allocatable, name, ABSENT) for name in self.resources])

    def shape(self, node: Node) -> Shape:
        """What pods tell a node apart by."""
        return (tuple([node.labels.get(key) for key in self.labels]), node.taints) if self.by_pod else _ANY


_ANY: Shape = ((), ())


def _nanos(amounts: Mapping[str, Quantity], resource: str, otherwise: int) -> int:
    return amounts[resource].nanos if resource in amounts else otherwise


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one shape: one that stands for all of them, and how many offer what."""

    node: Node
    counts: Mapping[Amounts, int]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many nodes offer what."""

    question: Question
    groups: Mapping[Shape, Group]

    @classmethod
    def of(cls, question: Question, nodes: Iterable[Node]) -> Self:
        return cls(question, {}).after([(None, node) for node in nodes])

    def after(self, changes: Sequence[Change]) -> Self:
        """The tally once nodes have changed; what did not change is shared."""
        counts: dict[Shape, dict[Amounts, int]] = {}
        for old, new in changes:
            left, joined = self._place(old), self._place(new)
            if left == joined:
                continue
            for place, step in ((left, -1), (joined, 1)):
                if place is not None:
                    shape, amounts = place
                    of_shape = counts.get(shape)
                    if of_shape is None:
                        group = self.groups.get(shape)
                        of_shape = counts[shape] = dict(group.counts) if group else {}
                    of_shape[amounts] = of_shape.get(amounts, 0) + step
        if not counts:
            return self
        groups = dict(self.groups)
        for shape, changed in counts.items():
            left_over = {amounts: count for amounts, count in changed.items() if count}
            if left_over:
                groups[shape] = Group(self._standing_for(shape), left_over)
            else:
                groups.pop(shape, None)
        return type(self)(self.question, groups)

    def covers(self, demand: Demand, placement: Placement | None) -> bool:
        """Whether one node has all of `demand` and takes the pod, where `placement` says what that needs.

        `demand` names resources of the question; `placement` chooses by its labels, and no node by name.
        """
        positions = [(self.question.resources.index(resource), amount) for resource, amount in demand.items()]
        groups = self.groups.values() if placement is None else self._groups(placement)
        for group in groups:
            for amounts in group.counts:
                # Loops, since this is asked for every rung; generators would cost as much again.
                for position, amount in positions:
                    if amounts[position] < amount:
                        break
                else:
                    if placement is None or placement.matches(group.node):
                        return True
                    break
        return False

    def each(self) -> Iterator[tuple[Amounts, int]]:
        """What nodes offer, and how many of them."""
        for group in self.groups.values():
            yield from group.counts.items()

    def _groups(self, placement: Placement) -> Iterable[Group]:
        """Those that a pod may run on, or more."""
        if placement.terms is not None:
            return self.groups.values()
        # Without affinity, the node selector says the value of every label that nodes are told apart by.
        wanted = dict(placement.node_selector)
        values = tuple([wanted[key] for key in self.question.labels])
        return (group for shape, group in self.groups.items() if shape[0] == values)

    def _place(self, node: Node | None) -> tuple[Shape, Amounts] | None:
        if node is None or not self.question.counts(node):
            return None
        return self.question.shape(node), self.question.amounts(node)

    def _standing_for(self, shape: Shape) -> Node:
        values, taints = shape
        labels = {key: value for key, value in zip(self.question.labels, values, strict=False) if value is not None}
        return Node(name="", labels=labels, taints=taints)


def tally(cluster: Cluster, question: Question) -> Tally:
    """The cluster's tally for a question; made when it is first asked."""
    found = cluster.views.get(question)
    if isinstance(found, Tally):
        return found
    made = Tally.of(question, cluster.nodes)
    if len(cluster.views) >= MAX_TALLIES:
        cluster.views.pop(next(iter(cluster.views)), None)
    cluster.views[question] = made
    return made


def label_keys(placement: Placement) -> tuple[str, ...]:
    """The labels that a pod chooses nodes by."""
    expressions = [expression.key for term in placement.terms or () for expression in term.expressions]
    return tuple(sorted({key for key, _ in placement.node_selector} | set(expressions)))


def names_nodes(placement: Placement) -> bool:
    """Whether a pod chooses nodes by name, which no shape has."""
    return bool(placement.node_name) or any(term.fields for term in placement.terms or ())


def nodes_named(placement: Placement, nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes that a pod which chooses them by name may run on; all others are passed over by a glance."""
    names: set[str] | None = {placement.node_name} if placement.node_name else set()
    for term in placement.terms or ():
        listed = [field.values for field in term.fields if field.operator == "In"]
        names = names.union(*listed) if listed and names is not None else None
    return (node for node in nodes if (names is None or node.name in names) and placement.matches(node))
