"""Counters of what happens to connections, for metrics and the log."""

import logging
import ssl
from enum import Enum
from math import inf
from threading import Lock
from typing import Generic, TypeVar

from rules_engine.server.http.limits import GIVEN_UP_SECONDS, LOG_SECONDS, Limit

_log = logging.getLogger(__name__)

K = TypeVar("K", bound=Enum)


class HandshakeFailure(Enum):
    """Reason why TLS was not established, as metrics and logs name it."""

    NO_CLIENT_CERTIFICATE = "no-client-certificate"
    CLIENT_CERTIFICATE = "client-certificate-refused"
    NOT_TLS = "not-tls"
    GIVEN_UP = "client-gave-up"
    OTHER = "other"


def handshake_failure(error: OSError, seconds: float) -> HandshakeFailure | None:
    """Return the reason of a handshake that failed after some seconds; None for probes and scans of ports."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeFailure.CLIENT_CERTIFICATE
    if isinstance(error, ssl.SSLError):
        return _FAILURES.get(error.reason or "", HandshakeFailure.OTHER)
    return HandshakeFailure.GIVEN_UP if seconds >= GIVEN_UP_SECONDS else None


_FAILURES = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": HandshakeFailure.NO_CLIENT_CERTIFICATE,
    **dict.fromkeys(
        ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"),
        HandshakeFailure.NOT_TLS,
    ),
}
"""Failures by the reason of OpenSSL."""


class Occurrences(Generic[K]):
    """Counters by kind, each logged at most once a minute.

    `text` is for a log line, with the kind, its count, and the peer of the last one where it is known.
    """

    def __init__(self, kinds: type[K], text: str) -> None:
        self.counts: dict[K, int] = dict.fromkeys(kinds, 0)
        self._text = text
        self._lock = Lock()
        self._logged: dict[K, tuple[float, int]] = {}
        self._peers: dict[K, str] = {}

    def count(self, kind: K, peer: str = "") -> None:
        """Increment a counter. Safe for use from several threads."""
        with self._lock:
            self.counts[kind] += 1
            self._peers[kind] = peer

    @property
    def by_name(self) -> dict[str, int]:
        """The counters by the value of their kind."""
        return {kind.value: count for kind, count in self.counts.items()}

    def log(self, now: float) -> None:
        """Log counters that changed since their last line."""
        for kind, count in self.counts.items():
            at, before = self._logged.get(kind, (-inf, 0))
            if count > before and now - at >= LOG_SECONDS:
                self._logged[kind] = now, count
                peer, hint = self._peers[kind], _TOO_SLOW if kind in _SLOW else ""
                _log.warning(self._text + hint, kind.value, count, f", last by {peer}" if peer else "")


_SLOW: tuple[Enum, ...] = (Limit.HANDSHAKE_TIME, HandshakeFailure.GIVEN_UP)

_TOO_SLOW = (
    ": the callers' time was over, and the failurePolicy of the webhook decided; in a burst, add CPU or replicas"
)
