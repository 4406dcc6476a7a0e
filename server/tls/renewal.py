"""A certificate, or the CAs of clients, that change while the server runs: read, checked, then for new connections."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from server.periodic_task import PeriodicTask
from server.state import State
from server.timestamps import rfc3339
from server.tls import identity as tls

LOOK_SECONDS = 60.0
"""Between two looks at whether the certificate has expired: another one may be served meanwhile."""

AFTER_SECONDS = 0.1
"""After the end of the certificate, to be past it."""

Show: TypeAlias = Callable[[tls.Identity], None]
"""Installs an identity for new connections. Raises TlsError."""

_log = logging.getLogger(__name__)


class _Refusals:
    """Refused certificates: retried, but logged and counted once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._last: str | None = None

    def note(self, what: str, error: tls.TlsError) -> None:
        if str(error) != self._last:
            _log.error("%s: %s", what, error)
            self._state.certificates_refused += 1
        self._last = str(error)

    def forget(self) -> bool:
        """Return True if something was refused since the last call."""
        refused, self._last = self._last is not None, None
        return refused


class Renewal:
    """Serves what certificate and key files hold, whenever that is a good pair; else what was served stays."""

    def __init__(self, show: Show, state: State, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._show = show
        self._state = state
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._served: tls.Identity | None = None
        self._refusals = _Refusals(state)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to watch."""
        return (self._certificate, self._key, *([self._client_ca] if self._client_ca else []))

    def first(self) -> tls.Identity:
        """Serve the files for the first time. Raises TlsError."""
        identity = self._read()
        self._install(identity)
        return identity

    def renew(self) -> bool:
        """Look at the files again; whether what they hold is served now."""
        before = self._served
        try:
            identity = self._read()
            if identity == before:
                if self._refusals.forget():
                    _log.info("the certificate is again the one that is served: %s", self._described(identity))
                return True
            self._install(identity)
        except tls.TlsError as error:
            self._refusals.note("the changed certificate is refused, the one before it stays", error)
            return False
        self._refusals.forget()
        if before is not None and replace(before, client_ca=identity.client_ca) == identity:
            _log.info("other CAs of clients are trusted: %s", self._client_ca)
        else:
            _log.info("a new certificate is served: %s", self._described(identity))
        return True

    def _read(self) -> tls.Identity:
        """Raises TlsError."""
        return tls.read(self._certificate, self._key, self._client_ca, now=datetime.now(UTC))

    def _install(self, identity: tls.Identity) -> None:
        """Raises TlsError, naming the file."""
        try:
            self._show(identity)
        except tls.TlsError as error:
            raise tls.TlsError(f"{self._certificate}: {error}") from None
        self._served = identity
        self._state.certificate_not_after = identity.not_after

    def _described(self, identity: tls.Identity) -> str:
        return f"{self._certificate}, valid until {rfc3339(identity.not_after)}"


class Clients:
    """Serves certificates that come from elsewhere, and demands of clients what a file of CAs says, as it changes."""

    def __init__(self, show: Show, state: State, client_ca: Path | None) -> None:
        """Raises TlsError where the file holds no CA."""
        self._show = show
        self._state = state
        self._file = client_ca
        self._cas = None if client_ca is None else tls.read_cas(client_ca)
        self._lock = Lock()
        self._served: tls.Identity | None = None
        self._refusals = _Refusals(state)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to watch."""
        return () if self._file is None else (self._file,)

    def serve(self, identity: tls.Identity) -> None:
        """Show another certificate; the CAs stay. Raises TlsError."""
        with self._lock:
            self._serve(replace(identity, client_ca=self._cas))

    def renew(self) -> bool:
        """Look at the CAs again; whether what the file holds is demanded now."""
        with self._lock:
            if self._file is None or self._served is None:
                return False
            try:
                cas = tls.read_cas(self._file)
                if cas == self._cas:
                    if self._refusals.forget():
                        _log.info("the CAs of clients are again those that are trusted: %s", self._file)
                    return True
                identity = replace(self._served, client_ca=cas)
                self._serve(identity)
            except tls.TlsError as error:
                self._refusals.note("the changed CAs of clients are refused, those before them stay", error)
                return False
            self._refusals.forget()
            self._cas = cas
        _log.info("other CAs of clients are trusted: %s", self._file)
        return True

    def _serve(self, identity: tls.Identity) -> None:
        self._show(identity)
        self._served = identity
        self._state.certificate_not_after = identity.not_after


class Expiry:
    """Logs that the certificate that is served has expired, once for each; `/readyz` fails from then on."""

    def __init__(self, state: State, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._state = state
        self._clock = clock
        self._logged: str | None = None
        self._task = PeriodicTask(
            self._step,
            name="expiry",
            doing="the certificate's end was looked at",
            retry_seconds=LOOK_SECONDS,
        )

    def look(self) -> None:
        expired = self._state.expired(self._clock())
        if expired is not None and expired != self._logged:
            _log.error(
                "%s: %s: no API server accepts it, and /readyz fails until another one is served",
                self._state.certificate_from,
                expired,
            )
        self._logged = expired

    def start(self) -> None:
        self._task.start()

    def stop(self) -> None:
        self._task.stop()

    def _step(self) -> float:
        """Look; return how long to wait for the next look: until just after the end, where that is soon."""
        self.look()
        end = self._state.certificate_not_after
        left = 0.0 if end is None else (end - self._clock()).total_seconds()
        return min(left + AFTER_SECONDS, LOOK_SECONDS) if left > 0 else LOOK_SECONDS
