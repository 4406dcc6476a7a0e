"""A cluster's nodes by number, name, label, taint and what they offer.

An index is a value, kept with its cluster: what is not needed at first is added to a copy, which takes its place. It is
carried on from one view of a live cluster to the next by the few nodes that changed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from rules_engine.evaluation.nodes.capacity import NodeQuery, Tally
from rules_engine.evaluation.nodes.groups import Groups, Move, NodeSet, numbers_of
from rules_engine.evaluation.nodes.places import Label, Places
from rules_engine.model.cluster import Change, Cluster, Node

MAX_TALLIES = 64
"""Tallies of one cluster: each is carried on with every event. Rules need one for each kind of ladder, but
expressions may look up resources that pods name."""

MAX_TALLIES_BYTES = 8 * 1024 * 1024
"""Memory of all tallies of one cluster, as estimated; the oldest give way. A tally takes a few kilobytes where many
nodes are alike, and 4 MiB where each of 5,000 nodes offers something else. The last one is kept whatever it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIndex:
    """Nodes by number.

    `by_name` is their name as a label; `resources`, how many have some or none of it left. `placed`, their labels and
    taints, is made when needed.
    """

    nodes: Mapping[int, Node]
    by_name: Label
    resources: Mapping[str, int]
    placed: Places | None = None
    tallies: Mapping[NodeQuery, Tally]

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> "NodeIndex":
        """Two indexes of the same nodes number them alike."""
        names: dict[str, list[int]] = {}
        for number, node in enumerate(nodes):
            names.setdefault(node.name, []).append(number)
        resources: Counter[str] = Counter()
        # Nodes come in few kinds: a Counter is slow to update.
        for kind, count in Counter(frozenset(_resources(node)) for node in nodes).items():
            resources.update(dict.fromkeys(kind, count))
        by_name = Label((1 << len(nodes)) - 1, Groups.of(names))
        return cls(nodes=dict(enumerate(nodes)), by_name=by_name, resources=dict(resources), tallies={})

    @property
    def every(self) -> NodeSet:
        return self.by_name.present

    @property
    def places(self) -> Places:
        """Labels and taints: made anew each time where they are not kept."""
        return self.placed or Places.of(self.nodes)

    def with_places(self) -> "NodeIndex":
        return replace(self, placed=self.places)

    def with_tally(self, tally: Tally) -> "NodeIndex":
        """The index with one more tally, and without the oldest of too many or too large ones."""
        tallies = {**self.tallies, tally.query: tally}
        while len(tallies) > MAX_TALLIES or (len(tallies) > 1 and _bytes(tallies) > MAX_TALLIES_BYTES):
            del tallies[next(iter(tallies))]
        return replace(self, tallies=tallies)

    def after(self, changes: Sequence[Change]) -> "NodeIndex":
        """The index of the cluster after these changes. A node keeps its number while it exists."""
        nodes, every = dict(self.nodes), self.every
        moves: list[Move] = []
        renamed: list[tuple[int, str | None, str | None]] = []
        for old, new in changes:
            if old is not None:
                number = next(n for n in numbers_of(self.by_name.values[old.name]) if nodes.get(n) == old)
            elif new is not None:
                number = _lowest_free(every)
            else:
                continue
            moves.append((number, old, new))
            if new is None:
                del nodes[number]
                every ^= 1 << number
            else:
                nodes[number] = new
                every |= 1 << number
            if old is None or new is None or old.name != new.name:
                renamed.append((number, old.name if old else None, new.name if new else None))
        tallies = {query: tally.after(moves) for query, tally in self.tallies.items()}
        while len(tallies) > 1 and _bytes(tallies) > MAX_TALLIES_BYTES:
            del tallies[next(iter(tallies))]
        return NodeIndex(
            nodes=nodes,
            by_name=self.by_name.after(renamed) if renamed else self.by_name,
            resources=self._resources_after(moves),
            placed=self.placed and self.placed.after(moves),
            tallies=tallies,
        )

    def _resources_after(self, moves: Sequence[Move]) -> Mapping[str, int]:
        changed: Counter[str] = Counter()
        for _, old, new in moves:
            gone, come = _resources(old), _resources(new)
            if gone != come:
                changed.subtract(gone)
                changed.update(come)
        if not changed:
            return self.resources
        changed.update(self.resources)
        return {resource: count for resource, count in changed.items() if count}


def _resources(node: Node | None) -> Set[str]:
    return node.allocatable.keys() | node.used.keys() if node else frozenset()


def _bytes(tallies: Mapping[NodeQuery, Tally]) -> int:
    return sum(tally.bytes for tally in tallies.values())


def _lowest_free(every: NodeSet) -> int:
    return (~every & (every + 1)).bit_length() - 1


_INDEX: Final = "node index"
"""The key of an index among the views of its cluster."""


def index_of(cluster: Cluster) -> NodeIndex:
    """The cluster's index; made when it is first needed, and never dropped.

    Whatever thread made it, and whatever was added to it since: all that are seen with one cluster number nodes alike.
    """
    found = cluster.views.get(_INDEX)
    if isinstance(found, NodeIndex):
        return found
    made = cluster.views[_INDEX] = NodeIndex.of(cluster.nodes)
    return made


def placed_index_of(cluster: Cluster) -> NodeIndex:
    """The cluster's index with labels and taints."""
    index = index_of(cluster)
    if index.placed is None:
        index = index.with_places()
        cluster.views[_INDEX] = index
    return index


def tally(cluster: Cluster, query: NodeQuery) -> Tally:
    """The cluster's tally for a question; made when it is first needed."""
    index = index_of(cluster)
    found = index.tallies.get(query)
    if found is None:
        found = Tally.of(query, index.nodes)
        # Another thread may have added something meanwhile.
        cluster.views[_INDEX] = index_of(cluster).with_tally(found)
    return found
