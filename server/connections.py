"""The connections and files of this process, as the system knows them: granian does not say which it has."""

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

_FILES = Path("/proc/self/fd")
_INTERNET = (socket.AF_INET, socket.AF_INET6)


_TCP_INFO_UNACKED = struct.Struct("=24xI")
"""The beginning of Linux' struct tcp_info; of a socket that listens, this member counts what `unaccepted` says."""


def unaccepted(listener: socket.socket) -> int:
    """How many connections to a listening socket wait to be accepted."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_UNACKED.size)
    count: int = _TCP_INFO_UNACKED.unpack(info)[0]
    return count


def open_files() -> int:
    """How many files this process has open, connections among them."""
    try:
        # Linux says it as the folder's size since 6.2.
        return _FILES.stat().st_size or sum(1 for _ in _FILES.iterdir())
    except OSError:
        return sys.maxsize  # so many that not even the folder can be


def cut_all(port: int) -> int:
    """Cut every connection to a port of ours; how many there were."""
    count = 0
    for connection in _connections(port):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        count += 1
    return count


def _connections(port: int) -> Iterator[socket.socket]:
    """Each of them is closed when the next one is asked for: it is a duplicate of granian's."""
    for path in _FILES.iterdir():
        try:
            # A duplicate stays what it is while granian closes its own.
            duplicate = os.dup(int(path.name))
        except OSError:
            continue
        if not stat.S_ISSOCK(os.fstat(duplicate).st_mode):
            os.close(duplicate)
            continue
        with closing(socket.socket(fileno=duplicate)) as found, suppress(OSError):
            if found.family in _INTERNET and found.getpeername() and found.getsockname()[1] == port:
                yield found
