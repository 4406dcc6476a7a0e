"""Signals of the server process."""

import logging
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Sequence
from time import monotonic

from rules_engine.server.rules.folder_watch import Watcher

_log = logging.getLogger(__name__)

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_on_signals() -> None:
    """Let SIGINT and SIGTERM end the process, before anything is served; SIGHUP is ignored.

    As process 1 of a container, SIGTERM would otherwise do nothing.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def ignore_signals() -> None:
    """Ignore all three signals: the process is already stopping."""
    for number in _NUMBERS:
        signal.signal(number, signal.SIG_IGN)


class Signals:
    """Queue of SIGINT and SIGTERM, in order of arrival; SIGHUP makes the watchers check their files.

    Signals arrive through a pipe that Python fills. Otherwise a signal just before the main thread waits, or one that
    the system delivers to another thread, would go unnoticed until the next one.
    """

    def __init__(self, on_hangup: Sequence[Watcher]) -> None:
        self._on_hangup = on_hangup
        self._pending: deque[int] = deque()
        self._readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in _NUMBERS:
            signal.signal(number, lambda *_: None)  # the signal is read from the pipe

    def wait(self, seconds: float | None) -> int | None:
        """Wait for the next signal; return None if none arrives in time."""
        end = None if seconds is None else monotonic() + seconds
        poll = select.poll()
        poll.register(self._readable, select.POLLIN)
        while True:
            while self._pending:
                number = self._pending.popleft()
                if number != signal.SIGHUP:
                    return number
                names = ", ".join(watcher.name for watcher in self._on_hangup)
                _log.info("SIGHUP: %s", f"checking for changes of {names}" if names else "no files are watched")
                for watcher in self._on_hangup:
                    watcher.check()
            left = None if end is None else max(end - monotonic(), 0.0) * 1000
            if not poll.poll(left):
                return None
            self._pending.extend(os.read(self._readable, 64))
