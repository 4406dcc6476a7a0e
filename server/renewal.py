"""A certificate that changes while the server runs: read, checked, then shown to new connections."""

import logging
from datetime import UTC, datetime
from pathlib import Path

from server import tls
from server.front import Front, try_out
from server.state import State

_log = logging.getLogger(__name__)


class Renewal:
    """Serves what certificate and key files hold, whenever that is a good pair; else what was served stays."""

    def __init__(self, front: Front, state: State, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._front = front
        self._state = state
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._served: tls.Identity | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to watch."""
        return (self._certificate, self._key, *([self._client_ca] if self._client_ca else []))

    def first(self) -> tls.Identity:
        """Serve the files for the first time. Raises TlsError."""
        identity = tls.read(self._certificate, self._key, self._client_ca, now=datetime.now(UTC))
        self._front.serve(identity)
        self._served = identity
        self._state.certificate_not_after = identity.not_after
        return identity

    def renew(self) -> bool:
        """Look at the files again; whether what they hold is served now."""
        before = self._served
        try:
            identity = tls.read(self._certificate, self._key, self._client_ca, now=datetime.now(UTC))
            if identity == before:
                return True
            try_out(identity)
            self._front.serve(identity)
        except tls.TlsError as error:
            _log.error("the changed certificate is refused, the one before it stays: %s", error)
            self._state.certificates_refused += 1
            return False
        self._served = identity
        self._state.certificate_not_after = identity.not_after
        _log.info("a new certificate is served, valid until %s", identity.not_after.isoformat())
        return True
