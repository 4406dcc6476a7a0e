"""The webhook configurations beside the rules in force: does the API server send what the rules are about?

They are read at the start, after each change of rules, and now and then, as somebody may change them; in a thread of
its own, so that nothing waits for it. What differs is logged once, and is in the state for metrics and `GET /rules`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from rules_engine.evaluation import RuleSet
from rules_engine.webhooks.configuration import Calls, Endpoint, derive
from rules_engine.webhooks.drift import drift, fix_command
from server.cluster.backoff import Backoff
from server.cluster.connection import MENDED_BY_NEW_CREDENTIALS, ApiError, Cause, Connection, api_path
from server.jitter import jittered, random
from server.periodic_task import PeriodicTask
from server.state import Compared, Served, State

LOOK_SECONDS = 60.0
"""Between two looks that nothing asked for, give or take a fifth."""

SETTLE_SECONDS = 150.0
"""Helm changes configurations and rules together, and the rules reach a running pod later: after the kubelet's period
(syncFrequency, 1 min) and that of its cache of ConfigMaps. A difference that appears between two changes of rules is
logged when it has lasted for so long."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Memory:
    """Of one configuration: differences and since when they are there, those that were logged, why it is not read."""

    since: dict[str, float] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    failing: Cause | None = None


class Comparing:
    """Keeps `state.webhooks` up to date with the configurations of a name, and logs what does not fit."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        state: State,
        *,
        clock: Callable[[], float] = monotonic,
        random: Callable[[], float] = random,
    ) -> None:
        self._connection = connection
        self._name = name
        self._state = state
        self._clock = clock
        self._random = random
        self._backoff = Backoff(clock, random)
        self._derived: tuple[RuleSet, tuple[Calls, Calls]] | None = None
        self._memory = {endpoint: _Memory() for endpoint in Endpoint}
        self._prompted = True
        self._task = PeriodicTask(
            self.look,
            name="comparing",
            doing="the webhook configurations were compared with the rules",
            retry_seconds=LOOK_SECONDS,
        )
        state.webhooks = {}

    def start(self) -> None:
        self._task.start()

    def stop(self) -> None:
        self._task.stop()

    def look_soon(self) -> None:
        """Other rules are in force; does not wait."""
        self._prompted = True
        self._task.wake()

    def look(self) -> float:
        """Read and compare both; how long to wait for the next look."""
        prompted, self._prompted = self._prompted, False
        served = self._state.served
        if served is None:
            return LOOK_SECONDS
        failed: dict[Endpoint, ApiError] = {}
        for calls in self._calls(served.rule_set):
            try:
                configuration = self._read(calls.endpoint)
            except ApiError as error:
                failed[calls.endpoint] = error
            else:
                self._compare(calls, configuration, served, prompted=prompted)
        if failed:
            # What is not known yet is news when it comes.
            self._prompted = self._prompted or prompted
            return self._missed(failed, served)
        return jittered(LOOK_SECONDS, self._random)

    def _calls(self, rule_set: RuleSet) -> tuple[Calls, Calls]:
        """What the rules need; worked out once for each set."""
        if self._derived is None or self._derived[0] is not rule_set:
            self._derived = rule_set, derive(rule_set)
        return self._derived[1]

    def _read(self, endpoint: Endpoint) -> dict[str, Any] | None:
        """A configuration; None where there is none. Raises ApiError."""
        path = api_path(f"{endpoint.kind.lower()}s", group="admissionregistration.k8s.io", name=self._name)
        try:
            return self._connection.object(path)
        except ApiError as error:
            if error.cause is Cause.MISSING:
                return None
            raise

    def _compare(
        self, calls: Calls, configuration: Mapping[str, Any] | None, served: Served, *, prompted: bool
    ) -> None:
        found = drift(calls, self._name, configuration)
        mend = fix_command(self._name, configuration) if found else None
        compared = Compared(
            configuration=_called(calls.endpoint, self._name),
            at=datetime.now(UTC),
            generation=served.generation,
            differences=found,
            fix_command=mend,
        )
        self._show(calls.endpoint, compared)
        memory, now = self._memory[calls.endpoint], self._clock()
        was_told = memory.told
        memory.failing = None
        memory.since = {text: memory.since.get(text, now) for text in found}
        memory.told &= set(found)
        members = {"endpoint": calls.endpoint.path, "generation": served.generation}
        for text in found:
            if text not in memory.told and (prompted or now - memory.since[text] >= SETTLE_SECONDS):
                _log.warning("%s; what mends it: %s", text, mend, extra={"members": members})
                memory.told |= {text}
        if was_told and not found:
            _log.info("%s fits the rules again", compared.configuration, extra={"members": members})

    def _missed(self, failed: Mapping[Endpoint, ApiError], served: Served) -> float:
        """Note what could not be read, and log what is new of it; how long to wait."""
        news: dict[Cause, list[Endpoint]] = {}
        for endpoint, error in failed.items():
            self._show(endpoint, replace(self._known(endpoint, served), problem=str(error)))
            if self._memory[endpoint].failing is not error.cause:
                self._memory[endpoint].failing = error.cause
                news.setdefault(error.cause, []).append(endpoint)
        for cause, endpoints in news.items():
            _log.warning(
                "%s cannot be compared with the rules: %s%s",
                " and ".join(_called(endpoint, self._name) for endpoint in endpoints),
                failed[endpoints[0]],
                self._advice(cause, endpoints),
            )
        if any(error.cause in MENDED_BY_NEW_CREDENTIALS for error in failed.values()):
            self._connection.renew()
        return self._backoff.seconds(max(error.retry_after_seconds or 0.0 for error in failed.values()))

    def _known(self, endpoint: Endpoint, served: Served) -> Compared:
        """What was found of the same rules before, which is the best that is known."""
        before = (self._state.webhooks or {}).get(endpoint.name.lower())
        if before is not None and before.generation == served.generation:
            return before
        return Compared(configuration=_called(endpoint, self._name), generation=served.generation)

    def _advice(self, cause: Cause, endpoints: Iterable[Endpoint]) -> str:
        if cause is not Cause.FORBIDDEN:
            return ""
        resources = " and ".join(f"{endpoint.kind.lower()}s" for endpoint in endpoints)
        return f"; it needs the right to get {resources} named {self._name}"

    def _show(self, endpoint: Endpoint, compared: Compared) -> None:
        self._state.webhooks = {**(self._state.webhooks or {}), endpoint.name.lower(): compared}


def _called(endpoint: Endpoint, name: str) -> str:
    return f"{endpoint.kind} {name}"
