"""What the WSGI application is called with, and who waits for whom: over HTTPS, in the test's own process."""

import gc
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import repeat
from pathlib import Path
from threading import Barrier, Event, Thread, current_thread
from time import perf_counter
from typing import Any
from wsgiref.validate import validator

import pytest

from server.connections import open_files, unaccepted
from server.front import HEADER_BYTES, MAX_FILES
from server.gateway import ARRIVED, LARGE_BYTES, PATIENT_UNTIL, BusyError, Gateway, TakesLonger, _Request
from tests.support.gateway import Reachable, gateway, reachable, reply
from tests.support.operating import until
from tests.support.server import PATIENCE_SECONDS

MOST_BYTES = 256 * 1024
LATE_SECONDS = 0.2
"""For a body to come, where it does not."""


class Recorder:
    """An application that answers with the size of the body, and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        try:
            self.bodies.append(environ["wsgi.input"].read(-1))
        except BusyError:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"busy"]
        self.calls.append(environ)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(len(self.bodies[-1])).encode()]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def server(tmp_path: Path, recorder: Recorder) -> Iterator[Reachable]:
    with reachable(tmp_path, recorder, most_bytes=MOST_BYTES) as found:
        yield found


@pytest.fixture
def hurried(tmp_path: Path, recorder: Recorder) -> Iterator[Reachable]:
    with reachable(tmp_path, recorder, most_bytes=MOST_BYTES, receive_seconds=LATE_SECONDS) as found:
        yield found


def test_an_application_is_called_as_pep_3333_says(tmp_path: Path, recorder: Recorder) -> None:
    checked: Callable[..., Any] = validator(recorder)
    with reachable(tmp_path, checked) as server:
        headers = {"Content-Type": "application/json", "X-Two-Words": "a", "User-Agent": "test"}
        assert server.ask("POST", "/a/b?timeout=5s&x=%20", b"body", **headers).body == b"4"
        assert server.ask("GET", "/").body == b"0"
        assert server.ask("GET", "/b%C3%BCcher%20a").body == b"0"
    first, second, third = recorder.calls
    expected = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/a/b",
        "QUERY_STRING": "timeout=5s&x=%20",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "4",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "443",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": f"localhost:{server.port}",
        "HTTP_USER_AGENT": "test",
        "HTTP_X_TWO_WORDS": "a",
        "wsgi.url_scheme": "https",
        "wsgi.input_terminated": True,
    }
    assert {name: first.get(name) for name in expected} == expected
    assert "CONTENT_LENGTH" not in second
    assert "CONTENT_TYPE" not in second
    assert third["PATH_INFO"].encode("latin-1").decode() == "/bücher a"
    assert recorder.bodies == [b"body", b"", b""]


def test_a_header_that_is_there_twice_is_joined(server: Reachable, recorder: Recorder) -> None:
    with closing(server.open(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-A: 2\r\n\r\n")) as connection:
        assert reply(connection).status == 200
    assert recorder.calls[0]["HTTP_X_A"] == "1,2"


def test_an_answer_may_come_in_parts_and_is_closed(tmp_path: Path) -> None:
    class Parts(list[bytes]):
        closed = False

        def close(self) -> None:
            self.closed = True

    parts = Parts([b"a", b"b"])

    def application(_environ: Any, start_response: Any) -> Any:
        with pytest.raises(NotImplementedError):
            start_response("404 Not Found", [("A", "b")])(b"")
        return parts

    with reachable(tmp_path, application) as server:
        answer = server.ask("GET", "/")
    assert (answer.status, answer.headers["a"], answer.body, parts.closed) == (404, "b", b"ab", True)


def test_an_error_of_the_application_is_no_answer_and_the_next_request_gets_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def application(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        if environ["PATH_INFO"] == "/bad":
            raise RuntimeError("our bug")
        return [b"good"]

    with reachable(tmp_path, application) as server, closing(server.connect()) as connection:
        for path, expected in (("/bad", (500, b"")), ("/good", (200, b"good"))) * 2:
            connection.request("GET", path)
            answer = reply(connection)
            assert (answer.status, answer.body) == expected
    assert caplog.text.count("RuntimeError: our bug") == 2


def test_an_error_while_a_request_is_received_is_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    class Protocol:
        answers: list[Any] = []  # noqa: RUF012

        def response_bytes(self, *answer: Any) -> None:
            self.answers.append(answer)

    class Watcher:
        proto = Protocol()
        scope = None

    gateway(None).take(Watcher(), lambda: False)
    assert Watcher.proto.answers == [(500, [("Connection", "close")], b"")]
    assert "unexpected error while a request was received" in caplog.text


SIZES = [0, 1, LARGE_BYTES, LARGE_BYTES + 1, MOST_BYTES]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_comes_whole(server: Reachable, recorder: Recorder, size: int, chunked: bool) -> None:
    body = bytes(index % 251 for index in range(size))
    parts = iter([body[at : at + 10_000] for at in range(0, size, 10_000)])
    for _ in range(2):
        assert server.ask("POST", "/", parts if chunked else body).body == str(size).encode()
        parts = iter([body])
    assert recorder.bodies == [body, body]
    assert not server.gateway.large_bytes


def test_of_a_body_that_is_too_large_no_more_is_kept_than_shows_that(server: Reachable, recorder: Recorder) -> None:
    size = MOST_BYTES + 20_000
    assert server.ask("POST", "/", b"x" * size).body == b"0"
    assert recorder.calls[0]["CONTENT_LENGTH"] == str(size)
    assert server.ask("POST", "/", (b"x" * 10_000 for _ in range(size // 10_000))).body == str(MOST_BYTES + 1).encode()


def test_a_body_without_an_end_is_left_after_a_while(server: Reachable) -> None:
    with closing(server.open(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")) as connection:
        sent = 0
        try:
            while sent < 20 * MOST_BYTES:
                connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                sent += 4096
        except OSError:
            pass
        assert sent < 20 * MOST_BYTES
    assert server.ask("POST", "/", b"1").body == b"1"


BEGUN = {
    "small": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
    "nothing of it": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
    "large": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{",
    "too large": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n{",
    "chunked": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
}
"""Requests whose body does not go on."""


@pytest.mark.parametrize("begun", BEGUN)
def test_of_a_body_that_does_not_come_in_time_nothing_counts_and_the_answer_is_the_last(
    hurried: Reachable, recorder: Recorder, begun: str
) -> None:
    with closing(hurried.open(BEGUN[begun])) as connection:
        answer = reply(connection)
        assert (answer.body, answer.ends) == (b"0", True)
        assert connection.recv(1) == b""
    assert recorder.bodies == [b""]
    assert not hurried.gateway.large_bytes


def dripped(connection: ssl.SSLSocket, drop: bytes) -> bytes:
    """What has come by the next drop."""
    try:
        connection.sendall(drop)
        return connection.recv(65536)
    except TimeoutError:
        return b""


@pytest.mark.parametrize("begun", ["small", "chunked"])
def test_a_client_that_drips_is_late_all_the_same(hurried: Reachable, recorder: Recorder, begun: str) -> None:
    with closing(hurried.open(BEGUN[begun].replace(b": 10\r", b": 10000\r"))) as connection:
        connection.settimeout(0.02)
        drop = b" " if begun == "small" else b"1\r\n \r\n"
        until(lambda: dripped(connection, drop).startswith(b"HTTP/1.1 200 "), "the answer")
    assert recorder.bodies == [b""]


@pytest.mark.parametrize("begun", BEGUN)
def test_a_client_that_goes_away_is_not_waited_for(server: Reachable, recorder: Recorder, begun: str) -> None:
    server.open(BEGUN[begun]).close()
    until(lambda: recorder.calls, "the end of the body")
    assert not server.gateway.large_bytes
    assert server.ask("POST", "/", b"1").body == b"1"


def test_many_that_stall_hold_nobody_up_and_each_is_answered(hurried: Reachable) -> None:
    stalled = [hurried.open(BEGUN["small"]) for _ in range(50)]
    assert hurried.ask("POST", "/", b"12").body == b"2"
    for connection in stalled:
        assert reply(connection).ends
        connection.close()


def test_large_bodies_share_what_room_there_is(
    server: Reachable, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.gateway.LARGE_BODIES_BYTES", 150_000)
    with closing(server.open(BEGUN["large"])) as first:
        until(lambda: server.gateway.large_bytes, "the first")
        assert server.ask("POST", "/", b"x" * 100_000).status == 503
        assert server.ask("POST", "/", b"x" * LARGE_BYTES).status == 200
        first.sendall(b"x" * 99_999)
        assert reply(first).body == b"100000"
        # The connection goes on, and there is room again.
        first.sendall(BEGUN["large"] + b"x" * 99_999)
        assert reply(first).body == b"100000"
    assert len(recorder.calls) == 3


def test_a_body_of_unknown_size_takes_room_as_it_comes(server: Reachable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.gateway.LARGE_BODIES_BYTES", 3 * LARGE_BYTES)
    begun = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
    with closing(server.open(begun)) as first, closing(server.open(begun)) as second:
        until(lambda: server.gateway.large_bytes == 2 * LARGE_BYTES, "both")
        first.sendall(b"%x\r\n" % LARGE_BYTES + b"x" * LARGE_BYTES + b"\r\n0\r\n\r\n")
        assert reply(first).body == b"%d" % (LARGE_BYTES + 1)
        second.sendall(b"%x\r\n" % (2 * LARGE_BYTES) + b"x" * 2 * LARGE_BYTES + b"\r\n0\r\n\r\n")
        assert reply(second).status == 503
        second.sendall(begun + b"0\r\n\r\n")
        assert reply(second).body == b"1"
    assert not server.gateway.large_bytes


def test_a_large_body_that_does_not_come_makes_room_for_another(
    server: Reachable, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.gateway.LARGE_BODIES_BYTES", 250_000)
    with closing(server.open(BEGUN["large"])) as first, closing(server.open(BEGUN["large"])) as second:
        until(lambda: server.gateway.large_bytes == 200_000, "both")
        monkeypatch.setattr("server.gateway.STALE_SECONDS", 0.0)
        assert server.ask("POST", "/", b"x" * 100_000).status == 200
        answer = reply(first)
        assert (answer.status, answer.ends) == (503, True)
        second.sendall(b"x" * 99_999)
        assert reply(second).body == b"100000"
    assert not server.gateway.large_bytes


class Patient:
    """An application that takes long for /slow: it waits for `go`, in a thread of its own."""

    def __init__(self) -> None:
        self.go = Event()
        self.begun: list[str] = []
        self.arrived: list[float] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = environ["wsgi.input"].read()
        if environ["PATH_INFO"] == "/slow":
            self.begun.append(current_thread().name)
            self.arrived.append(environ[ARRIVED])
            if PATIENT_UNTIL in environ:
                assert environ[PATIENT_UNTIL] < perf_counter() + 1
                raise TakesLonger
            assert self.go.wait(PATIENCE_SECONDS)
        start_response("200 OK", [])
        return [body]


def test_what_takes_long_is_begun_again_where_it_holds_nobody_up(tmp_path: Path) -> None:
    application = Patient()
    with reachable(tmp_path, application) as server, closing(server.connect()) as slow:
        slow.request("POST", "/slow", b"slow body")
        until(lambda: len(application.begun) == 2, "the second begin")
        assert server.ask("POST", "/fast", b"fast body").body == b"fast body"
        application.go.set()
        assert reply(slow).body == b"slow body"
    assert application.begun[1].startswith("slow-request")
    assert not application.begun[0].startswith("slow-request")
    assert application.arrived[0] == application.arrived[1]


def test_a_large_body_is_decided_where_it_holds_nobody_up(tmp_path: Path) -> None:
    application = Patient()
    application.go.set()
    with reachable(tmp_path, application) as server:
        assert len(server.ask("POST", "/slow", b"x" * (LARGE_BYTES + 1)).body) == LARGE_BYTES + 1
    [name] = application.begun
    assert name.startswith("slow-request")


def test_all_slow_threads_are_used_at_once(tmp_path: Path) -> None:
    together = Barrier(3)

    def application(environ: Any, start_response: Any) -> list[bytes]:
        if PATIENT_UNTIL in environ:
            raise TakesLonger
        together.wait(PATIENCE_SECONDS)
        start_response("200 OK", [])
        return [b"x"]

    with reachable(tmp_path, application, slow_threads=3) as server:
        answers: list[bytes] = []
        threads = [Thread(target=lambda: answers.append(server.ask("GET", "/").body)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [b"x"] * 3


def test_what_takes_long_while_the_server_ends_is_told_so(tmp_path: Path) -> None:
    with reachable(tmp_path, Patient()) as server:
        server.gateway.stop()
        answer = server.ask("POST", "/slow", b"x")
    assert (answer.status, answer.ends) == (503, True)


def test_headers_are_bounded(server: Reachable) -> None:
    assert server.ask("GET", "/", None, **{"X-Large": "x" * (HEADER_BYTES - 1000)}).status == 200
    endless = server.open(b"GET / HTTP/1.1\r\nX-Large: ")
    with closing(endless), pytest.raises((ConnectionError, ssl.SSLError)):
        endless.sendall(b"x" * 64 * HEADER_BYTES)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX-Half: ", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_headers_that_do_not_come_and_idle_connections_are_ended(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("server.front.KEEP_ALIVE_SECONDS", 1)
    with reachable(tmp_path, recorder) as server, closing(server.open(sent)) as connection:
        while connection.recv(65536):
            pass
        assert server.ask("GET", "/").status == 200


def test_connections_over_the_bound_wait_until_another_ends(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.front.MAX_CONNECTIONS", 2)
    with reachable(tmp_path, recorder) as server, ExitStack() as stack:
        first, second = (stack.enter_context(closing(server.connect())) for _ in range(2))
        for connection in (first, second):
            connection.request("GET", "/")
            assert reply(connection).status == 200
        plain = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        plain.setblocking(False)
        third = server.context.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False)
        with closing(third):
            with pytest.raises(ssl.SSLWantReadError):
                third.do_handshake()  # it has begun
            for _ in range(100):
                first.request("GET", "/")
                assert reply(first).status == 200
            with pytest.raises(ssl.SSLWantReadError):
                third.do_handshake()
            second.close()
            third.settimeout(PATIENCE_SECONDS)
            third.do_handshake()
            third.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert reply(third).status == 200


def test_a_front_that_drains_ends_each_connection_with_its_answer(server: Reachable) -> None:
    with closing(server.connect()) as connection:
        connection.request("GET", "/")
        assert not reply(connection).ends
        server.front.drain()
        connection.request("GET", "/")
        assert reply(connection).ends


def test_whoever_is_connected_when_a_front_stops_is_answered(server: Reachable) -> None:
    count = 128
    connected = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) for _ in range(count)]

    with ThreadPoolExecutor(count + 1) as threads:
        stopped = threads.submit(server.front.stop, PATIENCE_SECONDS, settle_seconds=2.0)
        assert list(threads.map(asked, repeat(server), connected)) == [200] * count
        assert stopped.result()
    with pytest.raises(ConnectionRefusedError):
        server.ask("GET", "/")


@contextmanager
def flooded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> Iterator[tuple[Reachable, ExitStack]]:
    """A server that has no room for connections, until the second is closed."""
    open_before = open_files()
    monkeypatch.setattr("server.front.MAX_FILES", 2 * open_before + 50)
    with reachable(folder, Recorder()) as server, ExitStack() as flood:
        for _ in range(open_before + 50):
            # Each is two files of this process, in which the server runs too.
            flood.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS))
        until(lambda: "no more connections are taken" in logged.text, "the bound")
        yield server, flood
        until(lambda: "connections are taken again" in logged.text, "its end")


def test_who_comes_while_too_many_handshakes_are_under_way_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with flooded(tmp_path, monkeypatch, caplog) as (server, flood):
        waiting = [socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) for _ in range(3)]
        until(lambda: unaccepted(server.listener) >= 3, "who waits")
        flood.close()
        assert [asked(server, plain) for plain in waiting] == [200] * 3


def test_where_nobody_else_can_wait_the_first_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with flooded(tmp_path, monkeypatch, caplog) as (server, flood):
        server.listener.listen(1)
        address = ("127.0.0.1", server.port)
        first, second = (socket.create_connection(address, PATIENCE_SECONDS) for _ in range(2))
        until(lambda: unaccepted(server.listener) == 2, "who waits")
        flood.close()
        assert asked(server, second) == 200
        with closing(first), suppress(ConnectionResetError):
            assert first.recv(1) == b""


def asked(server: Reachable, plain: socket.socket) -> int:
    """The status of the answer to a request on a connection that is there."""
    with server.context.wrap_socket(plain, server_hostname="localhost") as secure:
        secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return reply(secure).status


def test_the_system_says_how_many_connections_nobody_has_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as listener, ExitStack() as stack:
        assert unaccepted(listener) == 0
        for _ in range(3):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        assert unaccepted(listener) == 3
        listener.accept()[0].close()
        assert unaccepted(listener) == 2


def test_open_files_are_counted_whether_or_not_the_system_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_files()
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.socket())
        assert open_files() == before + 3
    monkeypatch.setattr("server.connections._FILES", folder := Path("/proc/self/task"))
    assert folder.stat().st_size == 0
    assert 1 <= open_files() < MAX_FILES
    monkeypatch.setattr("server.connections._FILES", folder / "0")
    assert open_files() > MAX_FILES


def test_a_gateway_that_is_stopped_gives_up_nobody(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    made: Gateway = gateway(recorder, receive_seconds=0.01)
    made.start()
    made.stop()
    assert not recorder.calls
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_connection_that_says_nothing_is_no_request(server: Reachable, recorder: Recorder) -> None:
    with socket.create_connection(("127.0.0.1", server.port)):
        assert server.ask("GET", "/").status == 200
    assert len(recorder.calls) == 1


@pytest.mark.parametrize("begun", BEGUN)
def test_nothing_is_left_of_requests_that_were_answered(
    hurried: Reachable, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    """granian's objects are unknown to the garbage collector: what they hold in a circle would stay for ever."""

    def left() -> list[object]:
        return [one for one in gc.get_objects() if type(one) is _Request]

    with closing(hurried.open(BEGUN[begun])) as connection:
        assert reply(connection).ends
    hurried.open(BEGUN[begun]).close()
    until(lambda: len(recorder.calls) == 2, "the end of the body")
    assert hurried.ask("POST", "/", b"x" * 200_000).status == 200
    assert hurried.ask("POST", "/", b"x").status == 200
    monkeypatch.setattr("server.gateway.LARGE_BODIES_BYTES", 0)
    assert hurried.ask("POST", "/", b"x" * 200_000).status == 503
    until(lambda: not left(), "the end of every request")
