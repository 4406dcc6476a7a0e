"""Capacity of nodes: classes of nodes that offer equal amounts. A decision reads the classes, not every node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rules_engine.cluster.nodes.groups import Groups, NodeSet, NumberedUpdate, union
from rules_engine.cluster.nodes.query import Demand, NodeClass, NodeQuery
from rules_engine.model.kubernetes.cluster import Node

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

    def after(self, moves: Sequence[NumberedUpdate]) -> "Capacity":
        """Return the capacity after nodes have changed."""
        changed = []
        for number, old, new in moves:
            left, joined = self._keys(old), self._keys(new)
            if left != joined:
                changed.append((number, left, joined))
        return Capacity(self.query, self.classes.after(changed)) if changed else self

    def covers(self, demand: Demand, among: NodeSet | None = None) -> bool:
        """Return True if one node in `among` offers all of `demand`.

        `demand` has resources of the query; `among` None: all nodes.
        """
        positions = self._positions(demand)
        # Loops, since this runs for every rung; generators would take twice as long.
        for amounts, nodes in self.classes.members.items():
            for position, amount in positions:
                if amounts[position] < amount:
                    break
            else:
                # A node at a time of few: a shift takes less than a set of them.
                if among is None or (nodes & among if isinstance(nodes, int) else any(among >> n & 1 for n in nodes)):
                    return True
        return False

    def covering(self, demand: Demand, among: NodeSet | None) -> NodeSet:
        """Return the nodes in `among`, each of which offers all of `demand`."""
        positions = self._positions(demand)
        nodes = union(
            [
                self.classes[amounts]
                for amounts in self.classes.members
                if all(amounts[position] >= amount for position, amount in positions)
            ]
        )
        return nodes if among is None else nodes & among

    def _positions(self, demand: Demand) -> Sequence[tuple[int, int]]:
        """Return the place of each resource in the query, with its amount."""
        if len(demand) == 1:
            [(resource, amount)] = demand.items()
            return [(self.query.resources.index(resource), amount)]
        # A pod may name thousands.
        places = {resource: place for place, resource in enumerate(self.query.resources)}
        return [(places[resource], amount) for resource, amount in demand.items()]

    @property
    def bytes(self) -> int:
        """Estimated memory, at most."""
        members = self.classes.members
        sets = [nodes.bit_length() for nodes in members.values() if isinstance(nodes, int)]
        of_sets = max(sets, default=0) // 7 * len(sets)
        return (CLASS_BYTES + AMOUNT_BYTES * len(self.query.resources)) * (1 + len(members)) + of_sets

    def _keys(self, node: Node | None) -> tuple[NodeClass, ...]:
        return (self.query.class_of(node),) if node is not None and self.query.counts(node) else ()
