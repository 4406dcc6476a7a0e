"""The connections of a listener: uvicorn's HTTP protocol, held within limits on time, memory and number.

uvicorn parses requests and writes responses. It has no options for the time of headers, bodies, first requests and
unread responses, nor for their bytes: a Connection counts what its `HttpToolsProtocol` is given, and has a deadline in
each state. Deadlines are swept, since timers would be cancelled and set again with every request.
"""

import asyncio
import logging
import socket
import ssl
from asyncio import AbstractEventLoop, Task
from contextlib import suppress
from heapq import nsmallest
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from rules_engine.server.http import limits
from rules_engine.server.http.limits import Limit
from rules_engine.server.http.occurrences import Occurrences
from rules_engine.server.http.review import ReviewError, StatusReason

# Not a line for each request that is invalid, or whose connection is cut.
logging.getLogger("uvicorn.error").addFilter(
    lambda it: it.levelno >= logging.ERROR and "without starting" not in it.msg
)


class Connections:
    """The connections of a listener, at most `limit`, and what they share. Used in its event loop only.

    `receive_seconds`: time to receive a body. Connections that were accepted with another `context` close after their
    next response, as all do when `draining`. `buffer`: of one read, so that idle connections need none.
    """

    def __init__(
        self, name: str, limit: int, loop: AbstractEventLoop, application: Any, receive_seconds: float
    ) -> None:
        self.limit = limit
        self.loop = loop
        self.receive_seconds = receive_seconds
        self.context: ssl.SSLContext | None = None
        self.draining = False
        self.exceeded = Occurrences(Limit, f"{name} listener: limit %s exceeded (%d in all%s)")
        self.held_bytes = 0
        self.all: dict[HttpConnection, None] = {}
        self.paused: dict[HttpConnection, None] = {}
        self.buffer = memoryview(bytearray(limits.READ_BYTES))
        self.state = ServerState()
        self.config = Config(
            application, interface="asgi3", http="httptools", ws="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, timeout_keep_alive=10 * int(limits.IDLE_SECONDS),
        )  # fmt: skip

    def make_room(self, exceeded: Limit) -> bool:
        """Close idle connections and unfinished requests that stand still, the oldest first; return False without any.

        A request that was received completely is answered.
        """
        self.exceeded.count(exceeded)
        now = self.loop.time()
        ages = {Limit.IDLE_TIME: limits.UNUSED_SECONDS, Limit.REQUEST_TIME: inf}
        closable = [it for it in self.all if it.since < now - ages.get(it.state, limits.UNFINISHED_SECONDS)]
        for victim in nsmallest(max(self.limit // limits.CLOSED_SHARE, 1), closable, key=attrgetter("since")):
            self.all.pop(victim)
            victim.abort()
        return bool(closable)

    def hold(self, connection: "HttpConnection", size: int) -> bool:
        """Count `size` more bytes that a connection holds. Return False if it may not be read further until `resume`.

        One account, since a limit for each connection would exceed the memory of the server, or be too small for a pod.
        """
        connection.held_bytes += size
        self.held_bytes += size
        if self.held_bytes > limits.HELD_BYTES and connection.held_bytes > limits.FREE_BYTES:
            self.paused[connection] = None
            return False
        return True

    def release(self, connection: "HttpConnection") -> None:
        """Release all bytes that a connection holds, and read others for which there is room."""
        self.held_bytes -= connection.held_bytes
        connection.held_bytes = 0
        if self.paused.pop(connection, ...) is None:
            connection.resume()
        for paused in list(islice(self.paused, max((limits.HELD_BYTES - self.held_bytes) // limits.READ_BYTES, 0))):
            del self.paused[paused]
            paused.resume()

    def sweep(self) -> None:
        """Expire connections; if some are not read, refuse the requests that have been arriving for longest."""
        now = self.loop.time()
        for connection in tuple(self.all):
            if connection.deadline <= now:
                connection.abort(connection.state)
        before = now - limits.STALE_SECONDS if self.paused else -inf
        slow = [it for it in self.all if it.state in (Limit.HEADER_TIME, Limit.BODY_TIME) and it.since < before]
        for connection in sorted(slow, key=attrgetter("since")):
            if self.held_bytes <= limits.HELD_BYTES - limits.SPARE_BYTES:
                break
            if connection.state is Limit.HEADER_TIME:
                connection.abort(Limit.HELD_BYTES)
                self.release(connection)
            elif connection.refusal is None:
                message = f"requests being received take {limits.HELD_BYTES // limits.MIB} MiB: try again"
                connection.refuse(ReviewError(StatusReason.UNAVAILABLE, message), Limit.HELD_BYTES)
                if connection.task is not None:
                    connection.task.cancel()  # which then answers
        self.exceeded.log(now)


class HttpConnection(asyncio.BufferedProtocol):
    """One connection. Times are of the event loop's clock.

    `state`: what it waits for, as the limit that is exceeded at `deadline`: HANDSHAKE_TIME, IDLE_TIME (for a request),
    HEADER_TIME, BODY_TIME, REQUEST_TIME (for a response: WsgiCaller limits it), UNREAD_TIME (until it has been read).
    `since`: time of its last response, of the first byte of the request being received, or of its acceptance.
    `held_bytes`: of headers and bodies being received or waiting for a decision. `task`: uvicorn's call of the
    application. `refusal`: why the rest of the body is not kept. `authenticated`: the client presented a verified
    certificate.
    """

    def __init__(self, connections: Connections, accepted: socket.socket, peer: str) -> None:
        self.peer = peer
        self.authenticated = False
        self.since = connections.loop.time()
        self.state = Limit.HANDSHAKE_TIME
        self.deadline = inf
        self.held_bytes = 0
        self.task: Task[None] | None = None
        self.refusal: ReviewError | None = None
        self._connections = connections
        self._context = connections.context
        self._socket = accepted
        self._transport: asyncio.Transport | None = None
        self._http: HttpToolsProtocol | None = None
        self._overhead = 0
        """Bytes of headers, then of chunk sizes, chunk extensions and trailers, without the body's content."""

    @property
    def ends(self) -> bool:
        """True if the connection closes after the response."""
        shared = self._connections
        return shared.draining or self._context is not shared.context or self.refusal is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        # Contexts with client CAs demand a certificate (CERT_REQUIRED); others ask for none.
        self.authenticated = bool(transport.get_extra_info("peercert"))
        transport.set_write_buffer_limits(limits.WRITE_BUFFER_BYTES, 0)
        if self._context is not None:  # a paused TLS transport reads up to this
            transport.set_read_buffer_limits(1)  # type: ignore[attr-defined]
        self._http = HttpToolsProtocol(self._connections.config, self._connections.state, {"connection": self})
        self._http.connection_made(transport)
        self._await(Limit.IDLE_TIME, limits.FIRST_REQUEST_SECONDS)
        self.since = (
            self._connections.loop.time() + limits.UNFINISHED_SECONDS
        )  # no room is made by closing it until then

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        http, self._transport, self._http = self._http, None, None
        self._connections.all.pop(self, None)
        self._connections.release(self)
        if http is not None:
            http.connection_lost(None)  # with an exception, its timer would keep it
        if self.task is not None:
            self.task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's name
        return self._connections.buffer

    def buffer_updated(self, nbytes: int) -> None:
        http = self._http
        if http is None or http.transport.is_closing():
            return
        if self.state is Limit.REQUEST_TIME:
            self.abort(Limit.PIPELINED)
            return
        if self.state is Limit.IDLE_TIME:
            self.since, self._overhead = self._connections.loop.time(), 0
            self._await(Limit.HEADER_TIME, limits.HEADER_SECONDS)
        before, pending = http.cycle, len(http.cycle.body) if self.state is Limit.BODY_TIME else 0
        http.data_received(bytes(self._connections.buffer[:nbytes]))
        cycle = http.cycle
        if self.refusal is None and not self._connections.hold(self, nbytes):
            http.transport.pause_reading()
        if self.state is Limit.BODY_TIME:
            # Chunk sizes and the like may take as many bytes as the content, which is therefore subtracted twice.
            self._overhead = max(self._overhead + nbytes - 2 * (len(before.body) - pending), 0)
        elif cycle is before:
            self._overhead += nbytes
        else:
            self._overhead = 0
            self._await(Limit.BODY_TIME, self._connections.receive_seconds)
        if self.state is Limit.BODY_TIME:
            if http.parser.should_upgrade():
                self.abort()  # the body would be read as another request
            elif http.pipeline or http.scope is not cycle.scope:
                http.cycle = before  # uvicorn tells only this one that its client has left
                self.abort(Limit.PIPELINED)
            elif not cycle.more_body:
                self._await(Limit.REQUEST_TIME, inf)
        if self._overhead > limits.HEADER_BYTES or len(http.headers or ()) > limits.HEADERS:
            self.abort(Limit.HEADER_BYTES)

    def pause_writing(self) -> None:
        if self._http is not None:
            self._await(Limit.UNREAD_TIME, limits.UNREAD_SECONDS)
            self._http.pause_writing()
            self._http.transport.pause_reading()  # the next request waits

    def resume_writing(self) -> None:
        if self._http is not None:
            if self.task is None:
                self._await(Limit.IDLE_TIME, limits.IDLE_SECONDS)
            else:  # the response is not complete, or was "100 Continue"
                self._await(Limit.BODY_TIME, self._connections.receive_seconds)
            self._http.resume_writing()
            self.resume()

    # Called by the application's caller, the listener and `Connections`.

    def end_request(self) -> None:
        """Wait for the next request."""
        self.task, self.since = None, self._connections.loop.time()
        self._connections.release(self)
        if self.state is not Limit.UNREAD_TIME:
            self._await(Limit.IDLE_TIME, limits.IDLE_SECONDS)

    def refuse(self, refusal: ReviewError, limit: Limit) -> None:
        """Keep no more of the body, whose bytes are released at once."""
        self.count(limit)
        self.refusal = refusal
        self._connections.release(self)

    def count(self, limit: Limit) -> None:
        """Count an exceeded limit. Safe for use from several threads."""
        self._connections.exceeded.count(limit, self.peer)

    def resume(self) -> None:
        """Read on, unless the client has a response to read."""
        if self._transport is not None and self.state is not Limit.UNREAD_TIME:
            self._transport.resume_reading()

    def finish(self) -> None:
        """Close, unless a request is being received or answered, after which the connection closes."""
        if self._transport is None:
            self.abort()
        elif self.state is Limit.IDLE_TIME:
            self._transport.close()

    def abort(self, exceeded: Limit | None = None) -> None:
        """Close immediately, and count the limit that is the reason."""
        if exceeded is not None:
            self.count(exceeded)
        self.deadline = inf
        if self._transport is not None:
            self._transport.abort()
        else:  # in the handshake
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _await(self, state: Limit, seconds: float) -> None:
        self.state, self.deadline = state, self._connections.loop.time() + seconds
