"""A listener from its start to its end: handshakes, files, limits and what is under way when it stops."""

import errno
import logging
import os
import resource
import socket
import ssl
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest
from werkzeug.wrappers import Request, Response

from rules_engine.server.http.limits import (
    CONNECTIONS,
    LEAST_CONNECTIONS,
    PLAIN_CONNECTIONS,
    RESERVED_FILES,
    SMALL_BYTES,
    SWEEP_SECONDS,
    Limit,
)
from rules_engine.server.http.listener import Listener
from rules_engine.server.http.sockets import share_of_connections
from rules_engine.server.tls import identity as tls
from tests.support.certificates import certified
from tests.support.listener import Reachable, Recorder, reachable, reply
from tests.support.operating import until
from tests.support.server import PATIENCE_SECONDS

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (SMALL_BYTES + 1) + bytes(SMALL_BYTES + 1)
"""A request that is answered in the thread."""

BEGUN = LARGE[:-5]
"""A request that does not go on."""

SHORT_SECONDS = 0.2
"""A grace period, and the time for a handshake, that is used up."""


class Waiting(Recorder):
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(self._later)
        self.proceed = Event()

    def _later(self, _request: Request) -> Response:
        assert self.proceed.wait(PATIENCE_SECONDS)
        return Response("decided")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Reachable]:
    with reachable(tmp_path, Recorder()) as found:
        yield found


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Reachable]:
    """Without TLS."""
    with reachable(tmp_path, Recorder(), secure=False) as found:
        yield found


@pytest.fixture
def hurried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reachable]:
    """A server that waits for a handshake for a short time only."""
    monkeypatch.setattr("rules_engine.server.http.limits.HANDSHAKE_SECONDS", SHORT_SECONDS)
    with reachable(tmp_path, Recorder()) as found:
        yield found


@contextmanager
def waiting(folder: Path, connections: int = 8) -> Iterator[tuple[Reachable, Waiting, socket.socket]]:
    """A server, its application, and a connection whose request is being decided in the thread."""
    application = Waiting()
    with reachable(folder, application, secure=False, connections=connections) as server:
        try:
            with closing(server.open(LARGE)) as deciding:
                until(lambda: application.requests, "the request")
                yield server, application, deciding
        finally:
            application.proceed.set()


def connect(server: Reachable) -> socket.socket:
    """A connection that says nothing, not even in TLS."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)


def ended(connection: socket.socket) -> bool:
    """Return True if the other side ends a connection without a response."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def asked(server: Reachable, plain: socket.socket) -> int:
    """The status of the answer to a request on a connection whose handshake is yet to come."""
    assert server.context is not None
    with server.context.wrap_socket(plain, server_hostname="localhost") as secure:
        secure.sendall(GET)
        return reply(secure).status


def count(server: Reachable, limit: Limit) -> int:
    return server.listener.counts.exceeded[limit.value]


def unexpected(logged: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in logged.records if record.levelno >= logging.ERROR]


# From the start to the stop.


@pytest.mark.parametrize("secure", [False, True])
def test_requests_are_answered_from_the_start_to_the_stop(tmp_path: Path, secure: bool) -> None:
    recorder = Recorder()
    with reachable(tmp_path, recorder, secure=secure) as server:
        assert server.ask("POST", "/", b"body").body == b"4"
        assert server.listener.stop(PATIENCE_SECONDS)
        with pytest.raises(ConnectionRefusedError):
            server.ask("GET", "/")
        assert server.listener.stop(PATIENCE_SECONDS), "a second time changes nothing"
    assert [request.remote_addr for request in recorder.requests] == ["127.0.0.1"]


def test_a_stop_before_the_start_frees_the_address() -> None:
    bound = socket.create_server(("127.0.0.1", 0))
    bound.close()
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    address = bound.getsockname()
    made = Listener("test", bound, Recorder(), connections=8)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    assert made.stop(PATIENCE_SECONDS)
    with socket.create_server(address):
        pass


def test_a_new_certificate_applies_from_the_next_connection_on() -> None:
    one, two = certified("one"), certified("two")
    made = Listener("test", socket.create_server(("127.0.0.1", 0)), Recorder(), connections=8)
    made.serve(tls.server_context(one.identity()))
    trusting = ssl.create_default_context(cadata=one.certificate.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    server = Reachable(made, made.address[1], trusting)
    with closing(server.connect()) as kept:
        kept.request("GET", "/")
        assert not reply(kept).ends
        made.serve(tls.server_context(two.identity()))
        with pytest.raises(ssl.SSLCertVerificationError):
            server.ask("GET", "/")
        trusting.load_verify_locations(cadata=two.certificate.decode())
        assert server.ask("GET", "/").status == 200
        kept.request("GET", "/")
        assert reply(kept).ends, "a connection with the old certificate ends with its next response"
    assert made.stop(PATIENCE_SECONDS)


def test_draining_ends_each_connection_with_its_next_response(server: Reachable) -> None:
    with closing(server.connect()) as connection:
        connection.request("GET", "/")
        assert not reply(connection).ends
        server.listener.drain()
        connection.request("GET", "/")
        assert reply(connection).ends
    assert server.ask("GET", "/").ends, "new connections are still answered"


def test_the_listener_knows_when_its_event_loop_last_turned(server: Reachable) -> None:
    listener, blocked, go = server.listener, Event(), Event()
    before = listener.last_heartbeat
    until(lambda: listener.last_heartbeat > before, "a turn")

    def block() -> None:
        blocked.set()
        go.wait(PATIENCE_SECONDS)

    listener.loop.call_soon_threadsafe(block)
    assert blocked.wait(PATIENCE_SECONDS)
    last = listener.last_heartbeat
    until(lambda: monotonic() > last + 3 * SWEEP_SECONDS, "the time of some turns")
    assert listener.last_heartbeat == last
    go.set()
    until(lambda: listener.last_heartbeat > last, "a turn")


# The end.


def test_clients_connected_when_a_listener_stops_are_answered(server: Reachable) -> None:
    callers = 128
    connected = [connect(server) for _ in range(callers)]
    with ThreadPoolExecutor(callers + 1) as threads:
        stopped = threads.submit(server.listener.stop, PATIENCE_SECONDS, settle_seconds=PATIENCE_SECONDS)
        assert list(threads.map(asked, repeat(server), connected)) == [200] * callers
        assert stopped.result()
    with pytest.raises(ConnectionRefusedError):
        server.ask("GET", "/")


def test_a_stop_answers_pending_requests_and_accepts_no_more(tmp_path: Path) -> None:
    with (
        waiting(tmp_path) as (server, application, deciding),
        closing(server.open(BEGUN)) as receiving,
        ThreadPoolExecutor(1) as one,
    ):
        until(lambda: server.listener.counts.open_connections == 2, "both")
        stopped = one.submit(server.listener.stop, PATIENCE_SECONDS)
        until(lambda: refuses(server), "the end of accepting")
        receiving.sendall(LARGE[len(BEGUN) :])
        until(lambda: server.listener.counts.waiting == 2, "the rest of the request")
        assert not stopped.done()
        application.proceed.set()
        for connection in (deciding, receiving):
            answer = reply(connection)
            assert (answer.body, answer.ends) == (b"decided", True)
        assert stopped.result()


def refuses(server: Reachable) -> bool:
    try:
        connect(server).close()
    except (ConnectionRefusedError, ConnectionResetError):  # reset: the socket was closed during the handshake of TCP
        return True
    return False


def test_requests_beyond_the_grace_period_are_cut_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with waiting(tmp_path) as (server, _, deciding), closing(server.open(BEGUN)) as receiving:
        until(lambda: [it.state.name[:4] for it in server.listener._connections.all] == ["REQU", "BODY"], "both")
        assert not server.listener.stop(SHORT_SECONDS)
        assert ended(deciding)
        assert ended(receiving)
    assert "stopped with 2 connections open" in caplog.messages
    assert not unexpected(caplog)


def test_idle_connections_do_not_hold_up_the_stop(server: Reachable, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody reads the end of TLS here.
    monkeypatch.setattr("rules_engine.server.http.limits.SHUTDOWN_SECONDS", SHORT_SECONDS)
    with closing(server.open()) as fresh, closing(server.open(GET)) as used:
        assert reply(used).status == 200
        begin = monotonic()
        assert server.listener.stop(10 * PATIENCE_SECONDS)
        assert monotonic() < begin + PATIENCE_SECONDS
        assert ended(fresh)
        assert ended(used)


def test_stalled_handshakes_do_not_keep_a_listener_from_stopping(server: Reachable) -> None:
    with closing(connect(server)) as silent, closing(connect(server)) as half:
        half.sendall(b"\x16")
        until(lambda: server.listener.counts.open_connections == 2, "both")
        assert server.listener.stop(PATIENCE_SECONDS, settle_seconds=SHORT_SECONDS)
        assert ended(silent)
        assert ended(half)


@pytest.mark.parametrize("started", [False, True])
def test_a_certificate_that_comes_after_the_stop_is_no_error(started: bool) -> None:
    context = tls.server_context(certified("one").identity())
    made = Listener("test", socket.create_server(("127.0.0.1", 0)), Recorder(), connections=8)
    if started:
        made.serve(context)
    assert made.stop(PATIENCE_SECONDS)
    made.serve(context)


# Handshakes.


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_a_handshake_that_stalls_is_cut_and_counted(
    hurried: Reachable, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(connect(hurried)) as stalled:
        stalled.sendall(sent)
        assert ended(stalled)
    until(lambda: not hurried.listener.counts.open_connections, "its removal")
    assert count(hurried, Limit.HANDSHAKE_TIME) == 1
    assert hurried.ask("GET", "/").status == 200
    assert not unexpected(caplog)


@pytest.mark.parametrize(
    "sent",
    [
        GET,
        b"nonsense\r\n",
        bytes(1000),
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x15\x03\x01\x00\x02\x02\x28",  # an alert: handshake failure
    ],
)
def test_a_connection_without_a_handshake_is_closed_without_an_error(
    server: Reachable, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(connect(server)) as stranger:
        with suppress(ConnectionError):
            stranger.sendall(sent)
        got = b""
        with suppress(ConnectionError):
            while part := stranger.recv(100):
                got += part
        assert b"HTTP" not in got
    until(lambda: not server.listener.counts.open_connections, "its removal")
    assert server.ask("GET", "/").status == 200
    assert not count(server, Limit.HANDSHAKE_TIME)
    assert not unexpected(caplog)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("sent", [b"", b"\x16"])
def test_a_client_that_leaves_in_its_handshake_is_no_error(
    server: Reachable, sent: bytes, reset: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leaving = connect(server)
    leaving.sendall(sent)
    until(lambda: server.listener.counts.open_connections, "the connection")
    if reset:
        leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaving.close()
    until(lambda: not server.listener.counts.open_connections, "its removal")
    until(lambda: not server.listener._opening, "the end of its handshake")
    assert not count(server, Limit.HANDSHAKE_TIME)
    assert not any(server.listener.counts.handshakes_failed.values())
    assert not unexpected(caplog)


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_gives_up_its_handshake_is_counted_and_logged(
    server: Reachable, reset: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules_engine.server.http.occurrences.GIVEN_UP_SECONDS", 0.0)
    leaving = connect(server)
    leaving.sendall(b"\x16")
    until(lambda: server.listener.counts.open_connections, "the connection")
    if reset:
        leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaving.close()
    until(lambda: server.listener.counts.handshakes_failed["client-gave-up"] == 1, "the count")
    hint = "the callers' time was over, and the failurePolicy of the webhook decided; in a burst, add CPU or replicas"
    until(lambda: f"client-gave-up (1 in all, last by 127.0.0.1): {hint}" in caplog.text, "the log line")


def test_a_client_that_trusts_another_ca_causes_no_error(server: Reachable, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        replace(server, context=ssl.create_default_context()).ask("GET", "/")
    until(lambda: not server.listener.counts.open_connections, "its removal")
    assert not unexpected(caplog)


def test_a_connection_in_its_handshake_makes_room_for_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules_engine.server.http.occurrences.GIVEN_UP_SECONDS", 0.0)
    monkeypatch.setattr("rules_engine.server.http.limits.UNFINISHED_SECONDS", 0.0)
    with (
        reachable(tmp_path, Recorder(), connections=1) as server,
        closing(connect(server)) as first,
        closing(connect(server)) as second,
    ):
        assert ended(first)
        assert asked(server, second) == 200
        assert count(server, Limit.CONNECTIONS)
        assert not count(server, Limit.HANDSHAKE_TIME)
        until(lambda: not server.listener._opening, "the end of its handshake")
        assert not server.listener.counts.handshakes_failed["client-gave-up"]
    assert not unexpected(caplog)


def test_a_caller_waits_while_every_connection_is_busy(tmp_path: Path) -> None:
    with waiting(tmp_path, connections=2) as (server, application, first), closing(server.open(LARGE)) as second:
        until(lambda: server.listener.counts.waiting == 2, "the second request")
        with closing(server.open(LARGE)) as third:
            until(lambda: count(server, Limit.CONNECTIONS), "the limit")
            application.proceed.set()
            assert [reply(each).status for each in (first, second, third)] == [200] * 3
            assert ended(first)


# Files.


class Refusing(socket.socket):
    """A listening socket on which accepting fails some times."""

    errors: list[int]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.errors:
            raise OSError(self.errors.pop(0), "as the test wants it")
        return super().accept()


@contextmanager
def refusing() -> Iterator[tuple[Reachable, Refusing, socket.socket]]:
    """A server, the socket that it accepts connections on, and a connection that is idle."""
    bound = Refusing()
    bound.errors = []
    bound.bind(("127.0.0.1", 0))
    made = Listener("test", bound, Recorder(), connections=8)
    made.serve()
    server = Reachable(made, made.address[1], None)
    try:
        with closing(server.open(GET)) as idle:
            assert reply(idle).status == 200
            yield server, bound, idle
    finally:
        made.stop(0)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_file_descriptors_another_connection_closes(error: int, caplog: pytest.LogCaptureFixture) -> None:
    with refusing() as (server, bound, idle):
        bound.errors.extend([error] * 3)
        assert server.ask("GET", "/").status == 200
        assert count(server, Limit.FILES) == 3
        assert ended(idle)
    assert not unexpected(caplog)


def test_a_connection_aborted_before_it_was_accepted_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with refusing() as (server, bound, idle):
        bound.errors.extend([errno.ECONNABORTED] * 3)
        assert server.ask("GET", "/").status == 200
        assert not bound.errors
        assert not count(server, Limit.FILES)
        idle.sendall(GET)
        assert reply(idle).status == 200
    assert not unexpected(caplog)


def test_a_stop_while_accepting_pauses_is_an_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.ACCEPT_PAUSE_SECONDS", 0.01)
    with refusing() as (server, bound, idle), ThreadPoolExecutor(1) as one:
        bound.errors.extend([errno.EMFILE] * 1000)
        idle.sendall(BEGUN)
        with closing(server.open()):
            until(lambda: count(server, Limit.FILES) > 1, "the pause")
            stopped = one.submit(server.listener.stop, PATIENCE_SECONDS)
            until(lambda: refuses(server), "the end of accepting")
            assert stopped.result()
    assert not unexpected(caplog)


@contextmanager
def no_files() -> Iterator[ExitStack]:
    """Let this process, in which the server runs too, open no file any more until the stack is closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as taken:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))  # noqa: PTH208
        try:
            with suppress(OSError):
                while True:
                    taken.callback(os.close, os.dup(0))
            yield taken
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_file_to_open_callers_wait_until_there_is_one(
    server: Reachable, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as caller, closing(server.open(GET)) as idle:
        assert reply(idle).status == 200
        caller.settimeout(PATIENCE_SECONDS)
        with no_files() as taken:
            caller.connect(("127.0.0.1", server.port))
            until(lambda: count(server, Limit.FILES), "the limit")
            assert ended(idle)
            taken.close()
        assert asked(server, caller) == 200
    assert not unexpected(caplog)


def test_without_file_descriptors_a_certificate_is_refused(server: Reachable) -> None:
    identity = certified("other").identity()
    with no_files():
        with pytest.raises(tls.TlsError, match=r"^the certificate cannot be served: Too many open files$"):
            tls.server_context(identity)
        assert server.listener.stop(PATIENCE_SECONDS)
    with pytest.raises(ConnectionRefusedError):
        server.ask("GET", "/")


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "share"),
    [
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, CONNECTIONS),
        (8192, 8192, None, CONNECTIONS),
        (256, resource.RLIM_INFINITY, CONNECTIONS + PLAIN_CONNECTIONS + RESERVED_FILES, CONNECTIONS),
        (256, RESERVED_FILES + (CONNECTIONS + PLAIN_CONNECTIONS) // 2, ..., CONNECTIONS // 2),
        (RESERVED_FILES, RESERVED_FILES, ..., LEAST_CONNECTIONS),
    ],
)
def test_the_limit_on_files_is_raised_and_limits_connections(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: Any, share: int
) -> None:
    changed: list[int] = []
    monkeypatch.setattr("resource.getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr("resource.setrlimit", lambda _which, limits: changed.append(limits[0]))
    assert share_of_connections(CONNECTIONS) == share
    assert changed == ([] if raised is None else [hard if raised is ... else raised])


# Clients that are many or wrong.


@pytest.mark.parametrize("leave", ["half-close", "reset"])
def test_clients_that_leave_in_the_middle_stop_nothing(
    plain: Reachable, leave: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        for sent in (b"", GET[:10], BEGUN, GET) * 10:
            connection = stack.enter_context(closing(plain.open(sent)))
            if leave == "half-close":
                connection.shutdown(socket.SHUT_WR)
            else:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
        assert plain.ask("POST", "/", b"body").body == b"4"
    until(lambda: not plain.listener.counts.open_connections, "their end")
    assert not unexpected(caplog)
