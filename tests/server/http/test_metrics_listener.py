"""The plain listener: pages, and clients that are many, slow or wrong."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic

import pytest
from werkzeug.wrappers import Request, Response

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.rule import Mode
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_files import DEFAULT_RULES
from rules_engine.server.http import probes
from rules_engine.server.http.app import create_metrics_app
from rules_engine.server.http.limits import PLAIN_CONNECTIONS, STALLED_SECONDS
from rules_engine.server.http.probes import MAX_LISTED
from rules_engine.server.state import ServedRules, ServerState
from tests.support.authoring import cli
from tests.support.evaluation import ladder, validation
from tests.support.listener import Reachable, Recorder, reachable
from tests.support.operating import METRICS, fetched, metrics_url, rules_report, until
from tests.support.server import PATIENCE_SECONDS, started
from tests.support.states import state_of

GPU = "nvidia.com/gpu"


@pytest.fixture
def state() -> ServerState:
    return state_of(RuleSet(), Cluster())


def exposition() -> tuple[bytes, str]:
    return b"gpu_rules_up 1\n", "text/plain; version=1.0.0"


@contextmanager
def plain(
    folder: Path, state: ServerState, exposition: Callable[[], tuple[bytes, str]] = exposition
) -> Iterator[Reachable]:
    """The listener as `gpu-rules serve` makes it."""
    app = create_metrics_app(state, exposition)
    with reachable(folder, app, secure=False, connections=PLAIN_CONNECTIONS) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path, state: ServerState) -> Iterator[Reachable]:
    with plain(tmp_path, state) as made:
        yield made


def test_pages_report_the_state_of_the_server(server: Reachable, state: ServerState) -> None:
    url = f"http://127.0.0.1:{server.port}"
    assert fetched(f"{url}/metrics") == (200, "gpu_rules_up 1\n")
    assert server.ask("GET", "/metrics").headers["content-type"] == "text/plain; version=1.0.0"
    assert json.loads(fetched(f"{url}/healthz")[1]) == {"status": "ok"}
    assert fetched(f"{url}/readyz?verbose")[0] == 200
    rules = json.loads(fetched(f"{url}/rules")[1])
    assert (rules["generation"], rules["lastReload"]) == (1, None)
    state.stopping = True
    status, body = fetched(f"{url}/readyz")
    assert (status, json.loads(body)["reason"]) == (503, "the server is stopping")


def test_rules_are_listed_up_to_a_bound() -> None:
    rules = (ladder(GPU, name="first", mode=Mode.AUDIT, priority=7), validation("true", name="last", mode=Mode.OFF))
    report = probes.rules_page(state_of(ServedRules(rule_set=RuleSet(), listed=rules)))[1]
    assert report["rules"] == [
        {"kind": "FallbackLadder", "name": "first", "mode": "Audit", "priority": 7},
        {"kind": "Validation", "name": "last", "mode": "Off", "priority": 0},
    ]
    assert report["rulesByKind"] == {"FallbackLadder": 1, "Validation": 1}
    many = (rules[0],) * (MAX_LISTED + 1)
    report = probes.rules_page(state_of(ServedRules(rule_set=RuleSet(), listed=many)))[1]
    assert len(report["rules"]) == MAX_LISTED
    assert report["rulesByKind"] == {"FallbackLadder": MAX_LISTED + 1}


def test_a_server_reports_the_rules_and_the_digest_of_list(tmp_path: Path) -> None:
    listed = json.loads(cli("list", "--output", "json", DEFAULT_RULES).stdout)
    with started(tmp_path, *METRICS) as running:
        report = rules_report(running)
        _, content = fetched(f"{metrics_url(running)}/metrics")
    names = [(rule["kind"], rule["name"], rule["mode"], rule["priority"]) for rule in listed["rules"]]
    assert names == [(rule["kind"], rule["name"], rule["mode"], rule["priority"]) for rule in report["rules"]]
    assert listed["digest"] == report["digest"]
    assert f'gpu_rules_rules_info{{digest="{listed["digest"]}"}} 1.0\n' in content


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        ("GET", "/mutate", 404, "NotFound"),
        ("POST", "/mutate", 404, "NotFound"),
        ("POST", "/metrics", 405, "MethodNotAllowed"),
        ("DELETE", "/healthz", 405, "MethodNotAllowed"),
    ],
)
def test_an_error_is_a_status_in_json(server: Reachable, method: str, path: str, code: int, reason: str) -> None:
    reply = server.ask(method, path)
    status = json.loads(reply.body)
    assert (reply.status, reply.headers["content-type"]) == (code, "application/json")
    assert (status["kind"], status["status"], status["code"], status["reason"]) == ("Status", "Failure", code, reason)
    assert ("allow" in reply.headers) == (code == 405)


def test_several_requests_share_a_connection(server: Reachable) -> None:
    connection = server.connect()
    for path in ("/healthz", "/metrics", "/nowhere", "/readyz"):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.read()
        assert not answer.will_close
    connection.close()


def test_an_error_of_ours_is_500_and_logged(
    tmp_path: Path, state: ServerState, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> tuple[bytes, str]:
        raise RuntimeError("ours")

    with plain(tmp_path, state, fails) as server:
        reply = server.ask("GET", "/metrics")
        status = json.loads(reply.body)
        assert (reply.status, status["kind"], status["code"]) == (500, "Status", 500)
        assert b"ours" not in reply.body
        assert server.ask("GET", "/healthz").status == 200
    assert "RuntimeError" in caplog.text


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 405"),
        (b"GET /metrics nonsense\r\n\r\n", b"HTTP/1.1 400"),
        (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n", b""),
        (b"GET /metrics HT", b""),  # and ends
    ],
)
def test_bytes_that_are_no_request_get_no_page_and_stop_nothing(server: Reachable, sent: bytes, answer: bytes) -> None:
    got = b""
    with server.open() as client, suppress(OSError):  # the server may close before it has read everything
        client.sendall(sent)
        if not answer:
            client.shutdown(socket.SHUT_WR)
        got = client.recv(65536)
    assert got.startswith(answer)
    assert b"gpu_rules_up" not in got
    assert server.ask("GET", "/metrics").status == 200


def test_over_the_connection_limit_the_oldest_close_for_probes(server: Reachable) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(server.open()) for _ in range(PLAIN_CONNECTIONS + 4)]
        for _ in range(8):
            assert server.ask("GET", "/healthz").status == 200
            stack.enter_context(server.open())
        for client in opened[:4]:
            assert closed(client)


def test_a_client_that_stalls_is_cut(server: Reachable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.HEADER_SECONDS", 0.1)
    with server.open(b"G") as client:
        assert closed(client)


def closed(client: socket.socket) -> bool:
    """Return True if the other side ends a connection without a response."""
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def test_healthz_fails_only_while_the_admission_loop_is_blocked(
    tmp_path: Path, state: ServerState, server: Reachable, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, proceed = threading.Event(), threading.Event()

    def stall(_request: Request) -> Response:
        begun.set()
        assert proceed.wait(PATIENCE_SECONDS)
        return Response("{}")

    with reachable(tmp_path, Recorder(stall)) as admissions:
        state.last_heartbeat = lambda: admissions.listener.last_heartbeat
        assert server.ask("GET", "/healthz").status == 200
        with admissions.open(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n") as client:
            assert begun.wait(PATIENCE_SECONDS)
            assert server.ask("GET", "/healthz").status == 200, "a short stall is none"
            late = monotonic() + STALLED_SECONDS
            monkeypatch.setattr("rules_engine.server.http.probes.monotonic", lambda: late)
            assert server.ask("GET", "/healthz").status == 503
            reply = server.ask("GET", "/healthz")
            assert json.loads(reply.body)["status"] == "stalled"
            assert server.ask("GET", "/metrics").status == 200
            proceed.set()
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr("rules_engine.server.http.probes.monotonic", monotonic)
        until(lambda: server.ask("GET", "/healthz").status == 200, "the recovery")
