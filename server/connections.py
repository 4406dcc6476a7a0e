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
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic

SWEEP_SECONDS = 1.0
"""Between two looks. As long as no request is waited for, a look costs nothing."""

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

    `waiting` tells since when the longest-waiting thread has waited for a body, None when none has.
    """

    def __init__(self, port: int, limit_seconds: float, waiting: Callable[[], float | None]) -> None:
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
        waiting = self._waiting()
        if waiting is None or now - waiting < SWEEP_SECONDS:
            self._suspects = {}
            return 0
        suspects: dict[int, tuple[int, float]] = {}
        late: list[tuple[bool, int]] = []
        for connection in connections(self._port):
            if connection.received_milliseconds_ago > connection.sent_milliseconds_ago:
                continue
            sent, since = self._suspects.get(connection.inode, (-1, now))
            if sent != connection.sent:
                since = now
            suspects[connection.inode] = connection.sent, since
            if now - since >= self._limit_seconds:
                tied = connection.received_milliseconds_ago == connection.sent_milliseconds_ago
                late.append((tied, connection.inode))
        self._suspects = suspects
        if now - waiting < self._limit_seconds:
            return 0
        # The clock is coarse: what came in and what went out may seem to be of one moment. Such a connection may be
        # idle, and is only cut when that of the waiting thread is not among the others.
        certain = {inode for tied, inode in late if not tied}
        return _cut(self._port, certain or {inode for _, inode in late}, socket.SHUT_RD)

    def _run(self) -> None:
        while not self._stopping.wait(SWEEP_SECONDS):
            self.sweep(monotonic())


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
