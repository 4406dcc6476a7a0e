"""Devices reserved for pods that were admitted and are not yet bound to a node."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rules_engine.model.cluster import Node
from server.cluster.reading import PodKey, Usage, is_extended

LIFETIME_SECONDS = 10.0
"""Lifetime of a reservation whose pod is not seen: a scheduler with free nodes binds within a second or two; a pod that
is pending for longer waits for something else, and one that a quota or another webhook denied never appears. Until then
other pods do not see these devices as free."""

MAX_PER_NAMESPACE = 256
"""Maximum reservations of one namespace, so that none takes everything: what controllers create in LIFETIME_SECONDS
(kube-controller-manager, --kube-api-burst 30 and --kube-api-qps 20: 230). Beyond it, its oldest is dropped,
as its pod is the likeliest to be bound or denied already."""

MAX_RESERVATIONS = 10_000
"""Maximum reservations: more pods than any scheduler binds in LIFETIME_SECONDS. Beyond it, the oldest is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Devices reserved on a node for a pod; the node is a guess of what the scheduler will choose."""

    key: PodKey
    node: str
    usage: Usage
    expires: float


class Reservations:
    """Current reservations, in order of expiry. Not safe for use from several threads."""

    def __init__(self) -> None:
        self._by_key: dict[PodKey, Reservation] = {}
        self._by_namespace: dict[str, dict[PodKey, None]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._by_key.values())

    def __contains__(self, key: PodKey) -> bool:
        return key in self._by_key

    def add(self, reservation: Reservation) -> Reservation | None:
        """Add a reservation; return the one dropped for it, if any."""
        key = reservation.key
        self._by_key[key] = reservation
        others = self._by_namespace.setdefault(key.namespace, {})
        others[key] = None
        if len(others) > MAX_PER_NAMESPACE:
            return self.drop(next(iter(others)))
        if len(self._by_key) > MAX_RESERVATIONS:
            return self.drop(next(iter(self._by_key)))
        return None

    def drop(self, key: PodKey) -> Reservation | None:
        """Remove and return the reservation of a pod, if there is one."""
        reservation = self._by_key.pop(key, None)
        if reservation is not None:
            others = self._by_namespace[key.namespace]
            del others[key]
            if not others:
                del self._by_namespace[key.namespace]
        return reservation

    def expire(self, now: float) -> tuple[Reservation, ...]:
        """Remove and return expired reservations."""
        ended = []
        for reservation in self._by_key.values():
            if reservation.expires > now:
                break
            ended.append(reservation)
        for reservation in ended:
            self.drop(reservation.key)
        return tuple(ended)


Vector = tuple[tuple[str, int], ...]
"""Free nanos of each extended resource of a node, in order of name."""


class Room:
    """Index of nodes by free extended resources, to find a node for a pod without visiting all of them."""

    def __init__(self) -> None:
        self._vectors: dict[str, Vector] = {}
        self._nodes: dict[Vector, dict[str, None]] = {}
        self._free: dict[Vector, Mapping[str, int]] = {}

    def update(self, name: str, node: Node | None) -> None:
        """Add, replace or, with None, remove a node."""
        old = self._vectors.pop(name, None)
        if old is not None:
            names = self._nodes[old]
            del names[name]
            if not names:
                del self._nodes[old], self._free[old]
        if node is not None:
            vector = tuple(
                (resource, node.available(resource).nanos)
                for resource in sorted(node.allocatable)
                if is_extended(resource)
            )
            self._vectors[name] = vector
            if vector not in self._nodes:
                self._nodes[vector], self._free[vector] = {}, dict(vector)
            self._nodes[vector][name] = None

    def tightest(self, demand: Usage, accepts: Callable[[str], bool]) -> str | None:
        """Return the accepted node with the least left after `demand`, or None if it fits on none."""
        fitting = [(left, vector) for vector, free in self._free.items() if (left := _left(free, demand)) is not None]
        candidates: Iterable[str] = (name for _, vector in sorted(fitting) for name in self._nodes[vector])
        return next(filter(accepts, candidates), None)


def _left(free: Mapping[str, int], demand: Usage) -> int | None:
    """Return the sum of what is left of the demanded resources, or None if one is insufficient."""
    left = 0
    for resource, amount in demand:
        rest = free.get(resource, 0) - amount
        if rest < 0:
            return None
        left += rest
    return left
