"""Devices promised to pods that were admitted and are not yet seen on a node."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rules_engine.model.cluster import Node
from server.cluster.reading import PodKey, Usage, is_extended

LIFETIME_SECONDS = 10.0
"""How long a promise stands that no pod is seen for: a scheduler with room binds within a second or two; a pod that
waits longer waits for something else, and one that a quota or another webhook refused never comes. For so long it takes
devices from others."""

MAX_PER_NAMESPACE = 256
"""Promises of one namespace at once, so that none takes everything: what controllers create in LIFETIME_SECONDS
(kube-controller-manager, --kube-api-burst 30 and --kube-api-qps 20: 230). Over it, its oldest gives way, which is the
likeliest to be bound, or refused, already."""

MAX_RESERVATIONS = 10_000
"""Promises at once: more pods than any scheduler binds in LIFETIME_SECONDS. Over it, the oldest gives way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What is kept on a node for a pod; the node is our guess of where the scheduler will put it."""

    key: PodKey
    node: str
    usage: Usage
    expires: float


class Reservations:
    """The promises that stand, in the order of their end. Not safe for use from several threads."""

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
        """Take a promise in; the one that gave way for it."""
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
        """End the promise to a pod, if there is one."""
        reservation = self._by_key.pop(key, None)
        if reservation is not None:
            others = self._by_namespace[key.namespace]
            del others[key]
            if not others:
                del self._by_namespace[key.namespace]
        return reservation

    def expire(self, now: float) -> tuple[Reservation, ...]:
        """End those whose time has come."""
        ended = []
        for reservation in self._by_key.values():
            if reservation.expires > now:
                break
            ended.append(reservation)
        for reservation in ended:
            self.drop(reservation.key)
        return tuple(ended)


Vector = tuple[tuple[str, int], ...]
"""Nanos free of each extended resource of a node, by name."""


class Room:
    """Nodes by what they have free of extended resources: a node for a pod is found without looking at all of them."""

    def __init__(self) -> None:
        self._vectors: dict[str, Vector] = {}
        self._nodes: dict[Vector, dict[str, None]] = {}
        self._free: dict[Vector, Mapping[str, int]] = {}

    def update(self, name: str, node: Node | None) -> None:
        """A node as it is now; None: it is gone."""
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
        """The node that has least left once it holds all of `demand`, among those accepted; None where none can."""
        fitting = [(left, vector) for vector, free in self._free.items() if (left := _left(free, demand)) is not None]
        candidates: Iterable[str] = (name for _, vector in sorted(fitting) for name in self._nodes[vector])
        return next(filter(accepts, candidates), None)


def _left(free: Mapping[str, int], demand: Usage) -> int | None:
    """What is left of the demanded resources together; None where one of them is short: no more are looked at then."""
    left = 0
    for resource, amount in demand:
        rest = free.get(resource, 0) - amount
        if rest < 0:
            return None
        left += rest
    return left
