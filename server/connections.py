"""Connections whose client does not send the rest of a request, found by what the kernel tells of them, and cut.

granian has no bound on the time of a body, does not say which connection a request came on, and a thread that waits
for a body cannot be told to stop. So when a thread has waited too long, the connections that something came in on
after the last answer are told apart from idle ones by TCP_INFO. Their reading side is closed: the thread goes on with
what there is of the body, and a client that still listens gets an answer.
"""

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic

SWEEP_SECONDS = 1.0
"""Between two looks. As long as no request is waited for, a look costs nothing."""

MEANWHILE_SECONDS = 0.05
"""What came on a connection this long after a request began is more of it, as far as can be told."""

CLOCK_SECONDS = 0.01
"""What the kernel's times cannot tell apart: two ticks of 250 a second, and a little."""

_INFO_BYTES = 208
"""Of linux/tcp.h, struct tcp_info: the state at 0, last_data_sent at 44, last_data_recv at 52, bytes_sent at 200."""

_ESTABLISHED, _CLOSE_WAIT = 1, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection as the kernel sees it; `inode` tells it from every other, `sent` counts bytes."""

    inode: int
    socket: socket.socket
    sent: int
    sent_milliseconds_ago: int
    received_milliseconds_ago: int


class Sweeper:
    """Cuts connections to a port whose request is not there `limit_seconds` after it began.

    `waiting` tells of each thread that waits for a body when its request began.
    """

    def __init__(self, port: int, limit_seconds: float, waiting: Callable[[], Sequence[float]]) -> None:
        self._port = port
        self._limit_seconds = limit_seconds
        self._waiting = waiting
        self._suspects: dict[int, tuple[int, float]] = {}
        self._stopping = Event()

    def start(self) -> None:
        Thread(target=self._run, name="connections", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def sweep(self, now: float) -> int:
        """Look once; how many connections were cut. `now` is of the clock that `waiting` tells."""
        waiting = [now - begun for begun in self._waiting()]
        if max(waiting, default=0.0) < SWEEP_SECONDS:
            self._suspects = {}
            return 0
        suspects: dict[int, tuple[int, float]] = {}
        late: list[_Late] = []
        for connection in connections(self._port):
            if connection.received_milliseconds_ago > connection.sent_milliseconds_ago:
                continue  # what came was answered
            sent, since = self._suspects.get(connection.inode, (-1, now))
            if sent != connection.sent:
                since = now
            suspects[connection.inode] = connection.sent, since
            if now - since >= self._limit_seconds:
                received = connection.received_milliseconds_ago
                unclear = received == connection.sent_milliseconds_ago
                late.append(
                    _Late(
                        inode=connection.inode,
                        sent=connection.sent,
                        since=since,
                        received_seconds_ago=received / 1000,
                        unclear=unclear,
                    )
                )
        self._suspects = suspects
        overdue = [seconds for seconds in waiting if seconds >= self._limit_seconds]
        chosen = _chosen(late, overdue)
        return _cut(self._port, chosen, socket.SHUT_RD) if chosen else 0

    def _run(self) -> None:
        while not self._stopping.wait(SWEEP_SECONDS):
            self.sweep(monotonic())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Late:
    """A connection that may be waited for; `unclear`: something was sent and something came in the same tick."""

    inode: int
    sent: int
    since: float
    received_seconds_ago: float
    unclear: bool


def _chosen(late: Sequence[_Late], overdue: Sequence[float]) -> set[int]:
    """One connection for each thread to be freed: that on which something came when its request began, or since.

    Others may look the same. A whole request may wait for a thread; to close its reading side takes nothing from it.
    And where the kernel's clock is too coarse to tell what came after what, an idle connection seems to wait for an
    answer: such come last, and of them first the one that was sent less, since it had no answer yet.
    """
    left = list(late)
    chosen = set()
    for seconds in sorted(overdue, reverse=True):
        if not left:
            break
        best = min(
            left,
            key=lambda one: (_distance(one.received_seconds_ago, seconds), one.unclear, one.sent, one.since),
        )
        left.remove(best)
        chosen.add(best.inode)
    return chosen


def _distance(received_seconds_ago: float, begun_seconds_ago: float) -> float:
    """How far what came last is from when a request began; what came later belongs to it as likely as not."""
    later = begun_seconds_ago - received_seconds_ago
    distance = -later if later < 0 else min(later, MEANWHILE_SECONDS)
    return distance if distance > CLOCK_SECONDS else 0.0


def cut_all(port: int) -> int:
    """Cut every connection to a port; how many there were."""
    return _cut(port, None, socket.SHUT_RDWR)


def connections(port: int) -> Iterator[Connection]:
    """Each connection of this process to a port of its own; its socket is closed when the next one is asked for."""
    for path in Path("/proc/self/fd").iterdir():
        try:
            # A duplicate stays what it is while granian closes its own.
            duplicate = os.dup(int(path.name))
        except OSError:
            continue
        status = os.fstat(duplicate)
        if not stat.S_ISSOCK(status.st_mode):
            os.close(duplicate)
            continue
        with closing(socket.socket(fileno=duplicate)) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and (seen := _seen(found, status.st_ino, port)):
                yield seen


def _seen(found: socket.socket, inode: int, port: int) -> Connection | None:
    try:
        if found.getsockname()[1] != port:
            return None
        info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return None  # it ended while we looked
    if len(info) < _INFO_BYTES or info[0] not in (_ESTABLISHED, _CLOSE_WAIT):
        return None
    return Connection(
        inode=inode,
        socket=found,
        sent=int.from_bytes(info[200:208], sys.byteorder),
        sent_milliseconds_ago=int.from_bytes(info[44:48], sys.byteorder),
        received_milliseconds_ago=int.from_bytes(info[52:56], sys.byteorder),
    )


def _cut(port: int, inodes: set[int] | None, how: int) -> int:
    count = 0
    for connection in connections(port):
        if inodes is None or connection.inode in inodes:
            with suppress(OSError):
                connection.socket.shutdown(how)
            count += 1
    return count
