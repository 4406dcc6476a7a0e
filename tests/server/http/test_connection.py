"""Connections of a listener: HTTP/1.1 over real sockets, and each bound on time, bytes and number."""

import gc
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.wrappers import Request, Response

from rules_engine.server.http import limits
from rules_engine.server.http.connection import HttpConnection
from rules_engine.server.http.limits import Limit
from tests.support.listener import Reachable, Recorder, reachable, reply
from tests.support.operating import until
from tests.support.server import PATIENCE_SECONDS

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def post(length: int, *lines: bytes) -> bytes:
    return b"\r\n".join([b"POST / HTTP/1.1", b"Host: x", *lines, b"Content-Length: %d" % length, b"", b""])


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def server(tmp_path: Path, recorder: Recorder, caplog: pytest.LogCaptureFixture) -> Iterator[Reachable]:
    """A plain listener. In the end nothing is held, and there was no unexpected error."""
    with reachable(tmp_path, recorder, secure=False) as found:
        yield found
        until(lambda: found.listener.counts[:3] == (0, 0, 0), "the connections end")
    assert "rror" not in caplog.text


class Waiting:
    """WSGI application that answers once it is told to."""

    def __init__(self) -> None:
        self.asked, self.proceed = Event(), Event()

    def __call__(self, request: Request) -> Response:
        self.asked.set()
        assert self.proceed.wait(PATIENCE_SECONDS)
        return Response("done")


def exceeded(server: Reachable, limit: Limit) -> int:
    return server.listener.counts.exceeded[limit.value]


def ended(connection: socket.socket) -> bool:
    """Wait for the end of a connection; return True if nothing more comes."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def large() -> int:
    """Return the length of a body that is answered in the thread."""
    return limits.SMALL_BYTES + 1


# HTTP.


@pytest.mark.parametrize("secure", [False, True])
def test_a_connection_is_kept_for_many_requests(tmp_path: Path, recorder: Recorder, secure: bool) -> None:
    with reachable(tmp_path, recorder, secure=secure) as server, closing(server.connect()) as connection:
        for size in (0, 5, limits.SMALL_BYTES, limits.SMALL_BYTES + 1, 300_000):
            connection.request("POST", "/", b"x" * size)
            answer = reply(connection)
            assert (answer.status, answer.body, answer.ends) == (200, str(size).encode(), False)
            assert answer.headers["date"].endswith("GMT")
        assert server.listener.counts.held_bytes == 0


@given(st.lists(st.binary(max_size=30), max_size=5), st.booleans(), st.lists(st.integers(1, 60), max_size=8))
def test_a_body_is_received_whole_in_whatever_pieces_it_comes(
    held: tuple[Reachable, Recorder], parts: list[bytes], in_chunks: bool, cuts: list[int]
) -> None:
    server, recorder = held
    body = b"".join(parts)
    sent = post(len(body)) + body
    if in_chunks:
        sent = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"
    with closing(server.open()) as connection:
        for cut in cuts:
            connection.sendall(sent[:cut])
            sent = sent[cut:]
        connection.sendall(sent)
        assert reply(connection).body == str(len(body)).encode()
    assert recorder.bodies[-1] == body


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Reachable, Recorder]]:
    recorder = Recorder()
    with reachable(tmp_path_factory.mktemp("held"), recorder, secure=False) as server:
        yield server, recorder


PIECES = [
    *(b"GET ", b"POST ", b"/ ", b"HTTP/1.1\r\n", b"Host: x\r\n", b"Content-Length: 3\r\n", b"Connection: close\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Upgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"\r\n", b"5\r\n", b"abc"),
    *(GET, CHUNKED),
]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=8), max_size=20).map(b"".join))
def test_a_listener_survives_whatever_is_sent(held: tuple[Reachable, Recorder], sent: bytes) -> None:
    server, _ = held
    with closing(server.open(sent)) as connection:
        connection.shutdown(socket.SHUT_WR)
        while not ended(connection):
            pass
    assert server.ask("GET", "/").status == 200
    until(lambda: server.listener.counts[:3] == (0, 0, 0), "it ends")


INVALID = {
    "both lengths": post(5, b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "two lengths": post(5, b"Content-Length: 5") + b"hello",
    "no number": GET.replace(b"Host: x", b"Content-Length: x"),
    "65 bits": GET.replace(b"Host: x", b"Content-Length: 18446744073709551621"),
    "folded line": GET.replace(b"Host: x", b"X: a\r\n b"),
    "NUL": GET.replace(b"Host: x", b"X: a\0b"),
    "chunk size": CHUNKED + b"x\r\n",
    "no HTTP": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    "not ASCII": b"GET /\xff HTTP/1.1\r\n\r\n",
    "no URL": b"GET http:// HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("name", INVALID)
def test_what_is_not_http_is_400_and_ends_the_connection(server: Reachable, recorder: Recorder, name: str) -> None:
    with closing(server.open(INVALID[name])) as connection:
        answer = reply(connection)
        assert (answer.status, answer.ends) == (400, True)
        assert ended(connection)
    assert recorder.requests == []


def test_a_client_that_expects_it_gets_100_continue(server: Reachable) -> None:
    with closing(server.open(post(2, b"Expect: 100-continue"))) as connection:
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ab")
        assert reply(connection).body == b"2"


def test_http_1_0_is_answered_once(server: Reachable) -> None:
    with closing(server.open(GET.replace(b"1.1", b"1.0"))) as connection:
        assert reply(connection).ends
        assert ended(connection)


def test_a_pipelined_request_ends_the_connection(tmp_path: Path) -> None:
    waiting = Waiting()
    with reachable(tmp_path, Recorder(waiting), secure=False) as server:
        with closing(server.open(post(large()) + b"x" * large())) as connection:
            assert waiting.asked.wait(PATIENCE_SECONDS)
            connection.sendall(GET)
            assert ended(connection)
        assert exceeded(server, Limit.PIPELINED) == 1
        waiting.proceed.set()
        with closing(server.open(GET * 500)) as connection:
            assert ended(connection)
        assert exceeded(server, Limit.PIPELINED) == 2


def test_a_request_in_the_read_that_ends_another_is_pipelined_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting()
    with reachable(tmp_path, Recorder(waiting), secure=False) as server:
        sent = post(large()) + b"x" * large()
        with closing(server.open(sent[:-1])) as connection:
            until(lambda: server.listener.counts.held_bytes == len(sent) - 1, "it is read")
            connection.sendall(sent[-1:] + GET)
            assert ended(connection)
        waiting.proceed.set()
        until(lambda: server.listener.counts[:3] == (0, 0, 0), "it ends")
        assert exceeded(server, Limit.PIPELINED) == 1
    gc.collect()
    assert "rror" not in caplog.text


# Bytes.


def headers(count: int, size: int) -> bytes:
    return b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (number, b"x" * size) for number in range(count))


@pytest.mark.parametrize("piece", [1000, 100_000])
@pytest.mark.parametrize(
    "sent",
    [
        headers(1, 2 * limits.HEADER_BYTES),
        headers(limits.HEADERS + 1, 1) + b"\r\n",
        b"GET /" + b"x" * 2 * limits.HEADER_BYTES,
    ],
)
def test_headers_beyond_their_bounds_end_the_connection(server: Reachable, sent: bytes, piece: int) -> None:
    with closing(server.open()) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            for begin in range(0, len(sent), piece):
                connection.sendall(sent[begin : begin + piece])
        assert ended(connection)
    assert exceeded(server, Limit.HEADER_BYTES) == 1


def test_headers_within_their_bounds_are_read(server: Reachable, recorder: Recorder) -> None:
    sent = headers(limits.HEADERS, 70)
    assert limits.HEADER_BYTES - 1000 < len(sent) < limits.HEADER_BYTES
    with closing(server.open(sent + b"\r\n")) as connection:
        assert reply(connection).status == 200
    assert "HTTP_X_99" in recorder.requests[0].environ


def test_trailers_and_the_next_head_are_bounded_too(tmp_path: Path, server: Reachable) -> None:
    with closing(server.open(CHUNKED + b"0\r\n")) as connection:
        connection.sendall(b"X: y\r\n" * (limits.HEADERS + 1))
        assert ended(connection)
    waiting = Waiting()
    with reachable(tmp_path, Recorder(waiting), secure=False) as slow:
        with closing(slow.open(post(large()) + b"x" * large())) as connection:
            assert waiting.asked.wait(PATIENCE_SECONDS)
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
            with suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(b"x" * 2**20)
            assert ended(connection)
        waiting.proceed.set()
        until(lambda: slow.listener.counts[:3] == (0, 0, 0), "it ends")


@pytest.mark.parametrize("framing", [b"0\r\nX: " + b"x" * 100_000, b"1;" + b"x" * 100_000, b"1\r\nx\r\n" * 20_000])
def test_what_frames_a_body_is_bounded(server: Reachable, framing: bytes) -> None:
    with closing(server.open(CHUNKED)) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            for begin in range(0, len(framing), 1000):
                connection.sendall(framing[begin : begin + 1000])
        assert ended(connection)
    assert exceeded(server, Limit.HEADER_BYTES) == 1


def test_trailers_are_bounded_even_after_a_large_body(server: Reachable) -> None:
    with closing(server.open(CHUNKED + b"%x\r\n%b\r\n0\r\nX: " % (300_000, b"x" * 300_000))) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(100):
                connection.sendall(b"x" * 1000)
            connection.sendall(b"\r\n\r\n")
        assert ended(connection)
    assert exceeded(server, Limit.HEADER_BYTES) == 1


def test_a_part_of_the_next_head_ends_the_connection(server: Reachable) -> None:
    with closing(server.open(GET + b"GET / HTTP/1.1\r\nX: y")) as connection:
        assert ended(connection)
    assert exceeded(server, Limit.PIPELINED) == 1


def test_trailers_are_no_headers(server: Reachable, recorder: Recorder) -> None:
    with closing(server.open(CHUNKED)) as connection:
        connection.sendall(b"1\r\nx\r\n")
        until(lambda: server.listener.counts.held_bytes > len(CHUNKED), "it is read")
        connection.sendall(b"0\r\nContent-Type: application/json\r\n\r\n")
        assert reply(connection).body == b"1"
    assert "CONTENT_TYPE" not in recorder.requests[0].environ


def test_a_connection_that_was_not_read_further_is_read_after_its_answer(
    server: Reachable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.HELD_BYTES", 60_000)
    monkeypatch.setattr("rules_engine.server.http.limits.SPARE_BYTES", 20_000)
    with closing(server.open(post(100_000) + b"x" * 50_000)), closing(server.connect()) as connection:
        until(lambda: server.listener.counts.held_bytes > 50_000, "there is little room")
        for _ in range(3):
            connection.request("POST", "/", b"x" * 15_000)
            assert reply(connection).body == b"15000"


def test_beyond_the_bytes_of_all_the_oldest_bodies_get_503(
    server: Reachable, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.HELD_BYTES", 300_000)
    monkeypatch.setattr("rules_engine.server.http.limits.SPARE_BYTES", 50_000)
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(server.open(post(100_000) + b"x" * 90_000))) for _ in range(6)]
        until(lambda: server.listener.counts.held_bytes > 300_000, "there is no more room")
        small = stack.enter_context(closing(server.open(post(1000) + b"x" * 1000)))
        assert reply(small).body == b"1000"
        answers = []
        for connection in slow:
            with suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(b"x" * 10_000)
            answers.append(reply(connection))
        refused = exceeded(server, Limit.HELD_BYTES)
        assert 0 <= refused < 6
        assert sorted(answer.status for answer in answers) == [200] * (6 - refused) + [503] * refused
    assert sorted(map(len, recorder.bodies))[-(6 - refused) :] == [100_000] * (6 - refused)


def test_bodies_that_stand_still_make_room_for_others(server: Reachable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.HELD_BYTES", 150_000)
    monkeypatch.setattr("rules_engine.server.http.limits.SPARE_BYTES", 50_000)
    monkeypatch.setattr("rules_engine.server.http.limits.STALE_SECONDS", 0.1)
    with ExitStack() as stack:
        still = [stack.enter_context(closing(server.open(post(100_000) + b"x" * 70_000))) for _ in range(3)]
        assert [server.ask("POST", "/", b"x" * 100_000).body for _ in range(2)] == [b"100000"] * 2
        assert reply(still[0]).status == 503
        assert exceeded(server, Limit.HELD_BYTES) >= 1


@pytest.mark.parametrize(
    "begun", [post(9000) + b"x" * 7000, b"GET / HTTP/1.1\r\nX: " + b"x" * 7000], ids=["bodies", "headers"]
)
def test_many_small_requests_that_stand_still_make_room_for_others(
    server: Reachable, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.HELD_BYTES", 60_000)
    monkeypatch.setattr("rules_engine.server.http.limits.SPARE_BYTES", 20_000)
    monkeypatch.setattr("rules_engine.server.http.limits.STALE_SECONDS", 0.1)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(closing(server.open(begun)))
        until(lambda: server.listener.counts.held_bytes == 10 * len(begun), "there is no more room")
        assert [server.ask("POST", "/", b"x" * 30_000).status for _ in range(2)] == [200, 200]
        assert 0 < exceeded(server, Limit.HELD_BYTES) < 10


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_an_upgrade_ends_the_connection_and_its_body_is_no_request(
    server: Reachable, recorder: Recorder, protocol: bytes
) -> None:
    head = post(len(GET), b"Connection: upgrade", b"Upgrade: " + protocol)
    with closing(server.open(head)) as connection, suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(GET)
        while connection.recv(1000):
            pass
    assert len(recorder.requests) <= 1


# Time.


@pytest.mark.parametrize(
    ("limit", "bound", "sent"),
    [
        (Limit.IDLE_TIME, "FIRST_REQUEST_SECONDS", b""),
        (Limit.HEADER_TIME, "HEADER_SECONDS", GET[:-2]),
        (Limit.BODY_TIME, "", post(5) + b"four"),
        (Limit.BODY_TIME, "", CHUNKED + b"5\r\nhel"),
    ],
    ids=["first request", "headers", "body", "chunked body"],
)
@pytest.mark.parametrize("secure", [False, True])
def test_what_does_not_arrive_in_time_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Limit, bound: str, sent: bytes, secure: bool
) -> None:
    if bound:
        monkeypatch.setattr(f"rules_engine.server.http.limits.{bound}", 0.1)
    with reachable(tmp_path, Recorder(), secure=secure, receive_seconds=0.1) as server:
        with closing(server.open(sent)) as connection:
            assert ended(connection)
        assert exceeded(server, limit) == 1
        until(lambda: server.listener.counts[:3] == (0, 0, 0), "its end")


def test_an_idle_connection_ends_after_a_while(server: Reachable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.IDLE_SECONDS", 0.1)
    with closing(server.open(GET)) as connection:
        assert reply(connection).status == 200
        assert ended(connection)
    assert exceeded(server, Limit.IDLE_TIME) == 1


def test_no_time_is_over_while_a_request_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("FIRST_REQUEST_SECONDS", "HEADER_SECONDS", "IDLE_SECONDS"):
        monkeypatch.setattr(f"rules_engine.server.http.limits.{bound}", 0.3)
    waiting = Waiting()
    with reachable(tmp_path, Recorder(waiting), secure=False, receive_seconds=0.3) as server:
        sent = post(large()) + b"x" * large()
        with closing(server.open(sent)) as connection, closing(server.open()) as idle:
            assert ended(idle)  # a connection that was opened later
            waiting.proceed.set()
            assert reply(connection).body == b"done"


@pytest.mark.parametrize("secure", [False, True])
def test_a_client_that_does_not_read_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.UNREAD_SECONDS", 0.1)
    recorder = Recorder(lambda _request: Response(b"x" * 8 * limits.MIB))
    with reachable(tmp_path, recorder, secure=secure) as server, closing(server.open(GET)):
        until(lambda: recorder.requests and server.listener.counts.open_connections == 0, "its end")
        # uvloop does not tell of a full buffer below TLS; there the system ends the connection.
        assert exceeded(server, Limit.UNREAD_TIME) == (0 if secure else 1)


def test_a_body_is_received_after_a_100_continue_that_was_read_late(server: Reachable) -> None:
    with closing(server.open(post(1, b"Expect: 100-continue"))) as connection:
        until(lambda: any(it.state is Limit.BODY_TIME for it in server.listener._connections.all), "its headers")
        (held,) = server.listener._connections.all
        for signal in (held.pause_writing, held.resume_writing):  # as uvloop does around a full buffer
            server.listener.loop.call_soon_threadsafe(signal)
        connection.sendall(b"x")
        with connection.makefile("rb") as file:
            assert [file.readline() for _ in range(3)] == [
                b"HTTP/1.1 100 Continue\r\n",
                b"\r\n",
                b"HTTP/1.1 200 OK\r\n",
            ]


def test_a_client_that_reads_late_gets_its_answers(tmp_path: Path) -> None:
    recorder = Recorder(lambda _request: Response(b"x" * 8 * limits.MIB))
    with reachable(tmp_path, recorder, secure=False) as server, closing(server.open(GET)) as connection:
        until(
            lambda: any(it.state is Limit.UNREAD_TIME for it in server.listener._connections.all),
            "the server cannot send all of it",
        )
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as file:
            answers = file.read()
        assert (answers.count(b"HTTP/1.1 200 OK"), answers.count(b"x" * limits.MIB)) == (2, 16)


# Number.


@pytest.mark.parametrize("begun", [GET[:-1], b""], ids=["unfinished", "unused"])
@pytest.mark.parametrize("stale", [False, True])
def test_room_is_made_by_idle_and_stale_connections_never_by_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: bool, begun: bytes
) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.UNFINISHED_SECONDS", -1.0 if stale else 1000.0)
    waiting = Waiting()

    def answer(request: Request) -> Response:
        return waiting(request) if request.method == "POST" else Response("at once")

    with reachable(tmp_path, Recorder(answer), secure=False, connections=3) as server, ExitStack() as stack:

        def opened(sent: bytes) -> socket.socket:
            return stack.enter_context(closing(server.open(sent)))

        asked = opened(post(large()) + b"x" * large())
        assert waiting.asked.wait(PATIENCE_SECONDS)
        unfinished = opened(begun)
        until(lambda: server.listener.counts.open_connections == 2 and not waiting.proceed.is_set(), "it is open")
        idle = opened(GET)
        assert reply(idle).body == b"at once"
        assert reply(opened(GET)).body == b"at once"
        assert exceeded(server, Limit.CONNECTIONS) >= 1
        assert ended(unfinished if stale else idle)
        waiting.proceed.set()
        assert reply(asked).body == b"done"


def test_without_room_new_connections_wait(tmp_path: Path) -> None:
    waiting = Waiting()
    with reachable(tmp_path, Recorder(waiting), secure=False, connections=1) as server, ExitStack() as stack:
        busy = stack.enter_context(closing(server.open(post(large()) + b"x" * large())))
        assert waiting.asked.wait(PATIENCE_SECONDS)
        new = stack.enter_context(closing(server.open(GET)))
        until(lambda: exceeded(server, Limit.CONNECTIONS) > 0, "it waits")
        waiting.proceed.set()
        assert reply(busy).status == 200
        assert reply(new).status == 200


def test_1000_calls_at_once_from_one_address_are_answered(server: Reachable) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(server.open(GET))) for _ in range(1000)]
        assert {reply(connection).status for connection in connections} == {200}


# Clients that leave.


@pytest.mark.parametrize("sent", [b"", GET[:20], post(9) + b"part", post(100_000) + b"x" * 90_000])
def test_nothing_is_held_for_a_client_that_leaves(server: Reachable, sent: bytes) -> None:
    with closing(server.open(sent)) as connection:
        until(lambda: server.listener.counts.held_bytes == len(sent), "it is read")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: server.listener.counts[:3] == (0, 0, 0), "its end")


def test_connections_that_have_ended_are_not_kept(server: Reachable) -> None:
    for _ in range(20):
        assert server.ask("POST", "/", b"body").status == 200
    until(lambda: server.listener.counts.open_connections == 0, "their end")
    gc.collect()
    assert sum(isinstance(it, HttpConnection) for it in gc.get_objects()) <= 1  # the last one
