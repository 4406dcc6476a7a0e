"""Times: periodic tasks, intervals that differ between replicas, delays after failures, timestamps."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from random import SystemRandom
from threading import Event, Thread
from typing import Literal

_log = logging.getLogger(__name__)


class PeriodicTask:
    """Calls `step` in a daemon thread; `step` returns how many seconds to wait for the next call.

    An exception of `step` is our bug: it is logged as "unexpected error while `doing`", and the next call follows
    `retry_seconds` later.
    """

    def __init__(self, step: Callable[[], float], *, name: str, doing: str, retry_seconds: float) -> None:
        self._task = step
        self._thread_name = name
        self._doing = doing
        self._failed_seconds = retry_seconds
        self._wake = Event()
        self._stopping = False

    def start(self, first_seconds: float = 0.0) -> None:
        """Make the first call after `first_seconds`."""
        Thread(target=self._run, args=(first_seconds,), name=self._thread_name, daemon=True).start()

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
            # Cleared before the step: a wake during the step leads to another one.
            self._wake.clear()
            if self._stopping:
                return
            try:
                seconds = self._task()
            except Exception:
                _log.exception("unexpected error while %s", self._doing)
                seconds = self._failed_seconds


random = SystemRandom().random
"""Generator of numbers from 0 to 1. Threads must not use the global one, whose sequence belongs to the code that seeds
it, such as Hypothesis."""


def add_jitter(seconds: float, random: Callable[[], float] = random) -> float:
    """Return a duration, give or take a fifth."""
    return seconds * (0.8 + 0.4 * random())


def rfc3339(at: datetime, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Return a point in time, such as 2026-11-21T06:29:54Z."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec)}Z"


FIRST_SECONDS = 0.5
"""Delay after one failure: a restarted API server is back in seconds, and a dropped connection should cost little."""

LONGEST_SECONDS = 30.0
"""Maximum delay: half the default maximum staleness, so that a view is fresh soon after the API server is back."""

MAX_RETRY_AFTER_SECONDS = 30.0
"""Maximum Retry-After that is honored: API servers send 1 s."""

UNREACHABLE_SECONDS = 1.0
"""Delay while nothing accepts connections: an attempt costs nobody anything, and the API server is seen soon after it
starts."""

FORGET_SECONDS = 120.0
"""Time without a failure after which the delay starts over. A shorter one would let alternating successes and failures
retry at full rate."""

_DOUBLINGS = 10


class Backoff:
    """Delay that doubles with each failure, up to a maximum, less jitter, so that replicas do not retry in step."""

    def __init__(self, clock: Callable[[], float], random: Callable[[], float]) -> None:
        self._clock = clock
        self._random = random
        self._failures = 0
        self._last = 0.0

    def seconds(self, retry_after: float | None = None) -> float:
        """Return the delay after one more failure; `retry_after` is the Retry-After of the server, a minimum."""
        now = self._clock()
        if now - self._last > FORGET_SECONDS:
            self._failures = 0
        self._last = now
        wait = min(LONGEST_SECONDS, FIRST_SECONDS * float(2 ** min(self._failures, _DOUBLINGS)))
        self._failures += 1
        wait *= 1 - self._random() / 2
        return max(wait, min(retry_after, MAX_RETRY_AFTER_SECONDS)) if retry_after is not None else wait

    def unreachable_seconds(self) -> float:
        """Return the delay after a connection that was not accepted; failures before it no longer count."""
        self._failures = 0
        return UNREACHABLE_SECONDS * (1 - self._random() / 2)
