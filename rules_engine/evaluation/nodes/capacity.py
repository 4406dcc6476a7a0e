"""Nodes in groups by what they offer: a decision looks at the distinct amounts, not at every node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rules_engine.evaluation.nodes.groups import Groups, Move, NodeSet
from rules_engine.model.cluster import Node
from rules_engine.model.quantity import Quantity
from rules_engine.model.rules import FallbackLadder, NodeFilter, NodeRequirement, Offered

EVERY_NODE = NodeFilter()

Demand = Mapping[str, int]
"""Nanos of each resource that one node has to cover, all of them together."""

Amounts = tuple[int, ...]
"""Nanos of each resource of a question, in its order; ABSENT for what a node does not have at all."""

ABSENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuery:
    """A question: amounts of `resources`, offered in one sense, on nodes that pass a filter."""

    nodes: NodeFilter = EVERY_NODE
    offered: Offered
    resources: tuple[str, ...]

    @classmethod
    def of(cls, ladder: FallbackLadder) -> Self:
        """Return the question of a ladder, whatever the pod."""
        resources = tuple(rung.resource for rung in ladder.rungs)
        return cls(nodes=ladder.nodes, offered=ladder.offered, resources=resources)

    @property
    def by_pod(self) -> bool:
        """True if a node counts only for the pods that may run on it."""
        return NodeRequirement.MATCHES_POD in self.nodes.require

    def counts(self, node: Node) -> bool:
        """Return True if a node passes the filter, as far as it does not depend on the pod."""
        require = self.nodes.require
        return (
            (node.ready or NodeRequirement.READY not in require)
            and not (node.unschedulable and NodeRequirement.SCHEDULABLE in require)
            and self.nodes.selector.matches(node.labels)
        )

    def amounts(self, node: Node) -> Amounts:
        """Return the amounts that a node offers."""
        allocatable, used = node.allocatable, node.used
        if self.offered is Offered.AVAILABLE:
            # Node.available without its Quantities: this is done for every node.
            return tuple([_nanos(allocatable, name, 0) - _nanos(used, name, 0) for name in self.resources])
        return tuple([_nanos(allocatable, name, ABSENT) for name in self.resources])


def _nanos(amounts: Mapping[str, Quantity], resource: str, otherwise: int) -> int:
    return amounts[resource].nanos if resource in amounts else otherwise


GROUP_BYTES = 700
"""About what a group of a tally takes at most: its key, its place in a table and the numbers of a few nodes."""

AMOUNT_BYTES = 50
"""Bytes that each amount of a key takes."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The nodes that pass the filter of a question, by what they offer."""

    query: NodeQuery
    groups: Groups[Amounts]

    @classmethod
    def of(cls, query: NodeQuery, nodes: Mapping[int, Node]) -> Self:
        members: dict[Amounts, list[int]] = {}
        for number, node in nodes.items():
            if query.counts(node):
                members.setdefault(query.amounts(node), []).append(number)
        return cls(query, Groups.of(members))

    def after(self, moves: Sequence[Move]) -> "Tally":
        """The tally once nodes have changed."""
        changed = []
        for number, old, new in moves:
            left, joined = self._keys(old), self._keys(new)
            if left != joined:
                changed.append((number, left, joined))
        return Tally(self.query, self.groups.after(changed)) if changed else self

    def covers(self, demand: Demand, among: NodeSet | None = None) -> bool:
        """Return True if one node of those in `among` has all of `demand`.

        `demand` names resources of the question; None stands for all nodes.
        """
        positions = [(self.query.resources.index(resource), amount) for resource, amount in demand.items()]
        # Loops, since this is asked for every rung; generators would cost as much again.
        for amounts, nodes in self.groups.large.items():
            for position, amount in positions:
                if amounts[position] < amount:
                    break
            else:
                if among is None or nodes & among:
                    return True
        for amounts, numbers in self.groups.small.items():
            for position, amount in positions:
                if amounts[position] < amount:
                    break
            else:
                if among is None:
                    return True
                for number in numbers:
                    if among >> number & 1:
                        return True
        return False

    @property
    def bytes(self) -> int:
        """About what it takes in memory, at most."""
        groups = self.groups
        sets = max(map(int.bit_length, groups.large.values()), default=0) // 7 * len(groups.large)
        return (GROUP_BYTES + AMOUNT_BYTES * len(self.query.resources)) * (1 + len(groups)) + sets

    def _keys(self, node: Node | None) -> tuple[Amounts, ...]:
        return (self.query.amounts(node),) if node is not None and self.query.counts(node) else ()
