"""HTTP/1.1 on one connection (RFC 9112), by raw sockets on loopback and by the protocol itself on a fake transport."""

import asyncio
import logging
import select
import socket
import struct
from asyncio import Future
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from email.utils import parsedate_to_datetime
from http.client import parse_headers
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http import limits
from server.http.connections import Occurrences
from server.http.limits import (
    BODY_BYTES,
    DISCARDED_BYTES,
    HEADER_BYTES,
    LARGE_BODY_BYTES,
    PIPELINED_REQUESTS,
    Limit,
)
from server.http.listener import Listener
from server.http.messages import Request, Response
from server.http.protocol import HttpProtocol
from tests.support.listener import Reachable, Recorder, Reply, pages, reachable
from tests.support.operating import until

LATE_SECONDS = 0.15
"""A time-out that a test waits for."""


@pytest.fixture(autouse=True)
def _swept_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time-outs are noticed soon, and a refused client is not waited for."""
    monkeypatch.setattr(limits, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(limits, "LINGER_SECONDS", 0.05)


def exceeded_by(exceeded: Occurrences[Limit]) -> dict[Limit, int]:
    """The limits that were exceeded, and how often."""
    return {limit: count for limit, count in exceeded.counts.items() if count}


def nothing_left(server: Reachable) -> bool:
    """Return True if all connections have ended and nothing is held for them."""
    connections = server.listener.connections
    return not connections and not connections.held_bytes


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def server(tmp_path: Path, recorder: Recorder, caplog: pytest.LogCaptureFixture) -> Iterator[Reachable]:
    """A plain listener. In the end nothing is held, and there was no unexpected error."""
    with reachable(tmp_path, recorder, secure=False) as found:
        yield found
        until(lambda: nothing_left(found), "the connections end")
    assert "unexpected error" not in caplog.text


def request(
    target: bytes = b"/",
    *lines: bytes,
    method: bytes = b"POST",
    version: bytes = b"HTTP/1.1",
    host: bool = True,
    body: bytes | None = None,
) -> bytes:
    """A request of these header lines; with a body, also Content-Length."""
    headers = [b"Host: x"] if host else []
    headers += lines
    if body is not None:
        headers.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([b"%b %b %b" % (method, target, version), *headers, b"", body or b""])


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailers + b"\r\n"


CHUNKED = b"Transfer-Encoding: chunked"
NEXT = request(b"/next", method=b"GET")
"""The request that would be smuggled."""


class Client:
    """One connection, whose answers are read one by one."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._file = connection.makefile("rb")

    def send(self, sent: bytes) -> None:
        self.connection.sendall(sent)

    def reply(self, method: str = "POST") -> Reply:
        return next_reply(self._file, method)

    def ended(self) -> bool:
        """Wait for the end; return True if nothing more comes."""
        try:
            return self._file.read() == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._file.close()
        self.connection.close()

    def reset(self) -> None:
        """End the connection with RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def next_reply(file: Any, method: str = "POST") -> Reply:
    """The next answer of a stream. 100 has no body, nor has any answer to HEAD."""
    line = file.readline()
    assert line.startswith(b"HTTP/1.1 "), line
    status = int(line.split()[1])
    headers = {name.lower(): value for name, value in parse_headers(file).items()}
    body = b"" if status == 100 or method == "HEAD" else file.read(int(headers["content-length"]))
    return Reply(status, headers, body)


@contextmanager
def client(server: Reachable, sent: bytes = b"") -> Iterator[Client]:
    with closing(Client(server.open(sent))) as found:
        yield found


def paths(recorder: Recorder) -> list[str]:
    return [found.path for found in recorder.requests]


def refuses(server: Reachable, recorder: Recorder, sent: bytes, status: int) -> None:
    """A request is refused with one answer, and nothing that follows it is handled."""
    with client(server, sent + NEXT) as one:
        answer = one.reply()
        assert (answer.status, answer.ends) == (status, True), answer.body
        assert one.ended()
    assert recorder.requests == []
    assert [refusal.status for refusal in recorder.refusals] == [status]


# What a gateway in front might read otherwise.

BODY = b"0\r\n\r\n"
"""An empty body in chunks, or one of five bytes."""

AMBIGUOUS = {
    "Content-Length, then Transfer-Encoding": (request(b"/", b"Content-Length: 5", CHUNKED) + BODY, 400),
    "Transfer-Encoding, then Content-Length": (request(b"/", CHUNKED, b"Content-Length: 5") + BODY, 400),
    "two equal Content-Length": (request(b"/", b"Content-Length: 5", b"Content-Length: 5") + BODY, 400),
    "two different Content-Length": (request(b"/", b"Content-Length: 5", b"Content-Length: 0") + BODY, 400),
    "list": (request(b"/", b"Content-Length: 5, 5") + BODY, 400),
    "plus": (request(b"/", b"Content-Length: +5") + BODY, 400),
    "minus": (request(b"/", b"Content-Length: -5") + BODY, 400),
    "hexadecimal": (request(b"/", b"Content-Length: 0x5") + BODY, 400),
    "underscore": (request(b"/", b"Content-Length: 0_5") + BODY, 400),
    "space inside": (request(b"/", b"Content-Length: 0 5") + BODY, 400),
    "no number": (request(b"/", b"Content-Length:") + BODY, 400),
    "decimal point": (request(b"/", b"Content-Length: 5.0") + BODY, 400),
    "digits of another script": (request(b"/", b"Content-Length: \xd9\xa5") + BODY, 400),
    "65 bits": (request(b"/", b"Content-Length: 18446744073709551621") + BODY, 400),
    "space before the colon": (request(b"/", b"Content-Length : 5") + BODY, 400),
    "space before the colon of Transfer-Encoding": (request(b"/", b"Transfer-Encoding : chunked") + BODY, 400),
    "gzip and chunked": (request(b"/", b"Transfer-Encoding: gzip, chunked") + BODY, 501),
    "gzip": (request(b"/", b"Transfer-Encoding: gzip") + BODY, 501),
    "gzip and chunked in two lines": (request(b"/", b"Transfer-Encoding: gzip", CHUNKED) + BODY, 501),
    "chunked, then gzip": (request(b"/", b"Transfer-Encoding: chunked, gzip") + BODY, 400),
    "identity": (request(b"/", b"Transfer-Encoding: identity") + BODY, 501),
    "xchunked": (request(b"/", b"Transfer-Encoding: xchunked") + BODY, 501),
    "chunked with a parameter": (request(b"/", b"Transfer-Encoding: chunked;q=1") + BODY, 501),
    "chunked twice": (request(b"/", CHUNKED, CHUNKED) + BODY, 400),
    "chunked twice in a list": (request(b"/", b"Transfer-Encoding: chunked, chunked") + BODY, 400),
    "no coding": (request(b"/", b"Transfer-Encoding:") + BODY, 400),
    "vertical tab": (request(b"/", b"Transfer-Encoding: \x0bchunked") + BODY, 400),
    "chunked in HTTP/1.0": (request(b"/", CHUNKED, version=b"HTTP/1.0") + BODY, 501),
    "chunked on a folded line": (request(b"/", b"Transfer-Encoding:", b" chunked") + BODY, 400),
    "folded line": (request(b"/", b"X: a", b" b"), 400),
    "line folded with a tab": (request(b"/", b"X: a", b"\tContent-Length: 5") + BODY, 400),
    "space before the first header": (b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    "no colon": (request(b"/", b"Content-Length") + BODY, 400),
    "no name": (request(b"/", b": a"), 400),
    "NUL in a value": (request(b"/", b"X: a\0b"), 400),
    "NUL in a name": (request(b"/", b"X\0: b"), 400),
    "non-ASCII name": (request(b"/", b"Content-Length\xa0: 5") + BODY, 400),
    "CR in a value": (request(b"/", b"X: a\rContent-Length: 5") + BODY, 400),
    "LF after a header": (b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400),
    "LF after every line": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "LF at the end": (b"GET / HTTP/1.1\r\nHost: x\r\n\n", 400),
    "CR after every line": (b"GET / HTTP/1.1\rHost: x\r\r", 400),
    "CR at the end": (b"GET / HTTP/1.1\r\nHost: x\r\n\rX", 400),
    "no Host": (request(host=False), 400),
    "two Host": (request(b"/", b"Host: x"), 400),
    "two Host in HTTP/1.0": (request(b"/", b"host: y", version=b"HTTP/1.0"), 400),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_request_is_refused_and_ends_the_connection(
    server: Reachable, recorder: Recorder, name: str
) -> None:
    refuses(server, recorder, *AMBIGUOUS[name])


UNREADABLE = {
    "space in the target": (request(b"/a b"), 400),
    "tabs": (b"GET\t/\tHTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "space after the version": (b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400),
    "method in lower case": (request(method=b"post"), 400),
    "unknown method": (request(method=b"FETCH"), 400),
    "protocol in lower case": (request(version=b"http/1.1"), 400),
    "HTTP/1.2": (request(version=b"HTTP/1.2"), 400),
    "HTTP/01.1": (request(version=b"HTTP/01.1"), 400),
    "HTTP/0.9 without a version": (b"GET /\r\n\r\n", 505),
    "HTTP/0.9": (request(version=b"HTTP/0.9"), 505),
    "HTTP/2.0": (request(version=b"HTTP/2.0"), 505),
    "preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "unknown protocol": (request(version=b"SIP/2.0"), 400),
    "Icecast": (request(version=b"ICE/1.0"), 400),
    **{f"RTSP/{at}": (request(b"/", version=f"RTSP/{at}".encode(), body=b"a"), 505) for at in ("1.0", "1.1", "2.0")},
    "handshake of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "NUL in the target": (request(b"/\0"), 400),
    "non-ASCII target": (request("/ü".encode()), 400),
    "target without a slash": (request(b"mutate"), 400),
    "empty target": (request(b""), 400),
    "CONNECT": (request(b"x:443", method=b"CONNECT"), 400),
    "CONNECT with a body": (request(b"x:443", method=b"CONNECT", body=b"12345"), 400),
    "h2c": (request(b"/", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AA"), 400),
    "WebSocket": (request(b"/", b"Connection: upgrade", b"Upgrade: websocket", method=b"GET"), 400),
    "another protocol with a body": (request(b"/", b"Connection: upgrade", b"Upgrade: h2c", body=b"12345"), 400),
    "another protocol with chunks": (request(b"/", b"Connection: upgrade", b"Upgrade: h2c", CHUNKED) + BODY, 400),
    "another expectation": (request(b"/", b"Expect: 200-ok", body=b"12345"), 417),
    "two expectations": (request(b"/", b"Expect: 100-continue, x", body=b"12345"), 417),
    "gzip": (request(b"/", b"Content-Encoding: gzip", body=b"12345"), 415),
    "several content codings": (request(b"/", b"Content-Encoding: identity, br", body=b"12345"), 415),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_bytes_that_are_not_a_request_are_refused_and_end_the_connection(
    server: Reachable, recorder: Recorder, name: str
) -> None:
    refuses(server, recorder, *UNREADABLE[name])


@pytest.mark.parametrize("size", [1, 2, 10, 15, 1000])
def test_rtsp_is_refused_in_any_pieces(recorder: Recorder, size: int) -> None:
    sent = request(b"/") + request(b"/", version=b"RTSP/1.0", body=b"abc")
    with direct(recorder) as wire:
        wire.feed(sent[at : at + size] for at in range(0, len(sent), size))
        assert [answer.status for answer in wire.replies()] == [200, 505]
    assert len(recorder.requests) == 1


def test_text_resembling_rtsp_or_a_content_coding_is_accepted(server: Reachable, recorder: Recorder) -> None:
    body = b'"POST / RTSP/1.0\r\n"'
    with client(server, request(b"/?RTSP/1.0", b"Content-Encoding: Identity", body=body)) as one:
        assert one.reply().status == 200
    assert recorder.bodies == [body]


CHUNKS = {
    "negative": b"-1\r\na\r\n0\r\n\r\n",
    "plus": b"+1\r\na\r\n0\r\n\r\n",
    "prefix": b"0x1\r\na\r\n0\r\n\r\n",
    "underscore": b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n",
    "no digit": b"g\r\na\r\n0\r\n\r\n",
    "no size": b"\r\na\r\n0\r\n\r\n",
    "extension without a size": b";a=b\r\n0\r\n\r\n",
    "leading space": b" 1\r\na\r\n0\r\n\r\n",
    "trailing space": b"1 \r\na\r\n0\r\n\r\n",
    "trailing tab": b"1\t\r\na\r\n0\r\n\r\n",
    "space before an extension": b"1 ;a\r\na\r\n0\r\n\r\n",
    "65 bits": b"10000000000000001\r\na\r\n0\r\n\r\n",
    "LF after the size": b"1\na\r\n0\r\n\r\n",
    "CR after the size": b"1\ra\r\n0\r\n\r\n",
    "LF after the data": b"1\r\na\n0\r\n\r\n",
    "nothing after the data": b"1\r\na0\r\n\r\n",
    "more data than its size": b"1\r\nab\r\n0\r\n\r\n",
    "LF after the last size": b"1\r\na\r\n0\n\r\n",
    "LF at the end": b"1\r\na\r\n0\r\n\n",
    "LF in an extension": b"1;a\nb\r\na\r\n0\r\n\r\n",
    "line break in a quoted extension": b'1;a="\r\n"\r\na\r\n0\r\n\r\n',
    "NUL in an extension": b"1;a\0\r\na\r\n0\r\n\r\n",
    "malformed trailer": b"0\r\nX y: a\r\n\r\n",
    "folded trailer": b"0\r\nX: a\r\n b\r\n\r\n",
}


@pytest.mark.parametrize("name", CHUNKS)
def test_malformed_chunks_are_refused_and_end_the_connection(server: Reachable, recorder: Recorder, name: str) -> None:
    refuses(server, recorder, request(b"/", CHUNKED) + CHUNKS[name], 400)


@pytest.mark.parametrize("name", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a_trailer_that_would_frame_the_body_is_refused(server: Reachable, recorder: Recorder, name: str) -> None:
    refuses(server, recorder, request(b"/", CHUNKED) + chunked(trailers=name.encode() + b"\r\n"), 400)


TRAILERS = [b"X: a\r\n", b"X:\r\n", b"X: a\r\nY: b\r\n", b"Host: y\r\n", b"Expect: x\r\n", b"Content-Type: a\r\n"]


@pytest.mark.parametrize("trailers", TRAILERS)
@pytest.mark.parametrize("split", [False, True])
def test_trailers_are_no_headers_of_this_request_or_the_next(recorder: Recorder, trailers: bytes, split: bool) -> None:
    sent = request(b"/", CHUNKED) + chunked(b"ab", trailers=trailers) + NEXT
    pieces = [sent[at : at + 1] for at in range(len(sent))] if split else [sent]
    with direct(recorder) as wire:
        wire.feed(pieces)
        assert [answer.status for answer in wire.replies()] == [200, 200]
    assert [list(found.headers) for found in recorder.requests] == [
        [(b"Host", b"x"), (b"Transfer-Encoding", b"chunked")],
        [(b"Host", b"x")],
    ]
    assert recorder.bodies == [b"ab", b""]


def test_headers_without_a_value_are_read_as_they_are(server: Reachable, recorder: Recorder) -> None:
    with client(server, request(b"/", b"Content-Type:", b"X: \t", b"Y:z ")) as one:
        assert one.reply().status == 200
    assert recorder.requests[0].headers[1:] == [(b"Content-Type", b""), (b"X", b""), (b"Y", b"z ")]


def test_chunk_extensions_are_ignored(server: Reachable, recorder: Recorder) -> None:
    with client(server, request(b"/", CHUNKED) + b'001;a=b;c="d"\r\na\r\nA\r\n0123456789\r\n0;x\r\n\r\n') as one:
        assert one.reply().status == 200
    assert recorder.bodies == [b"a0123456789"]


ENDLESS = {
    "trailers": (b"0\r\n", b"X: a\r\n" * 5_000),
    "one trailer": (b"0\r\nX: ", b"a" * 30_000),
    "one chunk extension": (b"1;a=", b"a" * 30_000),
    "quoted chunk extension": (b'1;a="', b"a" * 30_000),
    "chunk extensions": (b"", b"1;a=bcdefghijklmnopqrstuvw\r\na\r\n" * 1_000),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_framing_of_a_body_is_bounded(recorder: Recorder, name: str) -> None:
    begin, piece = ENDLESS[name]
    with direct(recorder) as wire:
        wire.feed([request(b"/", CHUNKED) + begin])
        sent = 0
        while not wire.written and sent < 2 * BODY_BYTES:
            wire.feed([piece])
            sent += len(piece)
        assert wire.written, f"{sent} bytes were read"
        [answer] = wire.replies()
        assert answer.status in (400, 413, 431)
        assert answer.ends
    assert recorder.requests == []


# One request after the other.


def test_pipelined_requests_are_answered_in_order(server: Reachable, recorder: Recorder) -> None:
    bodies = [b"x" * size for size in range(PIPELINED_REQUESTS)]
    sent = [
        request(b"/%d" % at, CHUNKED) + chunked(body) if at % 2 and body else request(b"/%d" % at, body=body)
        for at, body in enumerate(bodies)
    ]
    with client(server, b"".join(sent)) as one:
        assert [one.reply().body for _ in bodies] == [str(len(body)).encode() for body in bodies]
    assert recorder.bodies == bodies


def deliver(future: Future[Response], response: Response) -> None:
    """Answer, where somebody waits for it still."""
    if not future.done():
        future.set_result(response)


class Later:
    """A handler whose answers to `/later` come from a thread, when `released`."""

    def __init__(self) -> None:
        self.recorder = Recorder(self._answer)
        self.released = Event()
        self.loop: Any = None
        self._threads: list[Thread] = []

    def __call__(self, listener: Listener) -> Recorder:
        self.loop = listener.loop
        return self.recorder

    def _answer(self, found: Request) -> Response | Future[Response]:
        response = Response(200, found.path.encode())
        if found.path != "/later":
            return response
        future: Future[Response] = self.loop.create_future()

        def answer() -> None:
            self.released.wait()
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(deliver, future, response)

        self._threads.append(Thread(target=answer))
        self._threads[-1].start()
        return future

    def end(self) -> None:
        self.released.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def later() -> Iterator[Later]:
    found = Later()
    yield found
    found.end()


@pytest.fixture
def deferring(tmp_path: Path, later: Later, caplog: pytest.LogCaptureFixture) -> Iterator[Reachable]:
    with reachable(tmp_path, later, secure=False) as found:
        yield found
        later.released.set()
        until(lambda: nothing_left(found), "the connections end")
    assert "unexpected error" not in caplog.text


def test_a_request_waits_for_the_answers_before_its_own(deferring: Reachable, later: Later) -> None:
    with client(deferring, request(b"/later") + request(b"/b") + request(b"/later") + request(b"/d")) as one:
        until(lambda: later.recorder.requests, "the first request is handled")
        with client(deferring, request(b"/other")) as other:
            assert other.reply().body == b"/other"
        assert paths(later.recorder) == ["/later", "/other"]
        later.released.set()
        assert [one.reply().body for _ in range(4)] == [b"/later", b"/b", b"/later", b"/d"]


def test_more_pipelined_requests_than_may_wait_are_not_answered(deferring: Reachable, later: Later) -> None:
    count = 1 + PIPELINED_REQUESTS
    with client(deferring, b"".join([request(b"/later"), *[request(b"/%d" % at) for at in range(1, 100)]])) as one:
        until(lambda: deferring.listener.connections.exceeded.counts[Limit.PIPELINED], "the limit is exceeded")
        later.released.set()
        answers = [one.reply() for _ in range(count)]
        assert one.ended()
    assert [answer.body for answer in answers] == [b"/later", *[b"/%d" % at for at in range(1, count)]]
    assert [answer.ends for answer in answers] == [False] * (count - 1) + [True]
    assert len(later.recorder.requests) == count


def test_a_malformed_request_is_refused_after_earlier_answers(deferring: Reachable, later: Later) -> None:
    with client(deferring, request(b"/later") + request(b"/b") + request(host=False) + NEXT) as one:
        until(lambda: later.recorder.refusals, "the last request is refused")
        later.released.set()
        assert [one.reply().status for _ in range(3)] == [200, 200, 400]
        assert one.ended()
    assert paths(later.recorder) == ["/later", "/b"]


LAST = {
    "Connection: close": request(b"/last", b"Connection: close"),
    "close among others": request(b"/last", b"Connection: foo, Close"),
    "HTTP/1.0": request(b"/last", version=b"HTTP/1.0"),
    "HTTP/1.0 that would be kept alive": request(b"/last", b"Connection: keep-alive", version=b"HTTP/1.0"),
}


@pytest.mark.parametrize("name", LAST)
@pytest.mark.parametrize("together", [True, False])
def test_requests_after_the_last_one_of_a_connection_are_ignored(
    server: Reachable, recorder: Recorder, name: str, together: bool
) -> None:
    with client(server, LAST[name] + NEXT if together else LAST[name]) as one:
        if not together:
            until(lambda: recorder.requests, "the request is handled")
            with suppress(OSError):
                one.send(NEXT)
        answer = one.reply()
        assert (answer.status, answer.ends) == (200, True)
        assert one.ended()
    assert paths(recorder) == ["/last"]


@pytest.mark.parametrize("name", LAST)
@pytest.mark.parametrize("then", [NEXT, b"\x00 no request", b"\r\n"])
def test_requests_after_a_last_one_answered_later_are_ignored(
    deferring: Reachable, later: Later, name: str, then: bytes
) -> None:
    with client(deferring, LAST[name].replace(b"/last", b"/later")) as one:
        until(lambda: later.recorder.requests, "the request is handled")
        one.send(then)
        later.released.set()
        answer = one.reply()
        assert (answer.status, answer.ends) == (200, True)
        assert one.ended()
    assert paths(later.recorder) == ["/later"]


def test_a_request_after_connection_close_is_not_handled(server: Reachable, recorder: Recorder) -> None:
    server.listener.drain()
    with client(server, request(b"/last") + NEXT + NEXT) as one:
        assert one.reply().ends
        assert one.ended()
    assert paths(recorder) == ["/last"]


def test_a_connection_is_kept_for_many_requests(server: Reachable, recorder: Recorder) -> None:
    with client(server) as one:
        for at in range(100):
            one.send(request(b"/%d" % at, body=b"x" * at))
            answer = one.reply()
            assert (answer.status, answer.ends, answer.body) == (200, False, str(at).encode())
    assert len({id(found) for found in recorder.requests}) == 100


def test_line_breaks_before_a_request_are_skipped(server: Reachable, recorder: Recorder) -> None:
    with client(server, b"\r\n\r\n" + request(b"/a") + b"\r\n\r\n" + request(b"/b")) as one:
        assert [one.reply().status, one.reply().status] == [200, 200]
    assert paths(recorder) == ["/a", "/b"]


def test_http_1_0_needs_no_host_and_is_answered_once(server: Reachable, recorder: Recorder) -> None:
    with client(server, request(version=b"HTTP/1.0", host=False, body=b"abc")) as one:
        answer = one.reply()
        assert (answer.status, answer.body, answer.ends) == (200, b"3", True)
        assert one.ended()
    assert recorder.requests[0].version == "1.0"


# Expectations.


@pytest.mark.parametrize("secure", [False, True])
def test_a_client_that_expects_it_gets_100_continue(tmp_path: Path, recorder: Recorder, secure: bool) -> None:
    with reachable(tmp_path, recorder, secure=secure) as server, client(server) as one:
        for value in (b"100-continue", b"100-Continue"):
            one.send(request(b"/", b"Expect: " + value, b"Content-Length: 4"))
            assert one.reply().status == 100
            one.send(b"body")
            assert one.reply().body == b"4"


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(server: Reachable, recorder: Recorder) -> None:
    with client(server, request(b"/", b"Expect: 100-continue", b"Content-Length: %d" % (BODY_BYTES + 1))) as one:
        answer = one.reply()
        assert (answer.status, answer.ends) == (413, True)
        assert one.ended()
    assert recorder.requests == []


def test_http_1_0_gets_no_100_continue(server: Reachable) -> None:
    with client(server, request(b"/", b"Expect: 100-continue", version=b"HTTP/1.0", body=b"a")) as one:
        assert (one.reply().body, one.ended()) == (b"1", True)


def test_100_continue_is_sent_after_earlier_answers(deferring: Reachable, later: Later) -> None:
    with client(deferring, request(b"/later") + request(b"/b", b"Expect: 100-continue", b"Content-Length: 1")) as one:
        until(lambda: later.recorder.requests, "the first request is handled")
        later.released.set()
        one.connection.settimeout(5)
        assert (one.reply().body, one.reply().status) == (b"/later", 100)
        one.send(b"a")
        assert one.reply().body == b"/b"


# Targets, header names, methods.

PATHS = {
    b"https://host/path?q=1": ("/path", "q=1"),
    b"http://host": ("", ""),
    b"*": ("*", ""),
    b"//mutate": ("//mutate", ""),
    b"/..//%2e%2e/%00": ("/..//../\0", ""),
    b"/%C3%BC?%C3%BC": ("/\xc3\xbc", "%C3%BC"),
    b"/a?b?c": ("/a", "b?c"),
    b"/%61%zz?%": ("/a%zz", "%"),
    b"/%2561": ("/%61", ""),
    b"/" + b"a" * 15_000: ("/" + "a" * 15_000, ""),
}


@pytest.mark.parametrize("target", PATHS, ids=lambda target: target[:20].decode())
def test_the_path_is_decoded_once_and_the_query_is_not(server: Reachable, recorder: Recorder, target: bytes) -> None:
    with client(server, request(target)) as one:
        assert one.reply().status == 200
    assert [(found.path, found.query) for found in recorder.requests] == [PATHS[target]]


class Application:
    """A WSGI application that keeps what it was called with."""

    def __init__(self) -> None:
        self.environs: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.environs.append(environ)
        body = b"%d" % len(environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]


@pytest.mark.parametrize("target", [b"https://host/path?q=1", b"//mutate?", b"/%2e%2e/%00", b"/%C3%BC?%C3%BC"])
def test_an_application_gets_the_path_and_the_query(tmp_path: Path, recorder: Recorder, target: bytes) -> None:
    application = Application()
    for handler in (recorder, pages(application)):
        with reachable(tmp_path, handler, secure=False) as server, client(server, request(target)) as one:
            assert one.reply().status == 200
    [environ], [found] = application.environs, recorder.requests
    assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == (found.path, found.query)


@pytest.mark.parametrize("target", [b"http://h:99999999/x", b"http:///x", b"http://h:a/x", b"http://[::1/x"])
def test_an_impossible_target_is_the_clients_mistake(
    tmp_path: Path, target: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application()
    with reachable(tmp_path, pages(application), secure=False) as server, client(server, request(target)) as one:
        assert one.reply().status == 400
    assert application.environs == []
    assert "unexpected error" not in caplog.text


def test_an_application_gets_no_header_name_with_an_underscore(tmp_path: Path) -> None:
    application = Application()
    lines = (b"Content_Length: 9", b"X_Forwarded_For: a", b"X-Forwarded-For: b", b"X-A: 1", b"x-a: 2 ", b"User-Agent:")
    sent = request(b"/", *lines, b"Content-Type: a/b", body=b"123")
    with reachable(tmp_path, pages(application), secure=False) as server, client(server, sent) as one:
        assert one.reply().body == b"3"
    [environ] = application.environs
    assert environ["CONTENT_LENGTH"] == "3"
    assert environ["CONTENT_TYPE"] == "a/b"
    assert {name: value for name, value in environ.items() if name.startswith("HTTP_")} == {
        "HTTP_HOST": "x",
        "HTTP_X_FORWARDED_FOR": "b",
        "HTTP_X_A": "1,2",
        "HTTP_USER_AGENT": "",
    }


def test_head_gets_the_headers_of_the_omitted_body(tmp_path: Path, recorder: Recorder) -> None:
    application = Application()
    for handler in (recorder, pages(application)):
        sent = request(method=b"HEAD", body=b"x" * 12) + request(body=b"x" * 123)
        with reachable(tmp_path, handler, secure=False) as server, client(server, sent) as one:
            answer = one.reply("HEAD")
            assert (answer.status, answer.headers["content-length"]) == (200, "2")
            assert one.reply().body == b"123"


def test_an_answer_has_the_date_and_the_length_of_its_body(server: Reachable) -> None:
    with client(server, request(body=b"x" * 10) + request(host=False)) as one:
        for _ in range(2):
            answer = one.reply()
            assert answer.headers["content-type"] == "application/json"
            assert parsedate_to_datetime(answer.headers["date"]).tzinfo is not None
            assert answer.headers["date"].endswith(" GMT")


# How much.


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("name", ["one large header", "many small headers", "long target"])
def test_headers_that_are_too_large_are_refused(tmp_path: Path, recorder: Recorder, secure: bool, name: str) -> None:
    sent = {
        "one large header": request(b"/", b"X: " + b"a" * HEADER_BYTES),
        "many small headers": request(b"/", *[b"A: b"] * (HEADER_BYTES // 6)),
        "long target": request(b"/" + b"a" * HEADER_BYTES),
    }[name]
    with reachable(tmp_path, recorder, secure=secure) as server, client(server, sent) as one:
        answer = one.reply()
        assert (answer.status, answer.ends) == (431, True)
        assert exceeded_by(server.listener.connections.exceeded) == {Limit.HEADER_BYTES: 1}
    assert recorder.requests == []


@pytest.mark.parametrize("piece", [b"a", b"a: b\r\n" * 100])
def test_endless_headers_are_refused_once_they_are_too_large(recorder: Recorder, piece: bytes) -> None:
    with direct(recorder) as wire:
        sent = b"GET / HTTP/1.1\r\nHost: x\r\n"
        wire.feed([sent])
        count = len(sent)
        while not wire.written:
            assert count <= HEADER_BYTES + len(piece)
            wire.feed([piece])
            count += len(piece)
        assert [answer.status for answer in wire.replies()] == [431]


def test_headers_of_just_the_allowed_size_are_read(server: Reachable, recorder: Recorder) -> None:
    most = HEADER_BYTES - len(b"/Host: x\r\nX: \r\n")
    with client(server, request(b"/", b"X: " + b"a" * most) + request(b"/", b"X: " + b"a" * (most + 1))) as one:
        assert [one.reply().status, one.reply().status] == [200, 431]
    assert len(recorder.requests) == 1


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_client_that_keeps_sending_a_body_gets_the_answer(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, secure: bool, in_chunks: bool
) -> None:
    monkeypatch.setattr(limits, "LINGER_SECONDS", 5.0)
    size = BODY_BYTES + 2**20
    part = b"x" * 2**20
    with reachable(tmp_path, recorder, secure=secure) as server, client(server) as one:
        one.send(request(b"/", CHUNKED if in_chunks else b"Content-Length: %d" % size))
        for _ in range(size // len(part)):
            one.send(b"%x\r\n%b\r\n" % (len(part), part) if in_chunks else part)
        answer = one.reply()
        assert (answer.status, answer.ends) == (413, True)
        assert exceeded_by(server.listener.connections.exceeded) == {Limit.BODY_BYTES: 1}
        until(lambda: not server.listener.connections.held_bytes, "nothing is held")
    assert recorder.requests == []


def test_a_client_that_never_stops_sending_is_cut(
    server: Reachable, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_SECONDS", 60.0)
    part = b"x" * 2**20
    with client(server, request(b"/", b"Content-Length: %d" % 2**60)) as one:
        sent = 0
        with suppress(OSError):
            while sent < 4 * DISCARDED_BYTES:
                one.send(part)
                sent += len(part)
        assert sent < 4 * DISCARDED_BYTES
        assert one.reply().status == 413  # it was received before the connection was cut


def test_nothing_is_parsed_or_answered_after_a_refused_request(
    server: Reachable, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_SECONDS", 60.0)
    with client(server, request(host=False)) as one:
        assert one.reply().status == 400
        for _ in range(3):
            one.send(NEXT)
        one.connection.shutdown(socket.SHUT_WR)
        assert one.ended()
    assert recorder.requests == []


SIZES = [0, 1, LARGE_BODY_BYTES - 1, LARGE_BODY_BYTES, LARGE_BODY_BYTES + 1, BODY_BYTES]


def content(size: int) -> bytes:
    """Bytes of which no piece is like the next."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_a_body_is_received_whole(server: Reachable, recorder: Recorder, size: int) -> None:
    body = content(size)
    parts = [body[at : at + 50_000] for at in range(0, size, 50_000)]
    with client(server) as one:
        one.send(request(body=body))
        assert one.reply().body == str(size).encode()
        one.send(request(b"/", CHUNKED) + chunked(*parts))
        assert one.reply().body == str(size).encode()
    assert recorder.bodies == [body, body]


@pytest.mark.parametrize("size", [0, 1, LARGE_BODY_BYTES - 1, LARGE_BODY_BYTES + 1, BODY_BYTES])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_body_is_received_whole_in_whatever_pieces_it_comes(recorder: Recorder, size: int, in_chunks: bool) -> None:
    body = content(size)
    step = 1 if size <= LARGE_BODY_BYTES + 1 else 4093
    if in_chunks:
        chunk = 50 * step
        sent = request(b"/", CHUNKED) + chunked(*[body[at : at + chunk] for at in range(0, size, chunk)])
    else:
        sent = request(body=body)
    with direct(recorder) as wire:
        wire.feed(sent[at : at + step] for at in range(0, len(sent), step))
        assert [answer.body for answer in wire.replies()] == [str(size).encode()]
    assert recorder.bodies == [body]


def test_a_body_over_tls_is_received_whole(tmp_path: Path, recorder: Recorder) -> None:
    body = content(BODY_BYTES)
    with reachable(tmp_path, recorder) as server:
        assert server.ask("POST", "/", body).body == str(BODY_BYTES).encode()
        parts = [body[at : at + 100_000] for at in range(0, BODY_BYTES, 100_000)]
        assert server.ask("POST", "/", iter(parts)).body == str(BODY_BYTES).encode()
    assert recorder.bodies == [body, body]


# How long.

SLOW = {
    "blank line": (b"\r\n", b"", 408, Limit.HEADER_TIME),
    "blank lines that drip": (b"\r\n", b"\r\n", 408, Limit.HEADER_TIME),
    "request line": (b"GET", b"", 408, Limit.HEADER_TIME),
    "headers": (b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"a", 408, Limit.HEADER_TIME),
    "body": (request(b"/", b"Content-Length: 1000000"), b"", 400, Limit.BODY_TIME),
    "body that drips": (request(b"/", b"Content-Length: 1000000"), b"a", 400, Limit.BODY_TIME),
    "chunks": (request(b"/", CHUNKED), b"", 400, Limit.BODY_TIME),
    "chunks that drip": (request(b"/", CHUNKED), b"1\r\na\r\n", 400, Limit.BODY_TIME),
    "trailers that drip": (request(b"/", CHUNKED) + b"0\r\n", b"X: a\r\n", 400, Limit.BODY_TIME),
}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("name", SLOW)
def test_a_request_that_does_not_arrive_in_time_is_refused(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, name: str, secure: bool
) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", LATE_SECONDS)
    begin, piece, status, limit = SLOW[name]
    with (
        reachable(tmp_path, recorder, secure=secure, receive_seconds=LATE_SECONDS) as server,
        client(server, begin) as one,
    ):
        if piece:
            with suppress(OSError):  # it is not read for long once it is refused
                while not select.select([one.connection], [], [], 0.01)[0]:
                    one.send(piece)
        answer = one.reply()
        assert (answer.status, answer.ends) == (status, True)
        assert exceeded_by(server.listener.connections.exceeded) == {limit: 1}
        until(lambda: not server.listener.connections.held_bytes, "nothing is held")
        assert one.ended()
    assert recorder.requests == []


@pytest.mark.parametrize("sent", [b"", request()])
def test_an_idle_connection_is_closed_after_a_while(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(limits, "FIRST_REQUEST_SECONDS", LATE_SECONDS)
    monkeypatch.setattr(limits, "IDLE_SECONDS", LATE_SECONDS)
    with reachable(tmp_path, recorder, secure=False) as server, client(server, sent) as one:
        if recorder.requests or sent == request():
            assert one.reply().status == 200
        assert one.ended()
        assert exceeded_by(server.listener.connections.exceeded) == {Limit.IDLE_TIME: 1}


def test_a_connection_is_not_idle_while_its_request_is_under_way(
    tmp_path: Path, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IDLE_SECONDS", "FIRST_REQUEST_SECONDS", "HEADER_SECONDS"):
        monkeypatch.setattr(limits, name, 0.0)
    with reachable(tmp_path, later, secure=False) as server, client(server, request(b"/later")) as one:
        until(lambda: later.recorder.requests, "the request is handled")
        turned = server.listener.last_heartbeat
        until(lambda: server.listener.last_heartbeat > turned, "connections are looked through")
        later.released.set()
        assert one.reply().body == b"/later"
        assert one.ended()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_a_client_that_does_not_read_its_answers_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool, last: bool
) -> None:
    recorder = Recorder(lambda _: Response(200, b"x" * 2**24))
    sent = request(b"/", b"Connection: close") if last else request() * 10
    with reachable(tmp_path, recorder, secure=secure) as server:
        monkeypatch.setattr(limits, "UNREAD_SECONDS", LATE_SECONDS)  # not the system's timeout, which is set by now
        with client(server, sent):
            connections = server.listener.connections
            until(lambda: recorder.requests, "the first request is handled")
            until(lambda: not connections and not connections.held_bytes, "the connection is cut")
            assert exceeded_by(connections.exceeded).keys() == {Limit.UNREAD_TIME}
    # The others wait for the first answer to be read. TLS has a buffer of its own, and waits one answer later.
    assert len(recorder.requests) <= (2 if secure and not last else 1)


def test_a_client_that_does_not_read_its_last_answer_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_BUFFER_BYTES", 2**26)  # what is unread is not too much
    recorder = Recorder(lambda _: Response(200, b"x" * 2**24))
    with reachable(tmp_path, recorder, secure=False) as server:
        monkeypatch.setattr(limits, "UNREAD_SECONDS", LATE_SECONDS)
        with client(server, request(b"/", b"Connection: close")):
            until(lambda: recorder.requests, "the request is handled")
            until(lambda: not server.listener.connections, "the connection is cut")


def test_a_client_that_reads_late_gets_all_answers_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_BUFFER_BYTES", 1024)
    recorder = Recorder(lambda found: Response(200, found.path.encode() * 2**22))
    sent = [request(b"/%d" % at) for at in range(5)]
    with reachable(tmp_path, recorder, secure=False) as server, client(server, b"".join(sent)) as one:
        until(lambda: recorder.requests, "the first request is handled")
        assert len(recorder.requests) == 1
        for at in range(5):
            assert one.reply().body == b"/%d" % at * 2**22


# How connections end.


def test_a_half_closed_client_gets_the_answers_that_were_made(server: Reachable, recorder: Recorder) -> None:
    with client(server, request() * 3) as one:
        one.connection.shutdown(socket.SHUT_WR)
        assert [one.reply().status for _ in range(3)] == [200] * 3
        assert one.ended()


UNFINISHED = {
    "nothing": b"",
    "request line": b"GET / HT",
    "headers": b"GET / HTTP/1.1\r\nHost",
    "body": request(b"/", b"Content-Length: 100") + b"a" * 50,
    "chunks": request(b"/", CHUNKED) + b"5\r\nab",
    "trailers": request(b"/", CHUNKED) + b"0\r\nX",
    "answer": request(b"/later"),
    "pipelined request": request(b"/later") + request() + b"POST / HTTP",
    "refused request": request(host=False) + b"more",
}


@pytest.mark.parametrize("end", ["close", "reset", "half-close"])
@pytest.mark.parametrize("name", UNFINISHED)
def test_nothing_is_held_for_a_client_that_goes(
    deferring: Reachable, later: Later, name: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    connections = deferring.listener.connections
    one = Client(deferring.open(UNFINISHED[name]))
    with closing(one):
        until(lambda: len(connections), "the connection is accepted")
        if "later" in UNFINISHED[name].decode():
            until(lambda: later.recorder.requests, "the request is handled")
        if end == "half-close":
            one.connection.shutdown(socket.SHUT_WR)
        elif end == "reset":
            one.reset()
        else:
            one.close()
        if name == "pipelined request":
            later.released.set()  # nothing is read before that
        until(lambda: nothing_left(deferring), "the connection ends")
    handled = len(later.recorder.requests)
    with client(deferring, request(b"/other")) as other:
        assert other.reply().status == 200
    assert len(later.recorder.requests) == handled + 1
    assert caplog.text == ""


def test_a_client_that_resets_with_an_unread_answer_is_forgotten(tmp_path: Path) -> None:
    recorder = Recorder(lambda _: Response(200, b"x" * 2**24))
    with reachable(tmp_path, recorder, secure=False) as server:
        one = Client(server.open(request() * 10))
        until(lambda: recorder.requests, "the first request is handled")
        one.reset()
        until(lambda: nothing_left(server), "the connection ends")
    assert len(recorder.requests) == 1


# Our bugs.


def broken(found: Request) -> Response:
    if found.path == "/broken":
        raise RuntimeError("our bug")
    return Response(200, b"")


@pytest.mark.parametrize("before", [0, 1])
def test_a_handlers_error_is_logged_and_ends_with_500(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: int
) -> None:
    with reachable(tmp_path, Recorder(broken), secure=False) as server:
        with client(server, request(b"/a") * before + request(b"/broken") + NEXT) as one:
            one.connection.settimeout(5)
            answers = [one.reply() for _ in range(before + 1)]
            assert (answers[-1].status, answers[-1].ends) == (500, True)
            assert one.ended()
        with client(server, request(b"/b")) as other:
            assert other.reply().status == 200
    assert caplog.text.count("RuntimeError: our bug") == 1


def test_a_future_that_fails_is_logged_and_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(listener: Listener) -> Recorder:
        def fail(_: Request) -> Future[Response]:
            future: Future[Response] = listener.loop.create_future()
            listener.loop.call_soon(future.set_exception, RuntimeError("our bug"))
            return future

        return Recorder(fail)

    with reachable(tmp_path, handler, secure=False) as server, client(server, request() + NEXT) as one:
        assert one.ended()
        until(lambda: nothing_left(server), "the connection ends")
    assert "RuntimeError: our bug" in caplog.text


def test_an_applications_error_does_not_end_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    closed: list[bool] = []

    class Content:
        def __iter__(self) -> Iterator[bytes]:
            yield b"part"
            raise RuntimeError("our bug")

        def close(self) -> None:
            closed.append(True)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        if environ["PATH_INFO"] == "/bad":
            return Content()
        return [b"good"]

    with (
        reachable(tmp_path, pages(application), secure=False) as server,
        client(server, (request(b"/bad") + request(b"/good")) * 2) as one,
    ):
        assert [one.reply().status for _ in range(4)] == [500, 200, 500, 200]
    assert closed == [True, True]
    assert caplog.text.count("RuntimeError: our bug") == 2


def test_an_application_returns_its_answer_and_does_not_write_it(tmp_path: Path) -> None:
    def application(_environ: Any, start_response: Any) -> list[bytes]:
        with pytest.raises(NotImplementedError):
            start_response("404 Not Found", [("Content-Type", "a/b")])(b"")
        return [b"a", b"b"]

    with reachable(tmp_path, pages(application), secure=False) as server:
        answer = server.ask("GET", "/")
    assert (answer.status, answer.headers["content-type"], answer.body) == (404, "a/b", b"ab")


# Whatever is sent, in whatever pieces: without sockets, so that pieces arrive as they are cut.


class Wire(asyncio.Transport):
    """The transport of a connection whose client reads everything at once."""

    def __init__(self, protocol: HttpProtocol, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.paused = False
        self.protocol = protocol
        self.loop = loop
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closed:
            self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def turn(self) -> None:
        """One iteration of the event loop."""
        self.loop.run_until_complete(asyncio.sleep(0))

    def settle(self) -> None:
        """Answer what can be answered now."""
        written = -1
        while len(self.written) > written:
            written = len(self.written)
            self.turn()

    def feed(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            sent = memoryview(piece)
            while sent and not self.closed:
                buffer = self.protocol.get_buffer(-1)
                part, sent = sent[: len(buffer)], sent[len(buffer) :]
                buffer[: len(part)] = part
                self.protocol.buffer_updated(len(part))
                self.settle()

    def replies(self) -> list[Reply]:
        """All answers, in order."""
        stream, found = BytesIO(self.written), []
        while stream.tell() < len(self.written):
            found.append(next_reply(stream))
        return found


@contextmanager
def direct(recorder: Recorder) -> Iterator[Wire]:
    """A connection of a listener that is not started; in the end nothing is held."""
    with socket.socket() as bound, socket.socket() as unused:
        listener = Listener("test", bound, lambda _: recorder, connections=1)
        try:
            listener.date = b"Thu, 01 Jan 1970 00:00:00 GMT"
            wire = Wire(HttpProtocol(listener, unused, "127.0.0.1", None), listener.loop)
            yield wire
            wire.protocol.connection_lost(None)
            wire.turn()
            assert listener.connections.held_bytes == 0
        finally:
            listener.loop.close()


def cut(sent: bytes, at: Iterable[int]) -> list[bytes]:
    """Pieces that end at these places."""
    places = sorted({place % (len(sent) + 1) for place in at})
    return [sent[a:b] for a, b in zip([0, *places], [*places, len(sent)], strict=True) if a < b]


TOKENS = st.text("abcXYZ-1", min_size=1, max_size=6).map(lambda text: b"x-" + text.encode())
VALUES = st.binary(max_size=12).map(lambda value: bytes(32 + byte % 94 for byte in value))
BODIES = st.binary(max_size=40)


@st.composite
def valid_requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE"]))
    target = b"/" + draw(st.text("ab/%?.;=", max_size=8)).encode()
    lines = [b"%b: %b" % (name, value) for name, value in draw(st.lists(st.tuples(TOKENS, VALUES), max_size=3))]
    if draw(st.booleans()):
        return request(target, *lines, method=method, body=draw(st.none() | BODIES))
    chunks = [chunk for chunk in draw(st.lists(BODIES, max_size=3)) if chunk]
    trailers = b"".join(b"%b: %b\r\n" % one for one in draw(st.lists(st.tuples(TOKENS, VALUES), max_size=2)))
    return request(target, *lines, CHUNKED, method=method) + chunked(*chunks, trailers=trailers)


def seen(recorder: Recorder) -> list[tuple[Any, ...]]:
    """Return the requests that the handler was called with."""
    return [(it.method, it.path, it.query, tuple(it.headers), it.body, it.version) for it in recorder.requests]


CUTS = st.lists(st.integers(0, 4000), max_size=12)


def test_a_connection_is_not_idle_before_its_turn(recorder: Recorder) -> None:
    with direct(recorder) as wire:
        sent = request(b"/")
        wire.protocol.get_buffer(-1)[: len(sent)] = sent
        wire.protocol.buffer_updated(len(sent))
        before = wire.protocol.under_way, wire.written
        wire.turn()
        assert before == (True, b"")
        assert wire.written
        assert not wire.protocol.under_way


def test_a_request_that_makes_room_releases_its_bytes_at_once(recorder: Recorder) -> None:
    """Else a sweep would refuse every slow request, and not only as many as make room."""
    with direct(recorder) as wire:
        whole = request(b"/mutate", body=b"x" * 100_000)
        wire.feed([whole[:50_000]])
        assert wire.protocol.held_bytes > 0
        wire.protocol.make_room()
        assert wire.protocol.held_bytes == 0
        assert [reply.status for reply in wire.replies()] == [503]
        assert recorder.requests == []


@given(sent=st.lists(valid_requests(), min_size=1, max_size=6), cuts=CUTS)
def test_pipelined_requests_are_the_same_in_any_pieces(sent: list[bytes], cuts: list[int]) -> None:
    alone, together = Recorder(), Recorder()
    answers = []
    for one in sent:
        with direct(alone) as wire:
            wire.feed([one])
            answers += wire.replies()
    with direct(together) as wire:
        wire.feed(cut(b"".join(sent), cuts))
        assert not wire.closed
        assert wire.replies() == answers
    assert len(answers) == len(sent)
    assert seen(together) == seen(alone)


@given(sent=st.lists(valid_requests(), min_size=1, max_size=6), cuts=CUTS, delays=st.lists(st.booleans(), max_size=6))
def test_answers_in_time_or_later_are_the_same(sent: list[bytes], cuts: list[int], delays: list[bool]) -> None:
    pending: list[tuple[Future[Response], Response]] = []
    waits = iter(delays)

    def answer(found: Request) -> Response | Future[Response]:
        response = Response(200, b"%d" % len(found.body))
        if not next(waits, False):
            return response
        pending.append((wire.loop.create_future(), response))
        return pending[-1][0]

    def finish() -> None:
        """Answer what is under way, and what is next."""
        while pending:
            future, response = pending.pop()
            future.set_result(response)
            wire.turn()
            wire.settle()

    alone, deferring = Recorder(), Recorder(answer)
    with direct(alone) as wire:
        wire.feed(sent)
        expected = wire.written
    with direct(deferring) as wire:
        for piece in cut(b"".join(sent), cuts):
            if wire.paused or len(piece) % 2:
                finish()
            wire.feed([piece])
        finish()
        assert wire.written == expected
    assert seen(deferring) == seen(alone)


GOOD = [
    request(b"/0", body=b"hello"),
    request(b"/1", CHUNKED) + chunked(b"hello", b"world", trailers=b"X: a\r\n"),
    request(b"/2", method=b"GET"),
    request(b"/3", b"Connection: close", body=b"a"),
    request(b"/4", b"Connection: upgrade", b"Upgrade: h2c", method=b"GET"),
    request(b"/5", b"Expect: 100-continue", body=b"a"),
    request(b"/6", version=b"HTTP/1.0", body=b"a"),
    request(b"https://host/7?q", b"X: y", b"A:"),
]

BITS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"0\r\n\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: x\r\n", b"Connection: close\r\n", b"HTTP/1.0", b"\xff",
    b"5", b"ffffffffffffffff", b"Host: x\r\n", b"Connection: upgrade\r\nUpgrade: x\r\n", b"Expect: 100-continue\r\n",
    b"",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Requests in which something is replaced, put in, or left out."""
    sent = b"".join(draw(st.lists(st.sampled_from(GOOD), min_size=1, max_size=4)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(sent)))
        gone = draw(st.integers(0, 3))
        sent = sent[:at] + draw(st.sampled_from(BITS) | st.binary(max_size=3)) + sent[at + gone :]
    return sent


def outcome(sent: bytes, cuts: Iterable[int]) -> tuple[list[tuple[Any, ...]], list[int], bool]:
    """The requests that were handled, the status of each answer, and whether the connection ended."""
    recorder = Recorder()
    with direct(recorder) as wire:
        wire.feed(cut(sent, cuts))
        answers = wire.replies()
        ending = [answer.ends for answer in answers]
        assert True not in ending[:-1]  # nothing comes after the answer that ends the connection
    final = [answer.status for answer in answers if answer.status != 100]
    assert len(recorder.requests) + len(recorder.refusals) == len(final)
    return seen(recorder), final, any(ending)


@given(sent=mutated(), cuts=CUTS)
def test_any_bytes_are_answered_once_and_alike_in_any_pieces(
    sent: bytes, cuts: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    handled, statuses, ended = outcome(sent, cuts)
    assert set(statuses) <= {200, 400, 413, 417, 431, 501, 505}
    assert sum(status != 200 for status in statuses) <= 1
    assert (handled, statuses, ended) == outcome(sent, [])
    assert sum(len(body) for *_, body, _ in handled) <= len(sent)
    assert "unexpected error" not in caplog.text


@given(sent=mutated())
def test_a_listener_survives_whatever_is_sent(sent: bytes, server: Reachable, caplog: pytest.LogCaptureFixture) -> None:
    with client(server, sent) as one, suppress(ConnectionResetError):
        one.connection.shutdown(socket.SHUT_WR)
        while select.select([one.connection], [], [])[0] and one.connection.recv(65536):
            pass
    with client(server, request()) as one:
        assert one.reply().status == 200
    assert exceeded_by(server.listener.connections.exceeded).keys() <= {Limit.BODY_BYTES}
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_every_refused_connection_is_counted(server: Reachable, recorder: Recorder) -> None:
    sent: Sequence[bytes] = [request(host=False), request(b"/", b"X: " + b"a" * HEADER_BYTES)]
    for one in sent:
        with client(server, one) as refused:
            assert refused.reply().ends
    assert exceeded_by(server.listener.connections.exceeded) == {Limit.HEADER_BYTES: 1}
