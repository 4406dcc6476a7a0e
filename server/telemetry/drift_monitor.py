"""Comparison of the webhook configurations with the active rules: does the API server send every pod that they need?

A thread of its own reads the configurations at the start, after each change of rules, and once a minute, since anybody
may change them. Each difference is logged once, and stands in the state for metrics and `GET /rules`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from rules_engine.exports.configuration import Calls, derive_calls
from rules_engine.exports.drift import find_drift, find_object_drift, fix_command, foreign_conditions, is_native
from rules_engine.exports.policies import NativeObjects
from rules_engine.exports.settings import Settings
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.rules.admission import Endpoint
from rules_engine.server.cluster.connection import RENEWAL_CAUSES, ApiError, Cause, Connection, api_path
from rules_engine.server.state import ServedRules, ServerState, WebhookComparison
from rules_engine.server.timing import Backoff, PeriodicTask, add_jitter, random

PERIOD_SECONDS = 60.0
"""Interval between comparisons, give or take a fifth."""

SETTLE_SECONDS = 150.0
"""Time after which a difference that appears between two changes of rules is logged. Helm changes configurations and
rules together, but the rules reach a running pod later: after the period of the kubelet (syncFrequency, 1 min) and that
of its cache of ConfigMaps."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Memory:
    """Previous results for one configuration."""

    since: dict[str, float] = field(default_factory=dict)
    """Current differences, and the times at which they appeared."""
    logged: frozenset[str] = frozenset()
    """Differences that were logged."""
    failing: Cause | None = None
    """Cause of the last failure to read it; None after a success."""
    foreign: tuple[str, ...] = ()
    """Names of the operator's match conditions at the last comparison."""

    def differences_to_log(self, differences: Sequence[str], now: float, *, at_once: bool) -> Sequence[str]:
        """Remember the current differences; return the ones to log now, each once."""
        self.since = {text: self.since.get(text, now) for text in differences}
        still_logged = self.logged & set(differences)
        due = [text for text in differences if at_once or now - self.since[text] >= SETTLE_SECONDS]
        self.logged = still_logged | set(due)
        return [text for text in due if text not in still_logged]


class DriftMonitor(PeriodicTask):
    """Keeps `state.webhooks` up to date for the configurations of a name, and logs differences."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        state: ServerState,
        *,
        clock: Callable[[], float] = monotonic,
        random: Callable[[], float] = random,
    ) -> None:
        self._connection = connection
        self._name = name
        self._state = state
        self._settings = Settings(name=name, audit=state.audit, namespaces=tuple(state.namespaces))
        self._clock = clock
        self._random = random
        self._backoff = Backoff(clock, random)
        self._memory = {endpoint: _Memory() for endpoint in Endpoint}
        self._prompted = True
        super().__init__(
            self.compare,
            name="drift-monitor",
            doing="the webhook configurations were compared with the rules",
            retry_seconds=PERIOD_SECONDS,
        )
        state.webhooks = {}

    def compare_soon(self) -> None:
        """Compare now, since other rules are active; does not wait."""
        self._prompted = True
        self.wake()

    def compare(self) -> float:
        """Read and compare both configurations; return the seconds to wait before the next comparison."""
        prompted, self._prompted = self._prompted, False
        served = self._state.served
        failed: dict[Endpoint, ApiError] = {}
        audit = self._settings.audit
        for calls in derive_calls(served.rule_set, audit=audit):
            try:
                configuration = self._read(calls.endpoint.kind, self._name)
                differences: tuple[str, ...] = ()
                if is_native(configuration):
                    remaining = derive_calls(served.without_exported.rule_set, audit=audit)
                    calls = next(each for each in remaining if each.endpoint is calls.endpoint)
                    differences = self._compare_objects(served, calls.endpoint)
            except ApiError as error:
                failed[calls.endpoint] = error
            else:
                differences = (*find_drift(calls, self._name, configuration, self._settings), *differences)
                self._compare_one(calls, configuration, served, differences, prompted=prompted)
        if failed:
            # A difference found by the retry is as new as the rules.
            self._prompted = self._prompted or prompted
            return self._record_failure(failed, served)
        return add_jitter(PERIOD_SECONDS, self._random)

    def _compare_objects(self, served: ServedRules, endpoint: Endpoint) -> tuple[str, ...]:
        """Return the differences of the policies of an endpoint, and of their bindings. Raises ApiError."""
        documents = NativeObjects(served.native, served.digest, self._settings).policies()
        return tuple(
            text
            for document in documents
            if str(document["kind"]).startswith(endpoint.value)
            for text in find_object_drift(
                document, self._read(str(document["kind"]), str(as_mapping(document["metadata"])["name"]))
            )
        )

    def _read(self, kind: str, name: str) -> dict[str, Any] | None:
        """Read a configuration or a policy; return None if it does not exist. Raises ApiError."""
        plural = f"{kind.lower()}s" if not kind.endswith("Policy") else f"{kind.lower().removesuffix('y')}ies"
        path = api_path(plural, group="admissionregistration.k8s.io", name=name)
        try:
            return self._connection.object(path)
        except ApiError as error:
            if error.cause is Cause.MISSING:
                return None
            raise

    def _compare_one(
        self,
        calls: Calls,
        configuration: Mapping[str, Any] | None,
        served: ServedRules,
        differences: tuple[str, ...],
        *,
        prompted: bool,
    ) -> None:
        fix = fix_command(self._name, configuration, self._settings) if differences else None
        compared = WebhookComparison(
            configuration=_configuration_name(calls.endpoint, self._name),
            at=datetime.now(UTC),
            generation=served.generation,
            differences=differences,
            fix_command=fix,
        )
        self._publish(calls.endpoint, compared)
        self._log(compared, foreign_conditions(configuration, calls), calls.endpoint, prompted=prompted)

    def _log(
        self, compared: WebhookComparison, foreign: tuple[str, ...], endpoint: Endpoint, *, prompted: bool
    ) -> None:
        """Log new differences, foreign conditions and the end of all differences."""
        memory, members = self._memory[endpoint], {"endpoint": endpoint.path, "generation": compared.generation}
        had_logged, memory.failing = memory.logged, None
        for text in memory.differences_to_log(compared.differences or (), self._clock(), at_once=prompted):
            _log.warning("%s; fix: %s", text, compared.fix_command, extra={"members": members})
        if foreign and foreign != memory.foreign:
            text = "%s has match conditions of its own, which may keep pods away: %s"
            _log.info(text, compared.configuration, ", ".join(foreign), extra={"members": members})
        memory.foreign = foreign
        if had_logged and not compared.differences:
            _log.info("%s agrees with the rules again", compared.configuration, extra={"members": members})

    def _record_failure(self, failed: Mapping[Endpoint, ApiError], served: ServedRules) -> float:
        """Record failed reads, and log each new cause; return the seconds to wait."""
        new: dict[Cause, list[Endpoint]] = {}
        for endpoint, error in failed.items():
            self._publish(endpoint, replace(self._last_comparison(endpoint, served), problem=str(error)))
            if self._memory[endpoint].failing is not error.cause:
                self._memory[endpoint].failing = error.cause
                new.setdefault(error.cause, []).append(endpoint)
        for cause, endpoints in new.items():
            _log.warning(
                "%s cannot be compared with the rules: %s%s",
                " and ".join(_configuration_name(endpoint, self._name) for endpoint in endpoints),
                failed[endpoints[0]],
                self._advice(cause, endpoints),
            )
        if any(error.cause in RENEWAL_CAUSES for error in failed.values()):
            self._connection.renew()
        return self._backoff.seconds(max(error.retry_after_seconds or 0.0 for error in failed.values()))

    def _last_comparison(self, endpoint: Endpoint, served: ServedRules) -> WebhookComparison:
        """Return the last result for the same rules; an empty one if there is none."""
        before = (self._state.webhooks or {}).get(endpoint.name.lower())
        if before is not None and before.generation == served.generation:
            return before
        return WebhookComparison(configuration=_configuration_name(endpoint, self._name), generation=served.generation)

    def _advice(self, cause: Cause, endpoints: Iterable[Endpoint]) -> str:
        if cause is not Cause.FORBIDDEN:
            return ""
        resources = " and ".join(f"{endpoint.kind.lower()}s" for endpoint in endpoints)
        return f"; the server needs the permission to get {resources} named {self._name}"

    def _publish(self, endpoint: Endpoint, compared: WebhookComparison) -> None:
        self._state.webhooks = {**(self._state.webhooks or {}), endpoint.name.lower(): compared}


def _configuration_name(endpoint: Endpoint, name: str) -> str:
    return f"{endpoint.kind} {name}"
