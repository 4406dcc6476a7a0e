"""A certificate that the replicas issue and renew themselves, kept in a Secret and trusted by the API server.

Every replica runs the same loop: read the Secret, take the step that is due and write it back, write the CAs into the
webhook configurations, serve the current certificate. There is no leader: when two replicas take a step at once, the
API server refuses the second write because of the resourceVersion, and that replica reads again.

Why a certificate is rotated in steps: API servers and replicas learn of a change at different times, up to minutes
apart, and one call with an untrusted certificate may admit a pod unchecked (failurePolicy Ignore) or block it. So the
CA of the next certificate is trusted before any replica serves that certificate, and the previous CA is trusted until
every replica has switched. At no time does a replica serve a certificate that some API server does not trust.

Why each certificate has a CA of its own, whose key is discarded: whoever reads the Secret can impersonate this webhook
until the certificate expires, but can never issue another certificate that API servers trust.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any

import orjson

from rules_engine.server.cluster.connection import ApiError, Cause, Connection, api_path
from rules_engine.server.timing import PeriodicTask, add_jitter, rfc3339
from rules_engine.server.tls import identity as tls

VALID_DAYS = 90
"""Validity of a certificate."""

RENEW_DAYS = 30
"""Remaining validity at which the next certificate is issued: a month to repair whatever prevents it."""

TRUST_DELAY = timedelta(minutes=5)
"""Time until every API server trusts another CA: they watch the configurations, and restart in less."""

PREVIOUS_CA_LIFETIME = timedelta(days=1)
"""Time until the previous CA is removed: by then, every replica has read the Secret many times."""

PERIOD_SECONDS = 60.0
"""Interval between reads of the Secret, give or take a fifth."""

RETRY_SECONDS = 5.0
"""Delay of a retry after a failed call."""

MAX_CONFLICTS = 10
"""Maximum conflicts in one pass: each replica may cause one."""

_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapNames:
    """Names of the Secret, of the Service that the API server calls (DNS), and of both webhook configurations."""

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
class SecretContents:
    """Contents of the Secret: the certificate that is served, the next one, and the previous CA."""

    current: tls.IssuedCertificate
    next: tls.IssuedCertificate | None = None
    previous_ca: bytes | None = None

    @property
    def bundle(self) -> bytes:
        """All CAs to trust, as PEM."""
        cas = [self.current.ca, self.next.ca if self.next else None, self.previous_ca]
        return b"".join(ca if ca.endswith(b"\n") else ca + b"\n" for ca in cas if ca)


def next_step(
    contents: SecretContents | None, place: BootstrapNames, now: datetime, *, trusted: bool
) -> SecretContents | None:
    """Return the contents after the step that is due, or None if no step is due.

    `trusted`: every CA of `contents` has been in the webhook configurations for SPREAD.
    """
    if contents is None or now >= contents.current.not_after:
        return SecretContents(current=_issue_certificate(place, now))
    if contents.next is not None:
        if trusted:
            return SecretContents(current=contents.next, previous_ca=contents.current.ca)
        return None
    if contents.current.not_after - now < timedelta(days=RENEW_DAYS):
        return replace(contents, next=_issue_certificate(place, now))
    issued = contents.current.not_before + tls.CLOCK_SKEW
    if contents.previous_ca is not None and now - issued >= PREVIOUS_CA_LIFETIME:
        return replace(contents, previous_ca=None)
    return None


def _issue_certificate(place: BootstrapNames, now: datetime) -> tls.IssuedCertificate:
    names = tls.dns_names(place.service, f"{place.service}.cluster.local")
    return tls.issue_certificate(place.service, names, now=now, days=VALID_DAYS)


def parse_secret(data: Mapping[str, str] | None, place: BootstrapNames) -> SecretContents | None:
    """Parse a Secret's data. Return None if they hold no usable certificate."""
    values: dict[str, bytes] = {}
    try:
        for name, value in (data or {}).items():
            values[name] = b64decode(value, validate=True)
        current = tls.parse_issued(values["ca.crt"], values["tls.crt"], values["tls.key"], place.service)
    except (KeyError, ValueError, TypeError, tls.TlsError):
        return None
    try:
        parts = values["next-ca.crt"], values["next-tls.crt"], values["next-tls.key"]
        following = tls.parse_issued(*parts, place.service)
    except (KeyError, tls.TlsError):
        following = None
    return SecretContents(current=current, next=following, previous_ca=values.get("previous-ca.crt"))


def serialize_contents(contents: SecretContents) -> dict[str, str]:
    """Return the data of the Secret."""
    values = {"ca.crt": contents.current.ca, "tls.crt": contents.current.certificate, "tls.key": contents.current.key}
    if contents.next is not None:
        values |= {
            "next-ca.crt": contents.next.ca,
            "next-tls.crt": contents.next.certificate,
            "next-tls.key": contents.next.key,
        }
    if contents.previous_ca is not None:
        values["previous-ca.crt"] = contents.previous_ca
    return {name: b64encode(value).decode() for name, value in values.items()}


class Bootstrap(PeriodicTask):
    """Keeps the Secret and the webhook configurations up to date, and calls `serve` with each new certificate."""

    def __init__(
        self,
        connection: Connection,
        place: BootstrapNames,
        serve: Callable[[tls.Identity], None],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._place = place
        self._serve = serve
        self._clock = clock
        self._served: tls.Identity | None = None
        self._problem: str | None = None
        self._trusted: tuple[bytes, datetime] | None = None
        super().__init__(
            self._step, name="bootstrap", doing="the certificate was reconciled", retry_seconds=RETRY_SECONDS
        )

    def reconcile(self) -> None:
        """Take every step that is due, and serve the current certificate. Raises ApiError and TlsError."""
        # After a conflict, another replica has written: its contents decide which step is due.
        for _ in range(MAX_CONFLICTS):
            secret = self._connection.object(self._place.secret_path)
            contents = parse_secret(secret.get("data"), self._place)
            trusted = contents is not None and self._trust(contents)
            step = next_step(contents, self._place, self._clock(), trusted=trusted)
            if step is None and contents is not None:
                self._serve_current(contents)
                return
            if step is not None:
                try:
                    self._write(secret, step)
                except ApiError as error:
                    if error.cause is not Cause.CONFLICT:
                        raise
        raise ApiError(Cause.CONFLICT, f"{self._place} keeps changing")

    def wait_reconciled(self) -> None:
        """Reconcile, and retry until it succeeds."""
        while not self._try_reconcile():
            sleep(RETRY_SECONDS)

    def _step(self) -> float:
        return add_jitter(PERIOD_SECONDS if self._try_reconcile() else RETRY_SECONDS)

    def _try_reconcile(self) -> bool:
        """Reconcile, and log a failure once. Return True if it succeeded."""
        try:
            self.reconcile()
        except (ApiError, tls.TlsError) as error:
            problem = str(error)
            if problem != self._problem:
                _log.error("the certificate cannot be kept in %s: %s", self._place, problem)
            if isinstance(error, ApiError) and error.cause is Cause.UNAUTHORIZED:
                self._connection.renew()
            self._problem = problem
            return False
        except Exception:
            # A bug must not end the thread; the serving certificate stays.
            _log.exception("unexpected error while the certificate was reconciled")
            return False
        if self._problem is not None:
            _log.info("the certificate can be kept in %s again", self._place)
        self._problem = None
        return True

    def _write(self, secret: Mapping[str, Any], contents: SecretContents) -> None:
        # With the resourceVersion that was read, a concurrent write is a conflict. Other data stay.
        data = {name: value for name, value in (secret.get("data") or {}).items() if name not in _SECRET_KEYS}
        body = orjson.dumps({**secret, "data": {**data, **serialize_contents(contents)}})
        self._connection.send("PUT", self._place.secret_path, "application/json", body)
        _log.info("wrote %s: a certificate valid until %s", self._place, rfc3339(contents.current.not_after))

    def _trust(self, contents: SecretContents) -> bool:
        """Write the CAs into both configurations. Return True if they have been there for SPREAD.

        A configuration that does not exist counts as having them: no API server calls through it.
        """
        bundle, since = contents.bundle, self._clock()
        before, self._trusted = self._trusted, None  # unknown if a call fails
        unchanged = [self._trust_in(kind, b64encode(bundle).decode()) for kind in _KINDS]
        if all(unchanged) and before is not None and before[0] == bundle:
            since = before[1]
        self._trusted = bundle, since
        return self._clock() - since >= TRUST_DELAY

    def _trust_in(self, kind: str, bundle: str) -> bool:
        """Write the CAs into one configuration. Return True if they were there already."""
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
            return False  # changed meanwhile: the next pass writes them
        _log.info("wrote the CAs into %s", path)
        return False

    def _serve_current(self, contents: SecretContents) -> None:
        identity = contents.current
        if identity != self._served:
            self._serve(identity)
            if self._served is not None:
                _log.info("new certificate in use: %s, valid until %s", self._place, rfc3339(identity.not_after))
            self._served = identity


_SECRET_KEYS = frozenset(
    f"{when}{name}" for when in ("", "next-", "previous-") for name in ("ca.crt", "tls.crt", "tls.key")
)
