"""A cluster's nodes by number, name, label, taint and capacity.

An index is a value, cached in its cluster. A part built on first use is added to a copy, which replaces the index.
The index of the next view of a live cluster is computed from it and the few nodes that changed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from rules_engine.cluster.nodes.capacity import Capacity
from rules_engine.cluster.nodes.groups import Groups, NodeSet, NumberedUpdate, node_set, numbers_of
from rules_engine.cluster.nodes.places import Label, Places
from rules_engine.cluster.nodes.query import NodeQuery, is_extended_resource
from rules_engine.model.kubernetes.cluster import Cluster, Node, NodeUpdate

MAX_CAPACITIES = 64
"""Capacities cached for one cluster: each is updated with every event. Rules need one for each kind of ladder, but
expressions may look up resources that pods name."""

MAX_CAPACITIES_BYTES = 8 * 1024 * 1024
"""Memory of all capacities of one cluster, as estimated; the oldest are evicted. One takes a few kilobytes if there are
few classes, and 4 MiB if each of 5,000 nodes is a class of its own. The newest one is cached whatever its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIndex:
    """Nodes by number.

    `by_name`: their name as a label. `resources` counts the nodes that have a resource, in use or not. `placed`, their
    labels and taints, is computed on first use. `served`: resources that drivers may serve on a node, which may lag
    behind changes, on the safe side. `uncertain`: nodes with drivers whose single amounts do not tell everything
    (`simple` is False).
    """

    nodes: Mapping[int, Node]
    by_name: Label
    resources: Mapping[str, int]
    placed: Places | None = None
    capacities: Mapping[NodeQuery, Capacity]
    served: frozenset[str] = frozenset()
    uncertain: NodeSet = 0

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> "NodeIndex":
        """Build the index. Two indexes of the same nodes number them alike."""
        names: dict[str, list[int]] = {}
        for number, node in enumerate(nodes):
            names.setdefault(node.name, []).append(number)
        resources: Counter[str] = Counter()
        # Counted by distinct set first, since nodes have few of them and a Counter is slow to update.
        for kind, count in Counter(frozenset(_resources_of(node)) for node in nodes).items():
            resources.update(dict.fromkeys(kind, count))
        by_name = Label((1 << len(nodes)) - 1, Groups.of(names))
        services = [node.service for node in nodes if node.service is not None]
        return cls(
            nodes=dict(enumerate(nodes)),
            by_name=by_name,
            resources=dict(resources),
            capacities={},
            served=frozenset().union(*[service.resources for service in services]),
            uncertain=node_set([number for number, node in enumerate(nodes) if _is_uncertain(node)]),
        )

    @property
    def every(self) -> NodeSet:
        return self.by_name.present

    @property
    def extended(self) -> list[str]:
        """The extended resources of all nodes, in order of name."""
        return sorted(filter(is_extended_resource, self.resources))

    @property
    def places(self) -> Places:
        """Labels and taints; computed on each call if they are not cached."""
        return self.placed or Places.of(self.nodes)

    def with_places(self) -> "NodeIndex":
        return replace(self, placed=self.places)

    def with_capacity(self, capacity: Capacity) -> "NodeIndex":
        """Return the index with one more capacity; the oldest are evicted if they are too many or too large."""
        capacities = {**self.capacities, capacity.query: capacity}
        while len(capacities) > MAX_CAPACITIES or (
            len(capacities) > 1 and _total_bytes(capacities) > MAX_CAPACITIES_BYTES
        ):
            del capacities[next(iter(capacities))]
        return replace(self, capacities=capacities)

    def after(self, changes: Sequence[NodeUpdate]) -> "NodeIndex":
        """Return the index of the cluster after these changes. A node keeps its number while it exists."""
        nodes, every, uncertain = dict(self.nodes), self.every, self.uncertain
        moves: list[NumberedUpdate] = []
        renamed: list[tuple[int, str | None, str | None]] = []
        for old, new in changes:
            if old is not None:
                number = next(n for n in numbers_of(self.by_name.values[old.name]) if nodes.get(n) == old)
            elif new is not None:
                number = (~every & (every + 1)).bit_length() - 1  # the lowest free one
            else:
                continue
            moves.append((number, old, new))
            uncertain = uncertain & ~(1 << number) | _is_uncertain(new) << number
            if new is None:
                del nodes[number]
                every ^= 1 << number
            else:
                nodes[number] = new
                every |= 1 << number
            if old is None or new is None or old.name != new.name:
                renamed.append((number, old.name if old else None, new.name if new else None))
        capacities = {query: capacity.after(moves) for query, capacity in self.capacities.items()}
        # The newest stays, however large it is.
        while len(capacities) > 1 and _total_bytes(capacities) > MAX_CAPACITIES_BYTES:
            del capacities[next(iter(capacities))]
        return NodeIndex(
            nodes=nodes,
            by_name=self.by_name.after(renamed) if renamed else self.by_name,
            resources=self._resources_after(moves),
            placed=self.placed and self.placed.after(moves),
            capacities=capacities,
            # Only added to: a resource too many costs a search, one too few would give a wrong answer.
            served=self.served.union(*[new.service.resources for _, new in changes if new and new.service]),
            uncertain=uncertain,
        )

    def _resources_after(self, moves: Sequence[NumberedUpdate]) -> Mapping[str, int]:
        changed: Counter[str] = Counter()
        for _, old, new in moves:
            before, after = _resources_of(old), _resources_of(new)
            if before != after:
                changed.subtract(before)
                changed.update(after)
        if not changed:
            return self.resources
        changed.update(self.resources)
        return {resource: count for resource, count in changed.items() if count}


def _resources_of(node: Node | None) -> Set[str]:
    return node.allocatable.keys() | node.used.keys() if node else frozenset()


def _is_uncertain(node: Node | None) -> bool:
    return bool(node and node.service and not node.service.simple)


def _total_bytes(capacities: Mapping[NodeQuery, Capacity]) -> int:
    return sum(capacity.bytes for capacity in capacities.values())


_INDEX: Final = "node index"
"""The key of an index among the views of its cluster."""


def node_index_of(cluster: Cluster) -> NodeIndex:
    """Return the cluster's index, computed on first use and never dropped.

    Threads may build or extend it at the same time: all indexes of one cluster number nodes alike.
    """
    cached_index = cluster.views.get(_INDEX)
    if isinstance(cached_index, NodeIndex):
        return cached_index
    new_index = cluster.views[_INDEX] = NodeIndex.of(cluster.nodes)
    return new_index


def node_index_with_places(cluster: Cluster) -> NodeIndex:
    """Return the cluster's index with labels and taints."""
    index = node_index_of(cluster)
    if index.placed is None:
        index = index.with_places()
        cluster.views[_INDEX] = index
    return index


def capacity_of(cluster: Cluster, query: NodeQuery) -> Capacity:
    """Return the cluster's capacity for a query, computed on first use."""
    index = node_index_of(cluster)
    capacity = index.capacities.get(query)
    if capacity is None:
        capacity = Capacity.of(query, index.nodes)
        # Read again: another thread may have replaced the index meanwhile.
        cluster.views[_INDEX] = node_index_of(cluster).with_capacity(capacity)
    return capacity
