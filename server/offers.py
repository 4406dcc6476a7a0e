"""The GPUOffers of exported rules, kept current: each replica writes what its own rules and view of the nodes give.

With equal rules and nodes, the writes are equal and change nothing, so replicas need no coordination.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic

import orjson

from rules_engine.exports.offers import build_offers
from rules_engine.exports.policies import NativeObjects
from rules_engine.exports.settings import Settings
from rules_engine.model.json.lenient import as_string_map
from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.model.kubernetes.native_objects import GROUP, OFFERS_RESOURCE
from rules_engine.server.cluster.connection import RENEWAL_CAUSES, ApiError, Cause, Connection, api_path
from rules_engine.server.state import OffersStatus, ServedRules, ServerState
from rules_engine.server.timing import MAX_RETRY_AFTER_SECONDS, PeriodicTask

PERIOD_SECONDS = 0.5
"""Interval in which changes of rules and nodes are noticed, and so the least time between two writes."""

RESTORE_SECONDS = 5.0
"""Interval in which unchanged offers are applied again, in case somebody deleted or edited them."""

CALL_SECONDS = 5.0

_QUERY = {"fieldManager": "gpu-rules", "force": "true"}

_log = logging.getLogger(__name__)


class OffersWriter(PeriodicTask):
    """Keeps the GPUOffers of a name, and `state.offers`, current."""

    def __init__(
        self, connection: Connection, name: str, state: ServerState, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._connection = connection
        self._name = name
        self._path = api_path(OFFERS_RESOURCE, group=GROUP, name=name)
        self._state = state
        self._clock = clock
        self._seen: tuple[ServedRules | None, Cluster | None] = None, None
        self._body = b""
        self._restore_at = 0.0
        self._status = state.offers = OffersStatus(name=name, at=datetime.now(UTC))
        super().__init__(self.write, name="offers", doing="offers were written", retry_seconds=RESTORE_SECONDS)

    def write(self) -> float:
        """Apply the offers if they changed, or to restore them; return the seconds to wait before the next call."""
        served, cluster, now = self._state.served, self._state.cluster, self._clock()
        is_due, is_same = now >= self._restore_at, served is self._seen[0] and cluster is self._seen[1]
        # With an old view, the last offers stand: another replica may know the nodes.
        if cluster.freshness is not Freshness.SYNCED or (is_same and not is_due):
            return PERIOD_SECONDS
        self._seen = served, cluster
        objects = NativeObjects(served.native, served.digest, Settings(name=self._name))
        spec = build_offers(served.native, cluster)
        body = orjson.dumps(objects.offers(spec))
        if body == self._body and not is_due:
            return PERIOD_SECONDS
        try:
            if objects.reads_offers:
                self._connection.send("PATCH", self._path, "application/apply-patch+yaml", body, _QUERY, CALL_SECONDS)
        except ApiError as error:
            return self._report(error)
        self._body, self._restore_at = body, now + RESTORE_SECONDS
        self._publish(OffersStatus(name=self._name, at=datetime.now(UTC), omitted=as_string_map(spec.get("omitted"))))
        return PERIOD_SECONDS

    def _report(self, error: ApiError) -> float:
        self._restore_at = 0.0
        hint = ": apply the output of gpu-rules native, which defines them" if error.cause is Cause.MISSING else ""
        self._publish(replace(self._status, problem=f"GPUOffers {self._name} cannot be written: {error}{hint}"))
        if error.cause in RENEWAL_CAUSES:
            self._connection.renew()
        return max(RESTORE_SECONDS, min(error.retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS))

    def _publish(self, status: OffersStatus) -> None:
        if status.problem != self._status.problem:
            level = logging.WARNING if status.problem else logging.INFO
            _log.log(level, "%s", status.problem or f"GPUOffers {self._name} can be written again")
        self._status = self._state.offers = status
