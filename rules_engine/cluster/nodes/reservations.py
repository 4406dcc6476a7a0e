"""Devices reserved for pods that were admitted and are not yet bound to a node."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from sys import intern

from rules_engine.cluster.nodes import NodeSet, is_extended_resource, node_index_of
from rules_engine.model.kubernetes.cluster import Cluster, Node

LIFETIME_SECONDS = 10.0
"""Lifetime of a reservation whose pod is not seen: a scheduler with free nodes binds within a second or two; a pod that
is pending for longer waits for something else, and one that a quota, a policy or another webhook denied never appears.
Until then other pods do not see these devices as free."""

MAX_PER_NAMESPACE = 256
"""Maximum reservations of one namespace, so that none takes everything: what controllers create in LIFETIME_SECONDS
(kube-controller-manager, --kube-api-burst 30 and --kube-api-qps 20: 230). Beyond it, its oldest is dropped,
as its pod is the likeliest to be bound or denied already."""

MAX_RESERVATIONS = 10_000
"""Maximum reservations: more pods than any scheduler binds in LIFETIME_SECONDS. Beyond it, the oldest is dropped."""

MAX_RELOCATIONS = 200
"""Maximum reservations that are tried on other nodes in one update, which other decisions wait for: more pods than a
scheduler binds meanwhile. Others stay where they are, until they expire."""


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """Identity of a pod: `name` is namespace/name, which may be reused; a uid never is."""

    name: str
    uid: str

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]


ReservedAmounts = tuple[tuple[str, int], ...]
"""Requests of a pod: nanos by resource, in order of name. Identical pods share one value."""


def usage_of_requests(requests: Iterable[tuple[str, int]]) -> ReservedAmounts:
    """Return a pod's effective requests, in order of name."""
    return tuple((intern(resource), nanos) for resource, nanos in sorted(requests))


def device_usage(requests: Mapping[str, int]) -> ReservedAmounts:
    """Return the positive amounts of extended resources in a pod's effective requests."""
    return usage_of_requests(
        (resource, nanos) for resource, nanos in requests.items() if nanos > 0 and is_extended_resource(resource)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Devices reserved for a pod on one of the nodes that it may run on: a guess of what the scheduler will choose."""

    key: PodKey
    node: str
    nodes: NodeSet
    usage: ReservedAmounts
    expires: float


class Reservations:
    """Current reservations, in order of expiry. Not safe for use from several threads."""

    def __init__(self, hold: Callable[[str, ReservedAmounts, int], None]) -> None:
        """Take the function that adds to the usage of a node, or, with the sign -1, subtracts from it."""
        self._hold = hold
        self.room = Room()
        self._by_key: dict[PodKey, Reservation] = {}
        self._by_namespace: dict[str, dict[PodKey, None]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._by_key.values())

    def __contains__(self, key: PodKey) -> bool:
        return key in self._by_key

    def get(self, key: PodKey) -> Reservation | None:
        return self._by_key.get(key)

    def reserve(self, key: PodKey, demand: ReservedAmounts, nodes: NodeSet, expires: float) -> bool:
        """Reserve devices on the tightest node of a set. Return False if there is none."""
        node = self.room.tightest(demand, nodes)
        if node is None:
            return False
        self._keep(Reservation(key=key, node=node, nodes=nodes, usage=demand, expires=expires))
        return True

    def rename(self, key: PodKey, to: PodKey, expires: float) -> bool:
        """Give a reservation another key of its namespace. Return False if there is none."""
        reservation = self._by_key.get(key)
        if reservation is None:
            return False
        self.drop(key)
        self._keep(replace(reservation, key=to, expires=expires))
        return True

    def _keep(self, reservation: Reservation) -> None:
        """Add a reservation; drop the oldest beyond the maximum."""
        key = reservation.key
        self._hold(reservation.node, reservation.usage, 1)
        self._by_key[key] = reservation
        others = self._by_namespace.setdefault(key.namespace, {})
        others[key] = None
        if len(others) > MAX_PER_NAMESPACE:
            self.drop(next(iter(others)))
        elif len(self._by_key) > MAX_RESERVATIONS:
            self.drop(next(iter(self._by_key)))

    def relocate(self, names: Iterable[str], current: Callable[[str], Node | None]) -> None:
        """Move reservations off nodes that hold more than they have: unexpected pods were bound to them.

        `names`: the names of changed nodes. `current` returns a node with all that is held, and updates `room`.
        """
        holding = {each.node for each in self._by_key.values()}
        lacking = {name for name in holding.intersection(names) if _lacking(current(name))}
        candidates = (each for each in [*self._by_key.values()] if each.node in lacking)
        for each in islice(candidates, MAX_RELOCATIONS):
            if not _lacking(current(each.node)).isdisjoint(resource for resource, _ in each.usage):
                target = self.room.tightest(each.usage, each.nodes)
                if target is not None:
                    self._hold(each.node, each.usage, -1)
                    self._hold(target, each.usage, 1)
                    self._by_key[each.key] = replace(each, node=target)

    def drop(self, key: PodKey) -> None:
        """Remove the reservation of a pod, if there is one."""
        reservation = self._by_key.pop(key, None)
        if reservation is not None:
            others = self._by_namespace[key.namespace]
            del others[key]
            if not others:
                del self._by_namespace[key.namespace]
            self._hold(reservation.node, reservation.usage, -1)

    def expire(self, now: float) -> None:
        """Remove expired reservations."""
        ended = takewhile(lambda reservation: reservation.expires <= now, self._by_key.values())
        for key in [reservation.key for reservation in ended]:
            self.drop(key)


def _lacking(node: Node | None) -> Set[str]:
    """Return the resources of which a node holds more than it has."""
    return {name for name in node.used if node.available(name).nanos < 0} if node is not None else set()


Vector = tuple[tuple[str, int], ...]
"""Free nanos of each extended resource of a node, in order of name."""


class Room:
    """Index of nodes by free extended resources, to find one for a pod without visiting all of them.

    The sets of nodes are sets of the view's index, in which a node keeps its number.
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[Vector, NodeSet]] = {}
        self._names: dict[NodeSet, str] = {}
        self._nodes: dict[Vector, NodeSet] = {}
        """The nodes by what they have free."""
        self._free: dict[Vector, Mapping[str, int]] = {}

    def update(self, name: str, node: Node | None, cluster: Cluster) -> None:
        """Add, replace or, with None, remove a node of a cluster."""
        vector, number = self._places.pop(name, ((), 0))
        if number:
            self._nodes[vector] ^= number
            if not self._nodes[vector]:
                del self._nodes[vector], self._free[vector]
        if node is not None and node.ready and not node.unschedulable:
            number = node_index_of(cluster).by_name.values[name]
            vector = tuple(
                (resource, node.available(resource).nanos)
                for resource in sorted(node.allocatable)
                if is_extended_resource(resource)
            )
            self._places[name] = vector, number
            self._names[number] = name
            self._nodes[vector] = self._nodes.get(vector, 0) | number
            self._free.setdefault(vector, dict(vector))

    def tightest(self, demand: ReservedAmounts, nodes: NodeSet) -> str | None:
        """Return the node of a set with the least left after `demand`, or None; of equal nodes, the first."""
        fitting = [
            (left, vector) for vector, free in self._free.items() if (left := _amount_left(free, demand)) is not None
        ]
        for _, vector in sorted(fitting):
            if candidates := self._nodes[vector] & nodes:
                return self._names[candidates & -candidates]
        return None


def _amount_left(free: Mapping[str, int], demand: ReservedAmounts) -> int | None:
    """Return the sum of the demanded resources left, or None if one is insufficient."""
    left = 0
    for resource, amount in demand:
        remainder = free.get(resource, 0) - amount
        if remainder < 0:
            return None
        left += remainder
    return left
