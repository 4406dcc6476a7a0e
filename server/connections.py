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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from threading import Event, Thread
from time import monotonic

SWEEP_SECONDS = 1.0
"""Between two looks. As long as no request is waited for, a look costs nothing."""

START_SECONDS = 2.0
"""A thread takes a request up this long after it came, on a machine that has too much to do."""

CLOCK_SECONDS = 0.01
"""What the kernel's times cannot tell apart: two ticks of 250 a second, and a little."""

LOOKS = 5
"""At one connection."""

ANSWER_BYTES = 64
"""Fewer than any answer has."""

HANDSHAKE_BYTES = 16 * 1024
"""More than a server sends in any handshake. What it sends last of one may be later than the request, which the client
need not hold back: where no more than this was sent, that something was sent does not say that it was an answer."""

_INFO_BYTES = 208
"""Of linux/tcp.h, struct tcp_info: the state at 0, last_data_sent at 44, last_data_recv at 52, bytes_sent at 200."""

_ESTABLISHED, _CLOSE_WAIT = 1, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection as the kernel sees it; `inode` tells it from every other, `sent` counts bytes.

    `seen` is when it was looked at (time.monotonic).
    """

    inode: int
    socket: socket.socket
    sent: int
    sent_milliseconds_ago: int
    received_milliseconds_ago: int
    seen: float


class Sweeper:
    """Cuts connections to a port whose request is not there `limit_seconds` after it began.

    `waiting` tells of each thread that waits for a body when its request began.
    """

    def __init__(self, port: int, limit_seconds: float, waiting: Callable[[], Sequence[float]]) -> None:
        self._port = port
        self._limit_seconds = limit_seconds
        self._waiting = waiting
        self._suspects: dict[int, _Suspect] = {}
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
        suspects: dict[int, _Suspect] = {}
        seen = list(connections(self._port))
        handshake = min((connection.sent for connection in seen if connection.sent), default=0)
        for connection in seen:
            before = connection.received_milliseconds_ago - connection.sent_milliseconds_ago
            if before > 0 and connection.sent > HANDSHAKE_BYTES:
                continue  # what came was answered
            known = self._suspects.get(connection.inode)
            if known is not None and known.sent == connection.sent:
                suspects[connection.inode] = known
                continue
            suspects[connection.inode] = _Suspect(
                sent=connection.sent,
                since=now,
                came=connection.seen - connection.received_milliseconds_ago / 1000,
                doubt=_doubt(before, answered=connection.sent > handshake + ANSWER_BYTES),
            )
        self._suspects = suspects
        late = {inode: one for inode, one in suspects.items() if now - one.since >= self._limit_seconds}
        overdue = [now - seconds for seconds in waiting if seconds >= self._limit_seconds]
        chosen = _chosen(late, overdue)
        return _cut(self._port, chosen, socket.SHUT_RD) if chosen else 0

    def _run(self) -> None:
        while not self._stopping.wait(SWEEP_SECONDS):
            self.sweep(monotonic())


class _Doubt(IntEnum):
    """Whether a connection was answered."""

    NONE = 0
    """Something came after what was sent last, or nothing but a handshake was sent."""
    SMALL = 1
    """Within one tick of the kernel's clock."""
    GREAT = 2
    """Something was sent later, an answer or the end of the handshake."""


def _doubt(milliseconds_before: int, *, answered: bool) -> _Doubt:
    """By how long before what was sent last something came, and whether more than a handshake seems to be sent."""
    if milliseconds_before < 0 or not answered:
        return _Doubt.NONE
    return _Doubt.GREAT if milliseconds_before else _Doubt.SMALL


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspect:
    """A connection that may be waited for, as it was when it first looked so: at `since`.

    `sent` counts bytes; something came last at `came`.
    """

    sent: int
    since: float
    came: float
    doubt: _Doubt


def _chosen(late: Mapping[int, _Suspect], overdue: Sequence[float]) -> set[int]:
    """One connection for each thread to be freed, by when their requests began.

    Others may look the same. A whole request may wait for a thread: requests are taken up in the order in which they
    come, so it came later than those. An idle connection may look the same too, where the kernel's clock is too coarse
    to tell what came after what, or where it may have been only the handshake that was sent: such come last, and of
    them first the one on which less was sent.
    """
    left = dict(late)
    chosen = set()
    for begun in sorted(overdue):
        if not left:
            break
        best = min(left, key=lambda inode: _unlikeliness(left[inode], begun))
        del left[best]
        chosen.add(best)
    return chosen


def _unlikeliness(suspect: _Suspect, begun: float) -> tuple[float, int, int, float]:
    """How unlikely it is that a request which was taken up at `begun` came on this connection."""
    early, late = begun - suspect.came - START_SECONDS, suspect.came - begun - CLOCK_SECONDS
    sent = suspect.sent if suspect.doubt is _Doubt.GREAT else 0
    return max(early, late, 0.0), suspect.doubt, sent, suspect.came


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
        # Again where this thread had to wait in between: else it would not be known when that was.
        for _ in range(LOOKS):
            before = monotonic()
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            if monotonic() - before < CLOCK_SECONDS / 2:
                break
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
        seen=before,
    )


def _cut(port: int, inodes: set[int] | None, how: int) -> int:
    count = 0
    for connection in connections(port):
        if inodes is None or connection.inode in inodes:
            with suppress(OSError):
                connection.socket.shutdown(how)
            count += 1
    return count
