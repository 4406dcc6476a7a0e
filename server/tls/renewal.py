"""Renewal of the certificate and of the client CAs while the server runs; changes apply to new connections."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from rules_engine.server.state import ServerState
from rules_engine.server.timing import PeriodicTask, rfc3339
from rules_engine.server.tls import identity as tls

PERIOD_SECONDS = 60.0
"""Interval between checks of the expiry, since the certificate may be replaced meanwhile."""

AFTER_SECONDS = 0.1
"""Delay after the expiry, so that a check then finds the certificate expired."""

Install: TypeAlias = Callable[[tls.Identity], None]
"""Installs an identity for new connections. Raises TlsError."""

_log = logging.getLogger(__name__)


class _Renewal:
    """Serves identities. Refused ones are retried, but logged and counted once."""

    def __init__(self, install: Install, state: ServerState) -> None:
        self._install = install
        self._state = state
        self._served: tls.Identity | None = None
        self._refused: str | None = None

    def _serve(self, identity: tls.Identity) -> None:
        """Serve an identity. Raises TlsError."""
        self._install(identity)
        self._served = identity
        self._state.certificate_not_after = identity.not_after

    def _refuse(self, what: str, error: tls.TlsError) -> None:
        if str(error) != self._refused:
            _log.error("%s: %s", what, error)
            self._state.certificates_refused += 1
        self._refused = str(error)

    def _accept(self) -> bool:
        """Return True if something was refused since the last call."""
        refused, self._refused = self._refused is not None, None
        return refused


class Renewal(_Renewal):
    """Serves the certificate and key of two files; if they are invalid, the previous ones stay in use."""

    def __init__(
        self, install: Install, state: ServerState, certificate: Path, key: Path, client_ca: Path | None
    ) -> None:
        super().__init__(install, state)
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to watch."""
        return (self._certificate, self._key, *([self._client_ca] if self._client_ca else []))

    def serve_first(self) -> str:
        """Serve the files for the first time; return a description of them. Raises TlsError."""
        identity = self._read()
        self._serve(identity)
        return self._describe(identity)

    def renew(self) -> bool:
        """Read the files again. Return True if their certificate is served now."""
        before = self._served
        try:
            identity = self._read()
            if identity == before:
                if self._accept():
                    _log.info("the certificate files match the certificate in use again: %s", self._describe(identity))
                return True
            self._serve(identity)
        except tls.TlsError as error:
            self._refuse("changed certificate refused, the previous one stays in use", error)
            return False
        self._accept()
        if before is not None and replace(before, client_ca=identity.client_ca) == identity:
            _log.info("new client CAs in use: %s", self._client_ca)
        else:
            _log.info("new certificate in use: %s", self._describe(identity))
        return True

    def _read(self) -> tls.Identity:
        """Read the files. Raises TlsError."""
        return tls.read_identity(self._certificate, self._key, self._client_ca, now=datetime.now(UTC))

    def _serve(self, identity: tls.Identity) -> None:
        """Serve an identity. Raises TlsError, whose message names the file."""
        try:
            super()._serve(identity)
        except tls.TlsError as error:
            raise tls.TlsError(f"{self._certificate}: {error}") from None

    def _describe(self, identity: tls.Identity) -> str:
        return f"{self._certificate}, valid until {rfc3339(identity.not_after)}"


class ClientCaRenewal(_Renewal):
    """Serves certificates from elsewhere, and requires client certificates of the CAs in a file, which may change."""

    def __init__(self, install: Install, state: ServerState, client_ca: Path | None) -> None:
        """Read the file. Raises TlsError if it has no CA."""
        super().__init__(install, state)
        self._file = client_ca
        self._cas = None if client_ca is None else tls.read_cas(client_ca)
        self._lock = Lock()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to watch."""
        return () if self._file is None else (self._file,)

    def serve(self, identity: tls.Identity) -> None:
        """Serve another certificate with the same client CAs. Raises TlsError."""
        with self._lock:
            self._serve(replace(identity, client_ca=self._cas))

    def renew(self) -> bool:
        """Read the CAs again. Return True if the file's CAs are in use now."""
        with self._lock:
            if self._file is None or self._served is None:
                return False
            try:
                cas = tls.read_cas(self._file)
                if cas == self._cas:
                    if self._accept():
                        _log.info("the client CA file matches the CAs in use again: %s", self._file)
                    return True
                identity = replace(self._served, client_ca=cas)
                self._serve(identity)
            except tls.TlsError as error:
                self._refuse("changed client CAs refused, the previous ones stay in use", error)
                return False
            self._accept()
            self._cas = cas
        _log.info("new client CAs in use: %s", self._file)
        return True


class ExpiryMonitor(PeriodicTask):
    """Logs the expiry of the serving certificate, once for each; `/readyz` fails from then on."""

    def __init__(self, state: ServerState, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._state = state
        self._clock = clock
        self._logged: str | None = None
        super().__init__(
            self._step, name="expiry", doing="the expiry of the certificate was checked", retry_seconds=PERIOD_SECONDS
        )

    def check(self) -> None:
        expired = self._state.expiry_problem(self._clock())
        if expired is not None and expired != self._logged:
            _log.error(
                "%s: %s: API servers reject it, and /readyz fails until another one is served",
                self._state.certificate_from,
                expired,
            )
        self._logged = expired

    def _step(self) -> float:
        """Check; return the seconds to wait before the next check, which is just after an expiry that is near."""
        self.check()
        end = self._state.certificate_not_after
        left = 0.0 if end is None else (end - self._clock()).total_seconds()
        return min(left + AFTER_SECONDS, PERIOD_SECONDS) if left > 0 else PERIOD_SECONDS
