"""A thread that does the same thing again and again until it is stopped."""

import logging
from collections.abc import Callable
from threading import Event, Thread

_log = logging.getLogger(__name__)


class PeriodicTask:
    """Calls `step` in a daemon thread; `step` returns how many seconds to wait for the next call.

    An exception of `step` is our bug: it is logged as "unexpected error while `doing`", and the next call follows
    `retry_seconds` later.
    """

    def __init__(self, step: Callable[[], float], *, name: str, doing: str, retry_seconds: float) -> None:
        self._step = step
        self._name = name
        self._doing = doing
        self._retry_seconds = retry_seconds
        self._wake = Event()
        self._stopping = False

    def start(self, first_seconds: float = 0.0) -> None:
        """Make the first call after so many seconds."""
        Thread(target=self._run, args=(first_seconds,), name=self._name, daemon=True).start()

    def wake(self) -> None:
        """Make the next call now, or once the one under way has ended; does not wait."""
        self._wake.set()

    def stop(self) -> None:
        """Make no further call; does not wait for one under way, since the process ends."""
        self._stopping = True
        self._wake.set()

    def _run(self, seconds: float) -> None:
        while True:
            self._wake.wait(seconds)
            # Cleared before the step: what wakes the task during it leads to another one.
            self._wake.clear()
            if self._stopping:
                return
            try:
                seconds = self._step()
            except Exception:
                _log.exception("unexpected error while %s", self._doing)
                seconds = self._retry_seconds
