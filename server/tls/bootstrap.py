"""The server's own certificate, kept in a Secret that all replicas share, and trusted by the API server.

Every replica does the same: read the Secret, take the one step that is due, write it back if nobody else has, put the
CAs into the webhook configurations, and serve what the Secret says. Two replicas that take a step at once agree
through the Secret's resourceVersion: the second write is refused, and its replica reads again.

A certificate is followed by another with a CA of its own. First both CAs are trusted, then the new certificate is
shown, then the old CA is forgotten: at no time does a replica show what an API server does not trust.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any

import orjson

from server.cluster.connection import ApiError, Cause, Connection, api_path
from server.jitter import jittered
from server.periodic_task import PeriodicTask
from server.timestamps import rfc3339
from server.tls.identity import CLOCK_SKEW, Identity, Issued, TlsError, dns_names, issue, issued

VALID_DAYS = 90
"""How long a certificate is good for."""

RENEW_DAYS = 30
"""With less than this left, the next one is made: a month for whatever stands in the way."""

SPREAD = timedelta(minutes=5)
"""Until every API server has seen that another CA is trusted: they watch the configurations, and restart in less."""

FORGET = timedelta(days=1)
"""Until the CA of the certificate before is trusted no more: every replica has long looked at the Secret."""

LOOK_SECONDS = 60.0
"""Between two looks at the Secret, give or take a fifth."""

RETRY_SECONDS = 5.0
"""After a call that failed."""

MAX_CONFLICTS = 10
"""Writes of others that are met in one look; there are as many as there are replicas."""

_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are: the Secret, the DNS name that the API server calls, the name of both configurations."""

    namespace: str
    secret: str
    service: str
    webhooks: str

    def __str__(self) -> str:
        return f"Secret {self.namespace}/{self.secret}"

    @property
    def secret_path(self) -> str:
        return api_path("secrets", namespace=self.namespace, name=self.secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the Secret holds: what is shown now, what will be, and the CA of what was."""

    current: Issued
    next: Issued | None = None
    previous_ca: bytes | None = None

    @property
    def bundle(self) -> bytes:
        """Every CA to trust."""
        cas = [self.current.ca, self.next.ca if self.next else None, self.previous_ca]
        return b"".join(ca if ca.endswith(b"\n") else ca + b"\n" for ca in cas if ca)


def due(held: Held | None, place: Place, now: datetime, *, trusted: bool) -> Held | None:
    """What the Secret should hold now, one step on from what it holds; None where that is right.

    `trusted`: the webhook configurations have had every CA of `held` for long enough.
    """
    if held is None or now >= held.current.not_after:
        return Held(current=_issue(place, now))
    if held.next is not None:
        if trusted:
            return Held(current=held.next, previous_ca=held.current.ca)
        return None
    if held.current.not_after - now < timedelta(days=RENEW_DAYS):
        return replace(held, next=_issue(place, now))
    if held.previous_ca is not None and now - _made(held.current) >= FORGET:
        return replace(held, previous_ca=None)
    return None


def _issue(place: Place, now: datetime) -> Issued:
    names = dns_names(place.service, f"{place.service}.cluster.local")
    return issue(place.service, names, now=now, days=VALID_DAYS)


def _made(certificate: Issued) -> datetime:
    return certificate.not_before + CLOCK_SKEW


def read(data: Mapping[str, str] | None, place: Place) -> Held | None:
    """What a Secret's data hold; None when that is nothing of use."""
    values: dict[str, bytes] = {}
    try:
        for name, value in (data or {}).items():
            values[name] = b64decode(value, validate=True)
        current = issued(values["ca.crt"], values["tls.crt"], values["tls.key"], place.service)
    except (KeyError, ValueError, TypeError, TlsError):
        return None
    try:
        following = issued(values["next-ca.crt"], values["next-tls.crt"], values["next-tls.key"], place.service)
    except (KeyError, TlsError):
        following = None
    return Held(current=current, next=following, previous_ca=values.get("previous-ca.crt"))


def written(held: Held) -> dict[str, str]:
    """The data of the Secret."""
    values = {"ca.crt": held.current.ca, "tls.crt": held.current.certificate, "tls.key": held.current.key}
    if held.next is not None:
        values |= {"next-ca.crt": held.next.ca, "next-tls.crt": held.next.certificate, "next-tls.key": held.next.key}
    if held.previous_ca is not None:
        values["previous-ca.crt"] = held.previous_ca
    return {name: b64encode(value).decode() for name, value in values.items()}


class Bootstrap:
    """Keeps the Secret and the configurations as they should be, and tells `serve` of what is to be shown."""

    def __init__(
        self,
        connection: Connection,
        place: Place,
        serve: Callable[[Identity], None],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._place = place
        self._serve = serve
        self._clock = clock
        self._served: Identity | None = None
        self._said: str | None = None
        self._trusted: tuple[bytes, datetime] | None = None
        self._task = PeriodicTask(
            self._step,
            name="bootstrap",
            doing="the certificate was looked at",
            retry_seconds=RETRY_SECONDS,
        )

    def look(self) -> None:
        """Take every step that is due, and serve what the Secret says. Raises ApiError and TlsError."""
        for _ in range(MAX_CONFLICTS):
            secret = self._connection.object(self._place.secret_path)
            held = read(secret.get("data"), self._place)
            trusted = held is not None and self._trust(held)
            step = due(held, self._place, self._clock(), trusted=trusted)
            if step is None and held is not None:
                self._show(held)
                return
            if step is not None:
                try:
                    self._write(secret, step)
                except ApiError as error:
                    if error.cause is not Cause.CONFLICT:
                        raise
        raise ApiError(Cause.CONFLICT, f"{self._place} keeps changing")

    def first(self) -> None:
        """Look until it is done; for the start."""
        while not self._looked():
            sleep(RETRY_SECONDS)

    def start(self) -> None:
        """Look from now on, where `first` has looked already."""
        self._task.start(jittered(LOOK_SECONDS))

    def stop(self) -> None:
        self._task.stop()

    def _step(self) -> float:
        return jittered(LOOK_SECONDS if self._looked() else RETRY_SECONDS)

    def _looked(self) -> bool:
        try:
            self.look()
        except (ApiError, TlsError) as error:
            said = str(error)
            if said != self._said:
                _log.error("the certificate cannot be kept in %s: %s", self._place, said)
            if isinstance(error, ApiError) and error.cause is Cause.UNAUTHORIZED:
                self._connection.renew()
            self._said = said
            return False
        except Exception:
            # Our bug; the certificate that is served stays.
            _log.exception("unexpected error while the certificate was looked at")
            return False
        if self._said is not None:
            _log.info("the certificate can be kept in %s again", self._place)
        self._said = None
        return True

    def _write(self, secret: Mapping[str, Any], held: Held) -> None:
        # The resourceVersion that was read makes this a refusal where somebody was faster. Data of others stay.
        data = {name: value for name, value in (secret.get("data") or {}).items() if name not in _OURS}
        body = orjson.dumps({**secret, "data": {**data, **written(held)}})
        self._connection.send("PUT", self._place.secret_path, "application/json", body)
        _log.info("wrote %s: a certificate valid until %s", self._place, rfc3339(held.current.not_after))

    def _trust(self, held: Held) -> bool:
        """Have the CAs in both configurations; whether they have been there for as long as it takes to spread.

        A configuration that is not there has nobody who calls.
        """
        bundle, since = held.bundle, self._clock()
        before, self._trusted = self._trusted, None  # where a call fails, nobody knows
        found = [self._trust_in(kind, b64encode(bundle).decode()) for kind in _KINDS]
        if all(found) and before is not None and before[0] == bundle:
            since = before[1]
        self._trusted = bundle, since
        return self._clock() - since >= SPREAD

    def _trust_in(self, kind: str, bundle: str) -> bool:
        """Have them in one; whether they were there already."""
        path = api_path(kind, group="admissionregistration.k8s.io", name=self._place.webhooks)
        try:
            configuration = self._connection.object(path)
        except ApiError as error:
            if error.cause is Cause.MISSING:
                return True
            raise
        changes: list[dict[str, Any]] = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
            for index, webhook in enumerate(configuration.get("webhooks") or [])
            if webhook.get("clientConfig", {}).get("caBundle") != bundle
        ]
        if not changes:
            return True
        version = configuration.get("metadata", {}).get("resourceVersion")
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        try:
            self._connection.send("PATCH", path, "application/json-patch+json", orjson.dumps([test, *changes]))
        except ApiError as error:
            if error.cause not in (Cause.CONFLICT, Cause.INVALID):
                raise
            return False  # somebody has changed it since: at the next look
        _log.info("wrote the CAs into %s", path)
        return False

    def _show(self, held: Held) -> None:
        identity = Identity(
            certificate=held.current.certificate,
            key=held.current.key,
            not_after=held.current.not_after,
        )
        if identity != self._served:
            self._serve(identity)
            if self._served is not None:
                _log.info("a new certificate is served: %s, valid until %s", self._place, rfc3339(identity.not_after))
            self._served = identity


_OURS = frozenset(f"{when}{name}" for when in ("", "next-", "previous-") for name in ("ca.crt", "tls.crt", "tls.key"))
