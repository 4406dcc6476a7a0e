"""Open connections of one listener: limits, deadlines and held bytes.

Why deadlines are swept: a timer of each connection would be cancelled and set again with every request. Why bytes are
held on one account: a limit for each connection, times their number, would either exceed the memory of the server or
be too small for a large pod. Over the limit, reading pauses instead of refusing, since most senders finish soon; slow
ones are refused after STALE_SECONDS, but only if others need their room.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from enum import Enum
from heapq import nsmallest
from math import inf
from operator import attrgetter
from threading import Lock
from typing import Generic, Protocol, TypeVar

from server.http import limits
from server.http.limits import Limit

_log = logging.getLogger(__name__)


class Connection(Protocol):
    """Interface of a connection to `Connections`. Times are of the event loop's clock."""

    peer: str
    since: float
    """Time of its last response or of the first byte of the request being received, else when it was accepted."""
    answered: bool
    """True after its first response."""
    deadline: float
    held_bytes: int
    """Bytes of headers and bodies being received or waiting for a decision."""

    @property
    def under_way(self) -> bool:
        """True from the end of a request to its response."""

    @property
    def idle(self) -> bool:
        """True if no request is being received or answered; also during the handshake."""

    def overdue(self) -> None:
        """Handle an expired deadline."""

    def finish(self) -> None:
        """Close after the pending response, or at once if there is none."""

    def abort(self) -> None:
        """Close immediately."""

    def pause(self) -> None:
        """Read nothing until `resume`."""

    def resume(self) -> None: ...

    def has_hung_up(self) -> bool:
        """Return True if the client has closed the connection, which is not noticed while it is paused."""

    def make_room(self) -> None:
        """Refuse the request that is being received, if any."""


K = TypeVar("K", bound=Enum)

_HINTS = dict.fromkeys(
    (Limit.HANDSHAKE_TIME.value, "client-gave-up"),
    ": the callers' time was over, and the failurePolicy of the webhook decided; in a burst, add CPU or replicas",
)
"""The meaning of occurrences, for their log line."""


class Occurrences(Generic[K]):
    """Counters by kind, each logged at most once a minute.

    `text` is for a log line, with the kind, its count, and the peer of the last one where it is known.
    """

    def __init__(self, kinds: type[K], text: str) -> None:
        self.counts: dict[K, int] = dict.fromkeys(kinds, 0)
        self._text = text
        self._lock = Lock()
        self._logged: dict[K, tuple[float, int]] = {}
        self._peers: dict[K, str] = {}

    def count(self, kind: K, peer: str = "") -> None:
        """Increment a counter. Safe for use from several threads."""
        with self._lock:
            self.counts[kind] += 1
            self._peers[kind] = peer

    def log(self, now: float) -> None:
        """Log counters that changed since their last line."""
        for kind, count in self.counts.items():
            at, before = self._logged.get(kind, (-inf, 0))
            if count > before and now - at >= limits.LOG_SECONDS:
                self._logged[kind] = now, count
                peer, text = self._peers[kind], self._text + _HINTS.get(kind.value, "")
                _log.warning(text, kind.value, count, f", last by {peer}" if peer else "")


class Connections:
    """All connections of a listener, at most `limit` of them. Used by the thread of its event loop only."""

    def __init__(self, name: str, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self.exceeded = Occurrences(Limit, f"{name} listener: limit %s exceeded (%d in all%s)")
        self.held_bytes = 0
        self.freed_bytes = 0
        """Estimate of the memory freed since the listener last returned memory to the system."""
        self._clock = clock
        self._all: dict[Connection, None] = {}
        self._holding: dict[Connection, float] = {}
        """Time since when each holds bytes, oldest first."""
        self._paused: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._all))

    def make_room(self, peer: str) -> bool:
        """Close connections if one of `peer` would exceed the limit. Return False if none can be closed."""
        if len(self._all) >= self.limit:
            self.exceeded.count(Limit.CONNECTIONS, peer)
            return self.close_some()
        return True

    def close_some(self) -> bool:
        """Close connections of the address with the most that can be closed. Return False if there are none.

        A request that was received completely is answered. Idle connections are closed before unfinished requests, the
        oldest first. An address has no other bound: an API server opens a connection for each of its concurrent calls.
        """
        closable: defaultdict[str, list[Connection]] = defaultdict(list)
        for connection in self._all:
            if not connection.under_way:
                closable[connection.peer].append(connection)
        # Among addresses with equally many, an address that has not sent a request yet gives way.
        candidates = max(closable.values(), key=lambda group: (len(group), not group[0].answered), default=[])
        count = max(self.limit // limits.CLOSED_SHARE, 1)
        for victim in nsmallest(count, candidates, key=lambda victim: (not victim.idle, victim.since)):
            self.remove(victim)
            victim.abort()
        return bool(candidates)

    def add(self, connection: Connection) -> None:
        """Add an accepted connection."""
        self._all[connection] = None
        self.freed_bytes += limits.CONNECTION_BYTES  # of its handshake

    def remove(self, connection: Connection) -> bool:
        """Remove a connection. Return False if it was removed before."""
        known = self._all.pop(connection, ...) is None
        if known:
            self.freed_bytes += limits.CONNECTION_BYTES
        self._holding.pop(connection, None)
        self._paused.pop(connection, None)
        return known

    def hold(self, connection: Connection, size: int) -> None:
        """Count `size` more bytes that a connection holds. Over the limit, connections are paused."""
        was_over = self.held_bytes > limits.HELD_BYTES
        self.held_bytes += size
        if connection not in self._holding:
            self._holding[connection] = self._clock()
        if self.held_bytes > limits.HELD_BYTES:
            # When the limit is crossed, all large holders are paused; after that, only this one can have grown.
            for holder in (connection,) if was_over else self._holding:
                if holder.held_bytes > limits.FREE_BYTES and holder not in self._paused:
                    self.exceeded.count(Limit.HELD_BYTES, holder.peer)
                    self._paused[holder] = None
                    holder.pause()

    def release(self, connection: Connection, size: int) -> None:
        """Release all `size` bytes that a connection holds."""
        self.held_bytes -= size
        self.freed_bytes += limits.PARSED_PER_BYTE * size
        self._holding.pop(connection, None)
        if self._paused:
            if self._paused.pop(connection, ...) is None:
                connection.resume()
            self._resume()

    def _resume(self) -> None:
        """Resume as many connections as have room for one read each, the smallest holders first."""
        room = (limits.HELD_BYTES - self.held_bytes) // limits.READ_BYTES
        if not self._paused or room <= 0:
            return
        for connection in nsmallest(room, self._paused, key=attrgetter("held_bytes")):
            del self._paused[connection]
            connection.resume()

    def sweep(self) -> None:
        """Expire connections; if some are paused, refuse requests that arrive slowly."""
        now = self._clock()
        for connection in tuple(self._all):
            if connection.deadline <= now:
                connection.overdue()
        for connection in tuple(self._paused):
            if connection.has_hung_up():
                self.remove(connection)
                connection.abort()
        if self._paused:
            for connection, since in tuple(self._holding.items()):
                if since > now - limits.STALE_SECONDS or self.held_bytes <= limits.HELD_BYTES - limits.SPARE_BYTES:
                    break
                connection.make_room()
            self._resume()
        self.exceeded.log(now)
