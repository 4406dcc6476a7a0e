"""Capacity of nodes: classes of nodes that offer equal amounts. A decision reads the classes, not every node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rules_engine.evaluation.nodes.groups import Groups, Move, NodeSet
from rules_engine.model.cluster import Node
from rules_engine.model.quantity import Quantity
from rules_engine.model.rules import FallbackLadder, NodeFilter, NodeRequirement, Offered

EVERY_NODE = NodeFilter()

Demand = Mapping[str, int]
"""Nanos of each resource; one node must offer all of them together."""

NodeClass = tuple[int, ...]
"""A class of nodes: the nanos that each of them offers of a query's resources, in order; ABSENT for none."""

ABSENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuery:
    """A query for the amounts of `resources` that nodes offer, for nodes that pass a filter."""

    nodes: NodeFilter = EVERY_NODE
    offered: Offered
    resources: tuple[str, ...]

    @classmethod
    def of(cls, ladder: FallbackLadder) -> Self:
        """Return the query of a ladder; it is the same for every pod."""
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

    def class_of(self, node: Node) -> NodeClass:
        """Return the amounts that a node offers."""
        allocatable, used = node.allocatable, node.used
        if self.offered is Offered.AVAILABLE:
            # Node.available without its Quantities, since this runs for every node.
            return tuple([_nanos(allocatable, name, 0) - _nanos(used, name, 0) for name in self.resources])
        return tuple([_nanos(allocatable, name, ABSENT) for name in self.resources])


def _nanos(amounts: Mapping[str, Quantity], resource: str, otherwise: int) -> int:
    return amounts[resource].nanos if resource in amounts else otherwise


CLASS_BYTES = 700
"""Estimated memory of a class at most: its key, its table entry and the numbers of a few nodes."""

AMOUNT_BYTES = 50
"""Memory of each amount of a key."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The nodes that pass the filter of a query, by class."""

    query: NodeQuery
    classes: Groups[NodeClass]

    @classmethod
    def of(cls, query: NodeQuery, nodes: Mapping[int, Node]) -> Self:
        members: dict[NodeClass, list[int]] = {}
        for number, node in nodes.items():
            if query.counts(node):
                members.setdefault(query.class_of(node), []).append(number)
        return cls(query, Groups.of(members))

    def after(self, moves: Sequence[Move]) -> "Capacity":
        """Return the capacity after nodes have changed."""
        changed = []
        for number, old, new in moves:
            left, joined = self._keys(old), self._keys(new)
            if left != joined:
                changed.append((number, left, joined))
        return Capacity(self.query, self.classes.after(changed)) if changed else self

    def covers(self, demand: Demand, among: NodeSet | None = None) -> bool:
        """Return True if one node of those in `among` has all of `demand`.

        `demand` has resources of the query; `among` None: all nodes.
        """
        positions = [(self.query.resources.index(resource), amount) for resource, amount in demand.items()]
        # Loops, since this runs for every rung; generators would take twice as long.
        for amounts, nodes in self.classes.large.items():
            for position, amount in positions:
                if amounts[position] < amount:
                    break
            else:
                if among is None or nodes & among:
                    return True
        for amounts, numbers in self.classes.small.items():
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
        """Estimated memory, at most."""
        classes = self.classes
        sets = max(map(int.bit_length, classes.large.values()), default=0) // 7 * len(classes.large)
        return (CLASS_BYTES + AMOUNT_BYTES * len(self.query.resources)) * (1 + len(classes)) + sets

    def _keys(self, node: Node | None) -> tuple[NodeClass, ...]:
        return (self.query.class_of(node),) if node is not None and self.query.counts(node) else ()
