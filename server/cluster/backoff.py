"""How long to wait after a failure."""

from collections.abc import Callable

FIRST_SECONDS = 0.5
"""After one failure: a restarted API server is back in seconds, and one dropped connection should cost little."""

LONGEST_SECONDS = 30.0
"""After many: half the default bound on staleness, so that a view is fresh soon after the API server is back."""

LONGEST_ASKED_SECONDS = 300.0
"""The most that a Retry-After is believed."""

FORGET_SECONDS = 120.0
"""Without a failure, before the next one counts as the first again; sooner, a cycle of successes and failures of any
length would become a load of its own."""

_DOUBLINGS = 10


class Backoff:
    """Twice as long after each failure, up to a bound, less a random part: replicas must not come back all at once."""

    def __init__(self, clock: Callable[[], float], random: Callable[[], float]) -> None:
        self._clock = clock
        self._random = random
        self._failures = 0
        self._last = 0.0

    def seconds(self, asked: float | None = None) -> float:
        """The wait after one more failure; `asked` is the least that the server wants."""
        now = self._clock()
        if now - self._last > FORGET_SECONDS:
            self._failures = 0
        self._last = now
        wait = min(LONGEST_SECONDS, FIRST_SECONDS * float(2 ** min(self._failures, _DOUBLINGS)))
        self._failures += 1
        wait *= 1 - self._random() / 2
        return max(wait, min(asked, LONGEST_ASKED_SECONDS)) if asked is not None else wait
