"""A listening socket and the event loop that serves its connections, in a thread of its own.

Sockets are accepted here and passed to `loop.connect_accepted_socket`, so handshakes count as connections, peers are
known, and a new certificate applies to the next connection.

Why a loop for each listener: probes and metrics on the plain listener are answered while the loop that answers
admissions is busy, and /healthz there can report that loop as stalled.
"""

import asyncio
import ctypes
import errno
import logging
import resource
import socket
import ssl
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from email.utils import formatdate
from enum import Enum
from threading import Thread
from time import monotonic
from typing import Any

import uvloop

from server.http import limits
from server.http.connections import Connections, Occurrences
from server.http.limits import Limit
from server.http.protocol import Handler, HttpProtocol

_log = logging.getLogger(__name__)


class Listener:
    """HTTP server on a bound socket, from `start` to `stop`, with TLS if it has a context.

    `name` is for logs and metrics. `connections`: maximum number. `receive_seconds`: time to receive a body.
    """

    def __init__(
        self,
        name: str,
        bound: socket.socket,
        make_handler: "Callable[[Listener], Handler]",
        *,
        connections: int,
        receive_seconds: float = limits.RECEIVE_SECONDS,
    ) -> None:
        self.name = name
        self.receive_seconds = receive_seconds
        self.last_heartbeat = monotonic()
        """Time of the last event loop heartbeat (time.monotonic)."""
        self.loop: AbstractEventLoop = uvloop.new_event_loop()
        self.now = self.loop.time
        self.address: tuple[str, int] = bound.getsockname()[:2]
        self.connections = Connections(name, connections, self.now)
        self.failed_handshakes = Occurrences(
            HandshakeFailure, f"{name} listener: TLS handshake failed: %s (%d in all%s)"
        )
        self.handler = make_handler(self)
        self.date = b""
        self._trimmed = 0.0
        self.buffer = memoryview(bytearray(limits.READ_BYTES))
        self._socket = bound
        self._context: ssl.SSLContext | None = None
        self._accepting = False
        self._draining = False
        self._opening: set[Task[None]] = set()
        self._turns: list[HttpProtocol] = []
        """Connections that answer a request in the next iteration of the event loop."""
        self._thread = Thread(target=self._run, name=f"{name}-listener", daemon=True)

    def start(self, context: ssl.SSLContext | None = None) -> None:
        """Start accepting connections."""
        self._context = context
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.RECEIVE_BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SEND_BUFFER_BYTES)
        self._socket.setblocking(False)
        self._socket.listen(limits.BACKLOG)
        self.loop.set_exception_handler(_log_unexpected)
        self.loop.call_soon(self._begin)
        self._thread.start()

    def serve(self, context: ssl.SSLContext) -> None:
        """Use another TLS context for new connections.

        Open connections close after their next response, or when idle for too long.
        """
        self._context = context
        if self._thread.ident is None and self._socket.fileno() >= 0:
            self.start(context)

    def drain(self) -> None:
        """Close each connection after its next response."""
        self._draining = True

    def stop(self, grace_seconds: float, settle_seconds: float = 0.0) -> bool:
        """Stop accepting, finish pending requests, and close. Return True if all were answered in time.

        `settle_seconds`: time for pending handshakes and their first requests.
        """
        if not self._thread.is_alive():
            self._socket.close()
            self.handler.stop()
            self.loop.close()
            return True
        stopped: Future[bool] = asyncio.run_coroutine_threadsafe(self._stop(grace_seconds, settle_seconds), self.loop)
        done = stopped.result()
        self.handler.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        return done

    # For metrics: see `server.state.Listening`.

    @property
    def open_connections(self) -> int:
        return len(self.connections)

    @property
    def held_bytes(self) -> int:
        return self.connections.held_bytes

    @property
    def exceeded(self) -> Mapping[str, int]:
        counts = self.connections.exceeded.counts
        return {limit.value: count for limit, count in counts.items()}

    @property
    def handshakes_failed(self) -> Mapping[str, int]:
        return {failure.value: count for failure, count in self.failed_handshakes.counts.items()}

    # For connections: see `server.http.protocol.Service`.

    def ends(self, context: object) -> bool:
        return self._draining or context is not self._context

    def schedule(self, connection: HttpProtocol) -> None:
        if not self._turns:
            self.loop.call_soon(self._take_turns)
        self._turns.append(connection)

    # In the event loop.

    def _take_turns(self) -> None:
        turns, self._turns = self._turns, []
        for connection in turns:
            try:
                connection.take_turn()
            except Exception:  # a bug, which must not keep the others waiting
                _log.exception("unexpected error in a connection")
                connection.abort()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _begin(self) -> None:
        self._sweep()
        self._accept_again()

    def _sweep(self) -> None:
        self.last_heartbeat = monotonic()
        self.date = formatdate(usegmt=True).encode("ascii")
        self.loop.call_later(limits.SWEEP_SECONDS, self._sweep)
        self.connections.sweep()
        self.failed_handshakes.log(self.now())
        self._trim()

    def _trim(self) -> None:
        """Return freed memory to the system: the allocator keeps the memory of many connections or large bodies."""
        if (
            self.connections.freed_bytes >= limits.TRIM_BYTES
            and self.now() >= self._trimmed + limits.TRIM_SECONDS
            and _MALLOC_TRIM
        ):
            self.connections.freed_bytes = 0
            self._trimmed = self.now()
            self.loop.run_in_executor(None, _MALLOC_TRIM, 0)

    def _accept_again(self) -> None:
        if not self._accepting and self._socket.fileno() >= 0:
            self._accepting = True
            self.loop.add_reader(self._socket, self._accept)

    def _accept_no_more(self) -> None:
        if self._accepting:
            self._accepting = False
            self.loop.remove_reader(self._socket)

    def _accept(self) -> bool:
        """Accept up to ACCEPTED_AT_ONCE connections. Return True if more may be waiting."""
        for _ in range(limits.ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._socket.accept()
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    self._pause_accepting()
                    return False
                continue
            self._open(accepted, address[0])
        return True

    def _pause_accepting(self) -> None:
        """Close a connection and pause accepting: no file descriptor is available."""
        self.connections.exceeded.count(Limit.FILES)
        self.connections.close_some()
        self._accept_no_more()
        self.loop.call_later(limits.ACCEPT_PAUSE_SECONDS, self._accept_again)

    def _open(self, accepted: socket.socket, peer: str) -> None:
        if not self.connections.make_room(peer):
            accepted.close()
            return
        accepted.setblocking(False)
        context = self._context
        protocol = HttpProtocol(self, accepted, peer, context)
        self.connections.add(protocol)
        task = self.loop.create_task(self._connect(protocol, accepted, context))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, protocol: HttpProtocol, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        tls: dict[str, Any] = (
            {}
            if context is None
            else {
                "ssl": context,
                "ssl_handshake_timeout": limits.HANDSHAKE_SECONDS,
                "ssl_shutdown_timeout": limits.SHUTDOWN_SECONDS,
            }
        )
        try:
            await self.loop.connect_accepted_socket(lambda: protocol, accepted, **tls)
        except Exception as error:
            known = self.connections.remove(protocol)
            if isinstance(error, ConnectionAbortedError):  # handshake timeout, as uvloop reports it
                self.connections.exceeded.count(Limit.HANDSHAKE_TIME, protocol.peer)
            elif isinstance(error, ssl.SSLError):
                self.failed_handshakes.count(_handshake_failure(error), protocol.peer)
            elif not isinstance(error, OSError):
                raise
            elif known and self.now() - protocol.since >= limits.GIVEN_UP_SECONDS:  # the client disconnects
                self.failed_handshakes.count(HandshakeFailure.GIVEN_UP, protocol.peer)

    async def _stop(self, grace_seconds: float, settle_seconds: float) -> bool:
        end = self.loop.time() + grace_seconds
        self._draining = True
        # Without an await in between: closing the socket resets connections that are not accepted.
        while self._accept():
            pass
        self._accept_no_more()
        self._socket.close()
        settled = self.loop.time() + min(settle_seconds, grace_seconds)
        while self.connections and self.loop.time() < settled:
            await asyncio.sleep(STOP_SECONDS)
        for connection in self.connections:
            connection.finish()
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(STOP_SECONDS)
        left = len(self.connections)
        for connection in self.connections:
            connection.abort()
        while (self.connections or self._opening) and self.loop.time() < end + ABORT_SECONDS:
            await asyncio.sleep(STOP_SECONDS)
        if left:
            _log.warning("stopped with %d connections open", left)
        return not left


class HandshakeFailure(Enum):
    """Reason why TLS was not established, as metrics and logs name it."""

    NO_CLIENT_CERTIFICATE = "no-client-certificate"
    CLIENT_CERTIFICATE = "client-certificate-refused"
    NOT_TLS = "not-tls"
    GIVEN_UP = "client-gave-up"
    OTHER = "other"


def _handshake_failure(error: ssl.SSLError) -> HandshakeFailure:
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeFailure.CLIENT_CERTIFICATE
    return _FAILURES.get(error.reason or "", HandshakeFailure.OTHER)


_FAILURES = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": HandshakeFailure.NO_CLIENT_CERTIFICATE,
    **dict.fromkeys(
        ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"),
        HandshakeFailure.NOT_TLS,
    ),
}
"""Failures by the reason of OpenSSL."""

STOP_SECONDS = 0.01
"""Polling interval while connections end."""

ABORT_SECONDS = 1.0
"""Time for aborted connections to close."""


_MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""malloc_trim(3) of glibc, called without the GIL; other C libraries have none."""


def connections_allowed(most: int, reserved: int = limits.RESERVED_FILES) -> int:
    """Return how many connections file descriptors allow, up to `most`; raise the soft limit if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + reserved
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = most if soft == resource.RLIM_INFINITY else min(most, soft - reserved)
    return max(allowed, 0)


def share_of_connections(most: int) -> int:
    """Return one listener's share of the connections that file descriptors allow, up to `most`."""
    together = limits.CONNECTIONS + limits.PLAIN_CONNECTIONS
    return max(connections_allowed(together) * most // together, limits.LEAST_CONNECTIONS)


def _log_unexpected(_loop: AbstractEventLoop, context: dict[str, Any]) -> None:
    _log.error("unexpected error in a connection: %s", context["message"], exc_info=context.get("exception"))


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket, without SO_REUSEPORT, so that a port in use is an error. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these two options.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.UNREAD_SECONDS * 1000))
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
