"""HTTP/1.1 on one connection (RFC 9112): requests in, responses out, in order. HTTP/2 and upgrades are not supported.

httptools (llhttp) parses strictly. Requests that it accepts but a proxy might parse differently are refused here:
transfer codings other than chunked, any of them in HTTP/1.0, other versions, a missing or second Host.

Why not an existing server: uvicorn and granian have no public options for the time of a handshake, of headers or of a
first request, for slow readers, or for closing idle connections under load, and a subclass of their protocols would
depend on private names. What is left for an own protocol on httptools is to decide when to read, answer and close.

Turns: a request is answered in the iteration of the event loop after its receipt, one of each connection. Connections
that become readable together are then first received and afterwards answered, one kind of work after the other, which
takes about a tenth less CPU than alternating (caches, branch predictors), and nobody gets ahead by pipelining.
"""

import asyncio
import logging
import re
import select
import socket
from asyncio import Future
from collections import deque
from contextlib import suppress
from functools import lru_cache, partial
from http import HTTPStatus
from math import inf
from typing import NoReturn, Protocol, cast
from urllib.parse import unquote_to_bytes

from httptools import HttpParserCallbackError, HttpParserError, HttpParserInvalidURLError, HttpRequestParser, parse_url

from server.http import limits
from server.http.connections import Connections
from server.http.limits import Limit
from server.http.messages import (
    BODY_TOO_LARGE,
    CONTENT_ENCODED,
    INTERNAL_ERROR,
    Headers,
    Refusal,
    Request,
    Response,
    refusal_response,
)

_log = logging.getLogger(__name__)


class Handler(Protocol):
    """Request handler of a listener."""

    def __call__(self, request: Request) -> "Response | Future[Response]":
        """Answer a request, now or later. Called in the event loop; never raises."""

    def refuse(self, refusal: Refusal, path: str) -> Response:
        """Return the response to a request that was not received completely; `path` may be "". Never raises."""

    def stop(self) -> None:
        """Start no more work in threads."""


class Service(Protocol):
    """State shared by the connections of a listener."""

    connections: Connections
    handler: Handler
    receive_seconds: float
    """Time to receive a body."""
    date: bytes
    """Value of the Date header."""
    buffer: memoryview
    """Receive buffer shared by all connections, so that idle ones need none."""

    def now(self) -> float:
        """Return the time of the event loop's clock."""

    def schedule(self, connection: "HttpProtocol") -> None:
        """Call `take_turn` of a connection in the next iteration of the event loop."""

    def ends(self, context: object) -> bool:
        """Return True if connections accepted with a TLS context close after their next response."""


class _RefusedError(Exception):
    """Stop parsing: the request was refused."""


class _Message:
    """A request that is being received. `framed_bytes`: the body's, with chunk sizes, extensions and trailers."""

    __slots__ = ("body", "expects", "framed_bytes", "headers", "request", "rtsp", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.request: Request | None = None
        """Its path, query and headers, once these are complete."""
        self.body = bytearray()
        self.framed_bytes = 0
        self.expects = False
        """True if the client waits for 100 Continue."""
        self.rtsp = False

    @property
    def in_body(self) -> bool:
        return self.request is not None


class HttpProtocol(asyncio.BufferedProtocol):
    """One connection.

    Receiving and answering are independent states, since a client may send its next request before it has the response:

    - receiving: nothing (`_message` is None), headers (`_message`), a body (`_message.in_body`), or bytes that are
      discarded (`_discarded` counts them; else it is None). A refused request is discarded rather than left unread:
      the kernel answers unread bytes with a reset, which may reach the client before the response does.
    - answering: complete requests and refusals wait in `_queue`, in order; the decision on one may be pending
      (`_future`); or the client does not read (`_blocked`), and then nothing further is answered.

    The end comes in two steps. `_last`: no further request is accepted, but the queued ones are answered. `_closing`:
    everything is written, and the connection closes once the client has read it.
    """

    def __init__(self, service: Service, accepted: socket.socket, peer: str, context: object) -> None:
        self._service = service
        self._connections = service.connections
        self._socket = accepted
        self._context = context
        self._transport: asyncio.Transport | None = None
        self._parser = HttpRequestParser(self)
        self._future: Future[Response] | None = None
        self._queue: deque[Request | Response] = deque()
        self._message: _Message | None = None
        self._last = False
        self._discarded: int | None = None
        self._reading = True
        """False while the transport is paused, for one of three reasons: `_paused`, `_blocked`, or queued requests."""
        self._paused = False
        """True while `Connections` has no room for more of it."""
        self._blocked = False
        """True from the time the write buffer is full until it is empty."""
        self._closing = False
        self._turn_scheduled = False
        """True if a request is answered before the next read."""
        self._authenticated = False
        """True if the client presented a verified certificate."""
        self.held_bytes = 0
        self._head_bytes = 0
        self._last_bytes = b""
        """Last bytes received: the end of a request line may arrive in parts."""
        self.peer = peer
        self.since = service.now()
        self.answered = False
        self.deadline = inf

    @property
    def under_way(self) -> bool:
        # A client that does not read its responses would hold its connection otherwise.
        return self._future is not None or (bool(self._queue) and not self._blocked)

    @property
    def idle(self) -> bool:
        return self._message is None and not self._blocked

    # Called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        # Contexts with client CAs demand a certificate (CERT_REQUIRED); others ask for none.
        self._authenticated = bool(transport.get_extra_info("peercert"))
        transport.set_write_buffer_limits(limits.WRITE_BUFFER_BYTES, 0)
        limit_reading = getattr(transport, "set_read_buffer_limits", None)
        if limit_reading is not None:  # a paused TLS transport still reads up to this
            limit_reading(limits.READ_AHEAD_BYTES)
        self._set_deadline(limits.FIRST_REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._transport = None
        del self._parser  # breaks a reference cycle
        self._connections.remove(self)
        self._release()
        self._queue.clear()
        if self._future is not None:
            self._future.cancel()

    def pause_writing(self) -> None:
        self._blocked = True
        self._control_reading()
        self.deadline = self._service.now() + limits.UNREAD_SECONDS

    def resume_writing(self) -> None:
        self._blocked = False
        if self._closing:
            self._close()
        elif self._transport is not None and not self._transport.is_closing():
            self._wait()
            self._control_reading()

    def eof_received(self) -> None:
        """Answer a request that arrived with the end of TLS, before the transport closes."""
        self._answer_next()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's name
        return self._service.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._discarded is not None:
            self._discarded += nbytes
            if self._discarded > limits.DISCARDED_BYTES:
                self.abort()
            return
        if self._message is not None and self._message.in_body:
            self._message.framed_bytes += nbytes
        else:
            self._head_bytes += nbytes
        try:
            self._feed(self._service.buffer[:nbytes])
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, _RefusedError):
                _log.error("unexpected error while parsing a request", exc_info=error.__context__)
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR)
        except HttpParserError as error:
            if self._message is not None or not self._last:
                self._refuse(HTTPStatus.BAD_REQUEST, f"the request is not HTTP/1.1: {error}")
        else:
            self._check_sizes()
        if not (self._message or self._queue or self._last) and self._future is None:
            self._begin()  # of a request after blank lines, which the parser skips
        if self._message or self._queue or self._future is not None:
            self._hold(nbytes)
        self._control_reading()

    def _feed(self, received: memoryview) -> None:
        """Feed the parser, and mark a request whose line ends in RTSP: llhttp accepts it, httptools does not tell."""
        begin, before = 0, len(self._last_bytes)
        text = self._last_bytes + received
        for match in _RTSP.finditer(text, 0, text.rfind(b"\r") + 2):  # most bodies have no line end
            end = match.end() - before
            self._parser.feed_data(received[begin:end])
            message = self._message
            if message is not None and not (message.in_body or message.headers):
                message.rtsp = True
            begin = end
        self._last_bytes = text[1 - _RTSP_BYTES :]
        if begin < len(received):
            self._parser.feed_data(received[begin:])

    def _check_sizes(self) -> None:
        message = self._message
        if message is None:
            return
        if not message.in_body and self._head_bytes > limits.HEADER_BYTES:
            self._refuse_large_headers()
        elif message.framed_bytes > limits.HEADER_BYTES + FRAMED_PER_BYTE * len(message.body):
            text = "the chunk extensions or trailers are too large"
            self._refuse(HTTPStatus.BAD_REQUEST, text, Limit.BODY_BYTES)

    # Called by httptools.

    def on_message_begin(self) -> None:
        if self._last or self._closing:
            self._discarded = 0
            raise _RefusedError
        self._begin()

    def _begin(self) -> None:
        """Begin to receive a request."""
        self._message = _Message()
        self.since = self._service.now()
        self._set_deadline(limits.HEADER_SECONDS)

    def on_url(self, url: bytes) -> None:
        self._current_message.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        message = self._current_message
        if message.in_body:
            return  # trailers are not read
        message.headers.append((name, value))
        if len(message.headers) > limits.HEADERS:
            self._refuse_large_headers()
            raise _RefusedError

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        parser, message = self._parser, self._current_message
        version = parser.get_http_version()
        path, query = self._split_target(message.target)
        message.request = request = Request(
            parser.get_method().decode(), path, query, message.headers, version=version, peer=self.peer,
            authenticated=self._authenticated,
        )  # fmt: skip
        length = self._read_headers(message, request)
        if parser.should_upgrade():
            self._stop(HTTPStatus.BAD_REQUEST, "protocol upgrades are not supported")
        if version != "1.1":
            self._last = True
        if length > limits.BODY_BYTES:
            self._refuse_large_body()
            raise _RefusedError
        self._set_deadline(self._service.receive_seconds)
        if message.expects:
            self._send_continue()

    def on_body(self, data: bytes) -> None:
        body = self._current_message.body
        if len(body) + len(data) > limits.BODY_BYTES:
            self._refuse_large_body()
            raise _RefusedError
        body += data

    def on_message_complete(self) -> None:
        self._last |= not self._parser.should_keep_alive()  # trailers count here
        message, self._message = self._current_message, None
        request = cast("Request", message.request)
        request.body = bytes(message.body)
        self._queue.append(request)
        if len(self._queue) + (self._future is not None) > 1 + limits.PIPELINED_REQUESTS:
            self._connections.exceeded.count(Limit.PIPELINED, self.peer)
            self._queue.pop()
            self._last = True
            self._discarded = 0
            raise _RefusedError

    @property
    def _current_message(self) -> _Message:
        """The request that httptools parses: it has called `on_message_begin`."""
        return cast("_Message", self._message)

    def _split_target(self, target: bytes) -> tuple[str, str]:
        """Return path and query of the request target."""
        path, _, query = target.partition(b"?")
        if not path.startswith(b"/"):  # https://host/path, or * for OPTIONS
            try:
                url = parse_url(target)
            except HttpParserInvalidURLError:
                self._stop(HTTPStatus.BAD_REQUEST, "the request target is not a URL")
            path, query = url.path or b"", url.query or b""
        return (unquote_to_bytes(path) if b"%" in path else path).decode("latin-1"), query.decode("latin-1")

    def _read_headers(self, message: _Message, request: Request) -> int:
        """Process the headers that the protocol uses, and return Content-Length. Refuse ambiguous requests."""
        hosts, length, size, version = 0, 0, len(message.target), request.version
        for name, value in message.headers:
            size += len(name) + len(value) + _SEPARATOR_BYTES
            match field := name.lower():
                case b"host":
                    hosts += 1
                case b"content-type":
                    text = value.decode("latin-1")
                    request.content_type += f",{text}" if request.content_type else text
                case b"content-length":
                    length = int(value)  # llhttp accepts only 64-bit numbers
                case b"transfer-encoding" | b"content-encoding" | b"expect":
                    only, status, wrong = _ONLY_VALUES[field]
                    if value.strip().lower() != only or (field == b"transfer-encoding" and version != "1.1"):
                        self._stop(status, wrong)
                    message.expects |= field == b"expect" and version == "1.1"
        if size > limits.HEADER_BYTES:
            self._refuse_large_headers()
            raise _RefusedError
        if version not in _VERSIONS or message.rtsp:
            self._stop(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "the server speaks HTTP/1.1")
        if hosts > 1 or (not hosts and version == "1.1"):
            self._stop(HTTPStatus.BAD_REQUEST, "a request must have one Host header")
        return length

    # Requests that are refused.

    def _stop(self, status: HTTPStatus, message: str) -> NoReturn:
        """Refuse the request that is being parsed, and stop parsing."""
        self._refuse(status, message)
        raise _RefusedError

    def _refuse(self, status: HTTPStatus, message: str, limit: Limit | None = None) -> None:
        """Respond to a request without reading the rest of it, then close the connection."""
        if limit is not None:
            self._connections.exceeded.count(limit, self.peer)
        request = self._message.request if self._message is not None else None
        path = request.path if request is not None else ""
        self._message = None
        self._last = True
        self._discarded = 0
        self._queue.append(self._service.handler.refuse(Refusal(status, message), path))
        self._answer_next()  # at once: `Connections.sweep` refuses others until enough bytes are released
        self._control_reading()

    def _refuse_large_headers(self) -> None:
        message = f"the headers are more than {limits.HEADERS}, or larger than {limits.HEADER_BYTES} bytes"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, Limit.HEADER_BYTES)

    def _refuse_large_body(self) -> None:
        self._refuse(BODY_TOO_LARGE.status, BODY_TOO_LARGE.message, Limit.BODY_BYTES)

    def overdue(self) -> None:
        if self._blocked or self._closing:
            self._connections.exceeded.count(Limit.UNREAD_TIME, self.peer)
            self.deadline = inf
            self.abort()
        elif self._discarded is not None and self._paused:
            self.abort()  # the end of TLS would read on
        elif self._discarded is not None:
            self._close()
        elif self._message is None:
            self._connections.exceeded.count(Limit.IDLE_TIME, self.peer)
            self._close()
        elif not self._message.in_body:
            message = f"the headers did not arrive within {limits.HEADER_SECONDS:g} s"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, message, Limit.HEADER_TIME)
        else:
            message = f"the body did not arrive within {self._service.receive_seconds:g} s"
            self._refuse(HTTPStatus.BAD_REQUEST, message, Limit.BODY_TIME)

    def make_room(self) -> None:
        if self._message is not None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, _NO_ROOM)

    # Responses.

    def _answer_next(self) -> None:
        """Answer the next queued request."""
        if not self._can_answer:
            return
        queued = self._queue.popleft()
        if isinstance(queued, Response):
            self._write(queued)
            return
        try:
            response = self._service.handler(queued)
        except Exception:  # a bug: handlers return errors as responses
            _log.exception("unexpected error while answering a request")
            self._last = True
            self._queue.clear()
            response = refusal_response(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR))
        if isinstance(response, Response):
            self._write(response, head_only=queued.method == "HEAD")
        else:
            self.deadline = inf
            self._future = response
            response.add_done_callback(partial(self._finish_answer, head_only=queued.method == "HEAD"))

    def _finish_answer(self, future: "Future[Response]", *, head_only: bool) -> None:
        self._future = None
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:  # a bug: handlers return errors as responses
            _log.error("unexpected error while answering a request", exc_info=error)
            self.abort()
            return
        self._write(future.result(), head_only=head_only)
        self._send_continue()
        self._control_reading()

    def take_turn(self) -> None:
        """Answer one request, so that clients who pipeline do not delay the others."""
        self._turn_scheduled = False
        self._answer_next()
        if self._queue or self._message is not None or not self._reading:
            self._send_continue()
            self._control_reading()

    def _send_continue(self) -> None:
        """Send 100 Continue if the client expects it and all earlier responses were sent."""
        message = self._message
        if message is None or not message.expects:
            return
        if self._future is None and not self._queue and self._transport is not None:
            message.expects = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    @property
    def _can_answer(self) -> bool:
        return bool(self._queue) and self._future is None and not self._blocked and self._transport is not None

    def _write(self, response: Response, *, head_only: bool = False) -> None:
        if self._transport is None:
            return
        service = self._service
        last = self._last and not self._queue and self._message is None
        closing = last or service.ends(self._context)
        content = b"" if head_only else response.body
        self._transport.write(
            b"%bContent-Length: %d\r\nDate: %b\r\n%b\r\n%b" % (
                _encode_head(response.status, response.headers), response.length, service.date,
                _CLOSE if closing else b"", content,
            )
        )  # fmt: skip
        self.since = service.now()
        self.answered = True
        if closing:
            self._queue.clear()
            if self._discarded is None:
                self._close()
                return
        self._wait()

    def _wait(self) -> None:
        """Set the next deadline; release held bytes if the connection is idle."""
        if self._discarded is not None:
            self._set_deadline(limits.LINGER_SECONDS)
        elif self._message is None:
            self._set_deadline(limits.IDLE_SECONDS)
        else:
            self._set_deadline(self._service.receive_seconds if self._message.in_body else limits.HEADER_SECONDS)
        if not (self._message or self._queue or self._future):
            self._release()

    def _set_deadline(self, seconds: float) -> None:
        if self._future is None and not self._blocked:
            self.deadline = self._service.now() + seconds

    def finish(self) -> None:
        """Close after the pending response, or at once if there is none."""
        self._last = True
        if self._transport is None:
            self.abort()
        elif self._future is None and not self._queue and self._message is None:
            self._close()

    def _close(self) -> None:
        """Close the connection once all written bytes are sent."""
        self._release()
        self._closing = True
        if self._transport is not None and not self._blocked:  # TLS would not wait for a client that reads slowly
            self._set_deadline(limits.UNREAD_SECONDS)
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        else:  # in the handshake
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    # Bytes that the connection holds.

    def _hold(self, size: int) -> None:
        self.held_bytes += size
        self._connections.hold(self, size)

    def _release(self) -> None:
        held, self.held_bytes = self.held_bytes, 0
        if held:
            self._connections.release(self, held)

    def pause(self) -> None:
        self._paused = True
        self._control_reading()

    def resume(self) -> None:
        # A request that was refused for want of room is not read to its end.
        if self._discarded is None:
            self._paused = False
            self._control_reading()

    def _control_reading(self) -> None:
        """Schedule a turn if there is a request to answer; pause or resume reading as the state demands."""
        transport = self._transport
        if transport is None or self._closing:
            return
        if self._can_answer and not self._turn_scheduled:
            self._turn_scheduled = True
            self._service.schedule(self)
        # One queued request is answered by the next turn; more of them would only wait, so the client waits instead.
        reading = not (self._paused or self._blocked or len(self._queue) > self._turn_scheduled)
        if reading != self._reading:
            self._reading = reading
            if reading:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def has_hung_up(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        return bool(poll.poll(0))


@lru_cache(maxsize=64)
def _encode_head(status: int, headers: Headers) -> bytes:
    """Return the encoded status line and headers; cached, since few combinations occur."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


_NO_ROOM = (
    f"requests being received take {limits.HELD_BYTES // limits.MIB} MiB, and this one was incomplete after "
    f"{limits.STALE_SECONDS:g} s: try again"
)

_VERSIONS = ("1.1", "1.0")

_ONLY_VALUES = {
    b"transfer-encoding": (b"chunked", HTTPStatus.NOT_IMPLEMENTED, "the only transfer coding is chunked, in HTTP/1.1"),
    b"content-encoding": (b"identity", CONTENT_ENCODED.status, CONTENT_ENCODED.message),
    b"expect": (b"100-continue", HTTPStatus.EXPECTATION_FAILED, "the only expectation that is met is 100-continue"),
}
"""The value that a header may have, and the refusal of others."""

_RTSP = re.compile(rb" RTSP/1\.[01]\r\n")
"""End of a request line that llhttp takes for HTTP, and httptools does not report."""

_RTSP_BYTES = len(b" RTSP/1.0\r\n")

FRAMED_PER_BYTE = 16
"""Maximum bytes received for each byte of a body: a chunk of one byte takes six."""

_SEPARATOR_BYTES = len(b": \r\n")
"""Bytes of a header line that are neither name nor value."""

_CLOSE = b"Connection: close\r\n"
