"""Deadline of a request. Expressions fail after it, and the failurePolicy of their rule applies."""

from math import inf
from time import perf_counter, thread_time

from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.json.lenient import as_list, as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.server.http.limits import SMALL_AMOUNTS, SMALL_CONTAINERS

TIMEOUT_SHARE = 0.8
"""Share of the caller's timeout, so that the response arrives in time."""

SLICE_COST = 1_000
"""Cost units between two reads of the clock: about a millisecond of the interpreter, which is slower than the rest."""

MAX_QUERY = 64
"""Maximum length of a query that is parsed; an API server sends `timeout=10s`."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


class TakesLonger(BaseException):
    """The decision blocks the event loop for too long and must restart in a thread.

    Not an Exception, so that no error handler catches it.
    """


class Deadline:
    """Factory of budgets for one request, which expire at its deadline or raise TakesLonger to unblock the event loop.

    `arrived`: when the headers were complete (time.perf_counter). `seconds`: the timeout, unless the query names a
    shorter one. `patient_until` (time.thread_time): when to raise TakesLonger.
    """

    __slots__ = ("_end", "_patient_until", "_seconds")

    def __init__(self, arrived: float, query: str, seconds: float, patient_until: float = inf) -> None:
        if query and len(query) <= MAX_QUERY:
            timeout = _timeout_seconds(query)
            if timeout is not None and timeout * TIMEOUT_SHARE < seconds:
                seconds = timeout * TIMEOUT_SHARE
        self._seconds = seconds
        self._end = arrived + seconds
        self._patient_until = patient_until

    def is_over(self) -> bool:
        """Return True if the deadline has passed."""
        return perf_counter() > self._end

    def __call__(self, pod: Json = None) -> Budget:
        """Return a budget for a decision about a pod. Raises TakesLonger if the pod is too large for the event loop."""
        if self._patient_until < inf and _is_large(pod):
            raise TakesLonger
        return _TimedBudget(self._end, self._seconds, self._patient_until)


class _TimedBudget(Budget):
    """Budget that checks the clock before granting each slice of its limit."""

    __slots__ = ("_end", "_patient_until", "_seconds")

    def __init__(self, end: float, seconds: float, patient_until: float) -> None:
        super().__init__()
        self._end = end
        self._seconds = seconds
        self._patient_until = patient_until
        self.rewind(self.limit)

    def more(self) -> None:
        super().more()
        granted = self.left
        if perf_counter() > self._end:
            self.left, self.withheld = 0, granted
            raise CostExceeded(f"the time of {self._seconds:g} s for one request is used up")
        if thread_time() > self._patient_until:  # not the time of threads that compete with this one
            raise TakesLonger
        self.left = min(granted, SLICE_COST)
        self.withheld = granted - self.left


def _is_large(pod: Json) -> bool:
    spec = as_mapping(as_mapping(pod).get("spec"))
    containers = (*as_list(spec.get("containers")), *as_list(spec.get("initContainers")))
    if len(containers) > SMALL_CONTAINERS:
        return True
    resources = [spec.get("resources"), *(as_mapping(container).get("resources") for container in containers)]
    return sum(len(as_mapping(amounts)) for part in resources for amounts in as_mapping(part).values()) > SMALL_AMOUNTS


def _timeout_seconds(query: str) -> float | None:
    """Parse the `timeout` of an API server's call (webhook/mutating/dispatcher.go): a Go duration of one unit."""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        number = value.rstrip("ms")
        unit = _UNITS.get(value[len(number) :])
        if name == "timeout" and unit is not None and number.isascii() and number.isdigit():
            return int(number) * unit
    return None
