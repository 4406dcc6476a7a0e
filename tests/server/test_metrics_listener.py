"""The plain listener: pages, and clients that are many, slow or wrong."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rules_engine.evaluation import RuleSet
from rules_engine.model.cluster import Cluster
from server.metrics_listener import MAX_CONNECTIONS, MetricsListener
from server.state import State
from tests.support.operating import fetched
from tests.support.server import PATIENCE_SECONDS


@pytest.fixture
def state() -> State:
    return State(RuleSet(), Cluster())


@pytest.fixture
def port(state: State, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A listener that gives each client half a second."""
    monkeypatch.setattr("server.metrics_listener.SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        listener = MetricsListener(bound, state, lambda: (b"gpu_rules_up 1\n", "text/plain; version=1.0.0"))
        listener.start()
        yield bound.getsockname()[1]
        listener.stop()


def test_pages_say_what_the_server_says_of_itself(port: int, state: State) -> None:
    url = f"http://127.0.0.1:{port}"
    assert fetched(f"{url}/metrics") == (200, "gpu_rules_up 1\n")
    assert json.loads(fetched(f"{url}/healthz")[1]) == {"status": "ok"}
    assert fetched(f"{url}/readyz?verbose")[0] == 200
    rules = json.loads(fetched(f"{url}/rules")[1])
    assert (rules["generation"], rules["lastReload"]) == (1, None)
    state.stopping = True
    status, body = fetched(f"{url}/readyz")
    assert (status, json.loads(body)["reason"]) == (503, "the server is stopping")
    state.served = None
    assert fetched(f"{url}/rules")[0] == 503
    assert fetched(f"{url}/mutate")[0] == 404


def test_an_error_of_ours_is_500_and_logged(state: State, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> tuple[bytes, str]:
        raise RuntimeError("ours")

    with socket.create_server(("127.0.0.1", 0)) as bound:
        listener = MetricsListener(bound, state, fails)
        listener.start()
        assert fetched(f"http://127.0.0.1:{bound.getsockname()[1]}/metrics") == (500, "an unexpected error\n")
        listener.stop()
    assert "unexpected error on the metrics listener" in caplog.text


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.0 501"),
        (b"GET /metrics nonsense\r\n\r\n", b""),
        (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", b""),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.0 414"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"HTTP/1.0 431"),
        (b"GET /metrics HT", b""),
    ],
)
def test_what_is_no_request_gets_no_page_and_stops_nothing(port: int, sent: bytes, answer: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
        client.sendall(sent)
        got = b""
        try:
            while part := client.recv(65536):
                got += part
        except ConnectionResetError:
            pass
        assert got.startswith(answer)
        assert b"gpu_rules_up" not in got
    assert fetched(f"http://127.0.0.1:{port}/metrics")[0] == 200


def test_with_more_connections_than_there_are_places_the_oldest_are_closed_and_probes_answered(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.metrics_listener.SECONDS", 100 * PATIENCE_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as stack:
        listener = MetricsListener(bound, state, lambda: (b"", "text/plain"))
        listener.start()
        stack.callback(listener.stop)

        def stall() -> socket.socket:
            client = socket.create_connection(bound.getsockname(), timeout=PATIENCE_SECONDS)
            client.sendall(b"G")
            return stack.enter_context(client)

        stalled = [stall() for _ in range(MAX_CONNECTIONS + 4)]
        for _ in range(8):
            assert fetched(f"http://127.0.0.1:{bound.getsockname()[1]}/healthz")[0] == 200
            stall()
        for client in stalled[:4]:
            assert closed(client)


def test_a_client_that_stalls_is_cut(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
        client.sendall(b"G")
        assert closed(client)


def closed(client: socket.socket) -> bool:
    """Whether the other side ends a connection without a word."""
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True
