"""Exponential backoff after failures."""

from collections.abc import Callable

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
