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

from server.http import limits
from server.http.limits import Limit
from server.http.occurrences import Occurrences
from server.http.review import ReviewError, StatusReason

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
        self.all: dict[Connection, None] = {}
        self.paused: dict[Connection, None] = {}
        self.buffer = memoryview(bytearray(limits.READ_BYTES))
        self.state = ServerState()
        self.config = Config(
            application, interface="asgi3", http="httptools", ws="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, timeout_keep_alive=10 * int(limits.IDLE_SECONDS),
        )  # fmt: skip

    def make_room(self) -> bool:
        """Close connections if one more would exceed the limit. Return False if none can be closed."""
        if len(self.all) < self.limit:
            return True
        self.exceeded.count(Limit.CONNECTIONS)
        return self.close_some()

    def close_some(self) -> bool:
        """Close idle connections and unfinished requests that stand still, the oldest first; return False without any.

        A request that was received completely is answered.
        """
        now = self.loop.time()
        closable = [
            it for it in self.all
            if not it.under_way and it.since < now - (limits.UNUSED_SECONDS if it.idle else limits.STALE_SECONDS)
        ]  # fmt: skip
        for victim in nsmallest(max(self.limit // limits.CLOSED_SHARE, 1), closable, key=attrgetter("since")):
            self.all.pop(victim)
            victim.abort()
        return bool(closable)

    def hold(self, connection: "Connection", size: int) -> None:
        """Count `size` more bytes that a connection holds. Over the limit, it is not read further.

        One account, since a limit for each connection would exceed the memory of the server, or be too small for a pod.
        """
        connection.held_bytes += size
        self.held_bytes += size
        if self.held_bytes > limits.HELD_BYTES and connection.held_bytes > limits.FREE_BYTES:
            self.paused[connection] = None
            connection.pause()

    def release(self, connection: "Connection") -> None:
        """Release all bytes that a connection holds, and read others for which there is room."""
        self.held_bytes -= connection.held_bytes
        connection.held_bytes = 0
        if self.paused.pop(connection, ...) is None:
            connection.resume()
        for paused in list(islice(self.paused, max((limits.HELD_BYTES - self.held_bytes) // limits.READ_BYTES, 0))):
            del self.paused[paused]
            paused.resume()

    def sweep(self) -> None:
        """Expire connections; if some are not read, refuse the bodies that have been arriving for longest."""
        now = self.loop.time()
        for connection in tuple(self.all):
            if connection.deadline <= now:
                connection.expire()
        if self.paused:
            self._refuse_slow(now - limits.STALE_SECONDS)
        self.exceeded.log(now)

    def _refuse_slow(self, before: float) -> None:
        """Answer bodies that have been arriving since an earlier time, until there is room."""
        slow = [it for it in self.all if it.in_body and it.since < before]
        for connection in sorted(slow, key=attrgetter("since")):
            if self.held_bytes > limits.HELD_BYTES - limits.SPARE_BYTES and connection.held_bytes > limits.FREE_BYTES:
                connection.refuse(ReviewError(StatusReason.UNAVAILABLE, _NO_ROOM), Limit.HELD_BYTES)
                if connection.task is not None:
                    connection.task.cancel()  # which then answers


class Connection(asyncio.BufferedProtocol):
    """One connection. Times are of the event loop's clock.

    `since`: time of its last response, or of the first byte of the request being received, else of its acceptance.
    `held_bytes`: of headers and bodies being received or waiting for a decision. `task`: uvicorn's call of the
    application. `refusal`: why the rest of the body is not kept. `authenticated`: the client presented a verified
    certificate.
    """

    def __init__(self, connections: Connections, accepted: socket.socket, peer: str) -> None:
        self.peer = peer
        self.authenticated = False
        self.since = connections.loop.time()
        self.deadline = inf
        self.held_bytes = 0
        self.task: Task[None] | None = None
        self.refusal: ReviewError | None = None
        self._connections = connections
        self._context = connections.context
        self._socket = accepted
        self._transport: asyncio.Transport | None = None
        self._http: HttpToolsProtocol | None = None
        self._head_bytes = self._body_bytes = self._framing_bytes = 0
        """Bytes of the request that is being received. Framing: chunk sizes, chunk extensions and trailers."""
        self._blocked = False
        """True from the time the write buffer is full until it is empty."""

    @property
    def _cycle(self) -> Any:
        """uvicorn's request, from the end of its headers to the end of the response; else None."""
        cycle = None if self._http is None else self._http.cycle
        return None if cycle is None or cycle.response_complete else cycle

    @property
    def in_body(self) -> bool:
        """True while a body is received."""
        return self._cycle is not None and self._cycle.more_body

    @property
    def under_way(self) -> bool:
        """True from the end of a request to its response, unless the client does not read."""
        return self._cycle is not None and not self._cycle.more_body and not self._blocked

    @property
    def idle(self) -> bool:
        """True between requests; also before the first one."""
        return self._transport is not None and self._cycle is None and not self._head_bytes

    @property
    def ends(self) -> bool:
        """True if the connection closes after the response."""
        shared = self._connections
        return shared.draining or self._context is not shared.context or self.refusal is not None

    # Called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        # Contexts with client CAs demand a certificate (CERT_REQUIRED); others ask for none.
        self.authenticated = bool(transport.get_extra_info("peercert"))
        transport.set_write_buffer_limits(limits.WRITE_BUFFER_BYTES, 0)
        if self._context is not None:  # a paused TLS transport reads up to this
            transport.set_read_buffer_limits(1)  # type: ignore[attr-defined]
        self._http = HttpToolsProtocol(self._connections.config, self._connections.state, {"connection": self})
        self._http.connection_made(transport)
        self._expire_in(limits.FIRST_REQUEST_SECONDS)

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
        http, before = self._http, self._cycle
        if http is None or http.transport.is_closing():
            return
        in_head = before is None or not before.more_body
        body_bytes = 0 if before is None else len(before.body)
        if before is None and not self._head_bytes:
            self.since = self._connections.loop.time()
            self._expire_in(limits.HEADER_SECONDS)
        http.data_received(bytes(self._connections.buffer[:nbytes]))
        cycle = self._cycle
        if cycle is not before:
            self._head_bytes = self._body_bytes = self._framing_bytes = 0
            self._expire_in(self._connections.receive_seconds)
        elif in_head:
            self._head_bytes += nbytes
        else:
            received = len(cycle.body) - body_bytes
            self._body_bytes += received
            self._framing_bytes += nbytes - received
        if cycle is not None and not cycle.more_body and not self._blocked:
            self.deadline = inf
        if self.refusal is None:
            self._connections.hold(self, nbytes)
        if cycle is not None and http.parser.should_upgrade():
            self.abort()  # the body would be read as another request
        elif http.pipeline or (cycle is not None and http.scope is not cycle.scope):
            self._abort_for(Limit.PIPELINED)
        else:
            head_bytes = max(self._head_bytes, self._framing_bytes - self._body_bytes)
            if head_bytes > limits.HEADER_BYTES or len(http.headers or ()) > limits.HEADERS:
                self._abort_for(Limit.HEADER_BYTES)

    def pause_writing(self) -> None:
        self._blocked = True
        self._expire_in(limits.UNREAD_SECONDS)
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        self._blocked = False
        self._expire_in(limits.IDLE_SECONDS)
        if self._http is not None:
            self._http.resume_writing()

    # Called by the application's caller, the listener and `Connections`.

    def end_request(self) -> None:
        """Wait for the next request."""
        self.task, self.since = None, self._connections.loop.time()
        self._connections.release(self)
        if not self._blocked:
            self._expire_in(limits.IDLE_SECONDS)

    def refuse(self, refusal: ReviewError, limit: Limit) -> None:
        """Keep no more of the body, whose bytes are released at once."""
        self.count(limit)
        self.refusal = refusal
        self._connections.release(self)

    def count(self, limit: Limit) -> None:
        """Count an exceeded limit. Safe for use from several threads."""
        self._connections.exceeded.count(limit, self.peer)

    def expire(self) -> None:
        """Close, since the deadline is over."""
        received = Limit.BODY_TIME if self.in_body else Limit.HEADER_TIME if self._head_bytes else Limit.IDLE_TIME
        self._abort_for(Limit.UNREAD_TIME if self._blocked else received)

    def pause(self) -> None:
        """Read nothing until `resume`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None:
            self._transport.resume_reading()

    def finish(self) -> None:
        """Close, unless a request is being received or answered, after which the connection closes."""
        if self._transport is None:
            self.abort()
        elif self.idle:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        self.deadline = inf
        if self._transport is not None:
            self._transport.abort()
        else:  # in the handshake
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _abort_for(self, limit: Limit) -> None:
        self.count(limit)
        self.abort()

    def _expire_in(self, seconds: float) -> None:
        self.deadline = self._connections.loop.time() + seconds


_NO_ROOM = f"requests being received take {limits.HELD_BYTES // limits.MIB} MiB: try again"
