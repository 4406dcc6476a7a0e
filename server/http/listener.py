"""A listening socket and the event loop that serves its connections, in a thread of its own.

uvicorn's server has no context for each certificate (a new one by `sni_callback` lets a client of a removed CA resume
its session), no time limit for handshakes, and no drain that waits for requests that are being received. Each listener
has a loop of its own, so that probes are answered while the loop of admissions is busy.
"""

import asyncio
import logging
import socket
import ssl
from asyncio import AbstractEventLoop, Task
from email.utils import formatdate
from threading import Thread
from time import monotonic
from wsgiref.types import WSGIApplication

import uvloop

from rules_engine.server.http import limits
from rules_engine.server.http.connection import Connections, HttpConnection
from rules_engine.server.http.limits import Limit
from rules_engine.server.http.occurrences import HandshakeFailure, Occurrences, handshake_failure
from rules_engine.server.http.wsgi import WsgiCaller
from rules_engine.server.state import ListenerCounts

_log = logging.getLogger(__name__)


class Listener:
    """HTTP server of a WSGI application on a bound socket, from `start` to `stop`, with TLS if it has a context.

    `name` is for logs and metrics. `connections`: maximum number. `receive_seconds`: time to receive a body.
    `request_seconds` and `max_waiting`: as in WsgiCaller.
    """

    def __init__(
        self,
        name: str,
        bound: socket.socket,
        application: WSGIApplication,
        *,
        connections: int,
        receive_seconds: float = limits.RECEIVE_SECONDS,
        request_seconds: float = limits.REQUEST_SECONDS,
        max_waiting: int = limits.CONCURRENT_DECISIONS,
    ) -> None:
        self.name = name
        self.last_heartbeat = monotonic()
        """Time of the last event loop heartbeat (time.monotonic)."""
        self.loop: AbstractEventLoop = uvloop.new_event_loop()
        self.address: tuple[str, int] = bound.getsockname()[:2]
        self._caller = WsgiCaller(application, self.address, request_seconds=request_seconds, max_waiting=max_waiting)
        self._connections = Connections(name, connections, self.loop, self._caller, receive_seconds)
        self._failed_handshakes = Occurrences(
            HandshakeFailure, f"{name} listener: TLS handshake failed: %s (%d in all%s)"
        )
        self._socket = bound
        self._opening: set[Task[None]] = set()
        self._thread = Thread(target=self._run, name=f"{name}-listener", daemon=True)

    def serve(self, context: ssl.SSLContext | None = None) -> None:
        """Accept connections, from now on with this TLS context.

        Connections with another one close after their next response, or when idle for too long.
        """
        self._connections.context = context
        if self._thread.ident is None and self._socket.fileno() >= 0:
            self._socket.setblocking(False)
            self._socket.listen(limits.BACKLOG)
            self._caller.start()
            self._thread.start()

    def drain(self) -> None:
        """Close each connection after its next response."""
        self._connections.draining = True

    def stop(self, grace_seconds: float, settle_seconds: float = 0.0) -> bool:
        """Stop accepting, finish pending requests, and close. Return True if all were answered in time.

        `settle_seconds`: time for pending handshakes and their first requests.
        """
        if not self._thread.is_alive():
            self._socket.close()
            self.loop.close()
            return True
        done = asyncio.run_coroutine_threadsafe(self._stop(grace_seconds, settle_seconds), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        return done

    @property
    def counts(self) -> ListenerCounts:
        """Counts for metrics."""
        return ListenerCounts(
            open_connections=len(self._connections.all),
            held_bytes=self._connections.held_bytes,
            waiting=self._caller.waiting,
            exceeded=self._connections.exceeded.by_name,
            handshakes_failed=self._failed_handshakes.by_name,
        )

    def _run(self) -> None:
        self.loop.call_soon(self._sweep)
        self.loop.add_reader(self._socket, self._accept)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _sweep(self) -> None:
        self.last_heartbeat = monotonic()
        self._connections.state.default_headers = [(b"date", formatdate(usegmt=True).encode("ascii"))]
        self.loop.call_later(limits.SWEEP_SECONDS, self._sweep)
        self._connections.sweep()
        self._failed_handshakes.log(self.loop.time())

    def _accept(self) -> bool:
        """Accept up to ACCEPTED_AT_ONCE connections. Return True if more may be waiting."""
        try:
            connections = self._connections
            if len(connections.all) < connections.limit or connections.make_room(Limit.CONNECTIONS):
                room = max(connections.limit - len(connections.all), 1)
                for _ in range(min(room, limits.ACCEPTED_AT_ONCE)):
                    accepted, address = self._socket.accept()
                    accepted.setblocking(False)
                    connection = HttpConnection(connections, accepted, address[0])
                    connections.all[connection] = None
                    task = self.loop.create_task(self._connect(connection, accepted))
                    self._opening.add(task)
                    task.add_done_callback(self._opening.discard)
                return True
        except BlockingIOError:
            return False
        except ConnectionAbortedError:
            return True
        except OSError:  # no file descriptor is available
            connections.make_room(Limit.FILES)
        self.loop.remove_reader(self._socket)
        self.loop.call_later(limits.ACCEPT_PAUSE_SECONDS, self._accept_again)
        return False

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
            self.loop.add_reader(self._socket, self._accept)

    async def _connect(self, connection: HttpConnection, accepted: socket.socket) -> None:
        context = self._connections.context
        seconds = {"ssl_handshake_timeout": limits.HANDSHAKE_SECONDS, "ssl_shutdown_timeout": limits.SHUTDOWN_SECONDS}
        try:
            await self.loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=context, **(seconds if context else {})
            )
        except Exception as error:
            was_open = self._connections.all.pop(connection, ...) is None  # else it was closed to make room
            if not isinstance(error, OSError):
                raise
            failure = handshake_failure(error, self.loop.time() - connection.since)
            if isinstance(error, ConnectionAbortedError):  # handshake timeout, as uvloop reports it
                connection.count(Limit.HANDSHAKE_TIME)
            elif was_open and failure is not None:
                self._failed_handshakes.count(failure, connection.peer)

    async def _stop(self, grace_seconds: float, settle_seconds: float) -> bool:
        end = self.loop.time() + grace_seconds
        self._connections.draining = True
        # Without an await in between: closing the socket resets connections that are not accepted.
        while self._accept():
            pass
        self.loop.remove_reader(self._socket)
        self._socket.close()
        await self._wait_closed(self.loop.time() + min(settle_seconds, grace_seconds))
        for connection in tuple(self._connections.all):
            connection.finish()
        await self._wait_closed(end)
        left = len(self._connections.all)
        for connection in tuple(self._connections.all):
            connection.abort()
        await self._wait_closed(end + limits.ABORT_SECONDS)
        if left:
            _log.warning("stopped with %d connections open", left)
        return not left

    async def _wait_closed(self, until: float) -> None:
        """Wait until all connections are closed, at most until a time of the event loop's clock."""
        while (self._connections.all or self._opening) and self.loop.time() < until:
            await asyncio.sleep(limits.STOP_SECONDS)
