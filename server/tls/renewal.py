"""Renewal of the certificate and of the client CAs while the server runs; changes apply to new connections."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import ClassVar, TypeAlias

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


class _Renewal(ABC):
    """Serves the identities of files, which may change. Refused ones are retried, but logged and counted once."""

    refusal: ClassVar[str]
    matches: ClassVar[str]
    """The messages about changed files that are refused, and about files that match what is in use again."""

    def __init__(self, install: Install, state: ServerState, client_ca: Path | None) -> None:
        self._install = install
        self._state = state
        self._client_ca = client_ca
        self._served: tls.Identity | None = None
        self._refused: str | None = None
        self._lock = Lock()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to watch."""
        return () if self._client_ca is None else (self._client_ca,)

    def renew(self) -> bool:
        """Read the files again. Return True if what they have is served now."""
        with self._lock:
            before = self._served
            if before is None or not self.paths:
                return False
            try:
                identity = self._read(before)
                if identity != before:
                    self._serve(identity)
            except tls.TlsError as error:
                if str(error) != self._refused:
                    _log.error("%s: %s", self.refusal, error)
                    self._state.certificates_refused += 1
                self._refused = str(error)
                return False
            refused, self._refused = self._refused, None
        if identity == before:
            if refused is not None:
                _log.info("%s: %s", self.matches, self._describe(identity))
        elif replace(before, client_ca=identity.client_ca) == identity:
            _log.info("new client CAs in use: %s", self._client_ca)
        else:
            _log.info("new certificate in use: %s", self._describe(identity))
        return True

    @abstractmethod
    def _read(self, before: tls.Identity) -> tls.Identity:
        """Read the files. Raises TlsError."""

    @abstractmethod
    def _describe(self, identity: tls.Identity) -> str:
        """Return a description of the files."""

    def _serve(self, identity: tls.Identity) -> None:
        """Serve an identity. Raises TlsError."""
        self._install(identity)
        self._served = identity
        self._state.certificate_not_after = identity.not_after


class Renewal(_Renewal):
    """Serves the certificate and key of two files; if they are invalid, the previous ones stay in use."""

    refusal = "changed certificate refused, the previous one stays in use"
    matches = "the certificate files match the certificate in use again"

    def __init__(
        self, install: Install, state: ServerState, certificate: Path, key: Path, client_ca: Path | None
    ) -> None:
        super().__init__(install, state, client_ca)
        self._certificate = certificate
        self._key = key

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self._certificate, self._key, *super().paths)

    def serve_first(self) -> str:
        """Serve the files for the first time; return a description of them. Raises TlsError."""
        identity = self._read()
        self._serve(identity)
        return self._describe(identity)

    def _read(self, before: tls.Identity | None = None) -> tls.Identity:  # noqa: ARG002 - for the other class
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

    refusal = "changed client CAs refused, the previous ones stay in use"
    matches = "the client CA file matches the CAs in use again"

    def __init__(self, install: Install, state: ServerState, client_ca: Path | None) -> None:
        """Read the file. Raises TlsError if it has no CA."""
        super().__init__(install, state, client_ca)
        self._cas = None if client_ca is None else tls.read_cas(client_ca)

    def serve(self, identity: tls.Identity) -> None:
        """Serve another certificate with the same client CAs. Raises TlsError."""
        with self._lock:
            self._serve(replace(identity, client_ca=self._cas))

    def _read(self, before: tls.Identity) -> tls.Identity:
        return replace(before, client_ca=None if self._client_ca is None else tls.read_cas(self._client_ca))

    def _serve(self, identity: tls.Identity) -> None:
        super()._serve(identity)
        self._cas = identity.client_ca

    def _describe(self, identity: tls.Identity) -> str:  # noqa: ARG002 - for the other class
        return str(self._client_ca)


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
