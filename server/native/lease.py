"""A Lease (coordination.k8s.io), by which one of the replicas writes.

As in client-go (tools/leaderelection), the times in the Lease are for people. A replica takes the Lease over when it
has seen no change of it for LEASE_SECONDS of its own monotonic clock, so that clocks need not agree and may jump.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

import orjson

from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from server.cluster.connection import ApiError, Cause, Connection, api_path
from server.native.objects import FIELD_MANAGER, SECONDS, parse

LEASE_SECONDS = 13.0
"""Time without a renewal after which another replica takes over."""

HOLD_SECONDS = 8.0
"""Time after the beginning of a renewal for which the holder writes: a call that was sent then (SECONDS) ends before
another replica takes over."""

RENEWAL_SECONDS = 2.0
"""Interval between renewals, and between attempts to take over."""


class Lease:
    """One replica's view of the Lease. `holder`: the identity of the replica that holds it, as last read."""

    def __init__(
        self, connection: Connection, namespace: str, name: str, identity: str, clock: Callable[[], float] = monotonic
    ) -> None:
        self._connection = connection
        self._path = api_path("leases", group="coordination.k8s.io", namespace=namespace, name=name)
        self._metadata: dict[str, Json] = {"name": name, "namespace": namespace}
        self.identity = identity
        self._clock = clock
        self.holder = ""
        self._seen: tuple[Json, float] = None, 0.0
        """The last resourceVersion, and when it was seen first."""
        self._next = 0.0
        self._until = 0.0
        self._released = False
        self._failure: ApiError | None = None
        """Error of the last attempt; None after a success."""

    def hold(self, owners: list[Json]) -> bool:
        """Acquire the Lease or renew it, when it is time. Return True while this replica holds it.

        Raises ApiError if the last attempt failed, and the Lease is not held any more.
        """
        now = self._clock()
        if now >= self._next and not self._released:
            self._next = now + RENEWAL_SECONDS
            try:
                self._renew(now, owners)
                self._failure = None
            except ApiError as error:
                self._failure = error
        if self._failure is not None and not self.held:
            raise self._failure
        return self.held

    @property
    def held(self) -> bool:
        return self._clock() < self._until

    def release(self) -> None:
        """Let another replica take over at once. Raises ApiError."""
        self._released = True
        if self.held:
            self._until = 0.0
            self._write(self._read([]), "")

    def _renew(self, now: float, owners: list[Json]) -> None:
        lease = self._read(owners)
        version = as_mapping(lease["metadata"]).get("resourceVersion")
        if version != self._seen[0]:
            self._seen = version, now
        self.holder = str(as_mapping(lease.get("spec")).get("holderIdentity") or "")
        if self.holder not in ("", self.identity):
            self._until = 0.0
            if now - self._seen[1] < LEASE_SECONDS:
                return
        try:
            self._write(lease, self.identity)
        except ApiError as error:
            if error.cause is not Cause.CONFLICT:
                raise
            self._until = 0.0  # another replica was first
        else:
            self.holder, self._until = self.identity, now + HOLD_SECONDS

    def _read(self, owners: list[Json]) -> dict[str, Json]:
        try:
            return parse(self._connection.get(self._path, {}, seconds=SECONDS))
        except ApiError as error:
            if error.cause is not Cause.MISSING:
                raise
        metadata = {**self._metadata, **({"ownerReferences": owners} if owners else {})}
        empty: dict[str, Json] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        query, media = {"fieldManager": FIELD_MANAGER}, "application/apply-patch+yaml"
        return parse(self._connection.send("PATCH", self._path, media, orjson.dumps(empty), query, SECONDS))

    def _write(self, lease: dict[str, Json], holder: str) -> None:
        spec = as_mapping(lease.get("spec"))
        changed = spec.get("holderIdentity") != holder
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        transitions = spec.get("leaseTransitions")
        count = transitions if isinstance(transitions, int) else 0
        body = {
            **lease,
            "spec": {
                **spec,
                "holderIdentity": holder,
                "leaseDurationSeconds": round(LEASE_SECONDS),
                "renewTime": time,
                **({"acquireTime": time, "leaseTransitions": count + 1} if changed else {}),
            },
        }
        self._connection.send("PUT", self._path, "application/json", orjson.dumps(body), seconds=SECONDS)
