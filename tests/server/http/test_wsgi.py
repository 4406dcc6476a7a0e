"""Calls of a WSGI application by a listener: what it gets, in which thread, and when it is not asked to decide."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any
from wsgiref.validate import validator

import flask
import pytest

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_files import read_rules
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.http.app import create_metrics_app
from rules_engine.server.http.deadline import Deadline
from rules_engine.server.http.limits import (
    BODY_BYTES,
    CONCURRENT_DECISIONS,
    LARGE_BODY_BYTES,
    MIB,
    PARSED_BYTES,
    PARSED_BYTES_PER_TOKEN,
    REQUEST_SECONDS,
    SMALL_AMOUNTS,
    SMALL_BYTES,
    SMALL_CONTAINERS,
    Limit,
)
from rules_engine.server.http.review import parse_review
from tests.support import authoring
from tests.support.evaluation import limited
from tests.support.listener import Reachable, Recorder, Reply, reachable, reply
from tests.support.operating import until
from tests.support.server import LADDER, MIG_POD, PATIENCE_SECONDS, UID, application, encoded, review
from tests.support.states import state_of

JSON = {"Content-Type": "application/json"}

SLOW_RULES = authoring.validation(
    "slow",
    '"lists.range(300).all(x, lists.range(300).all(y, x + y >= 0))"',
    message="never",
    matchConditions="[{name: slow, expression: \"object.metadata.name == 'slow'\"}]",
)
"""Some 50 ms for a pod of this name."""


class Served:
    """A listener for admissions. `calls` counts what Flask was asked."""

    def __init__(self) -> None:
        self.records: list[AdmissionRecord] = []
        self.calls = 0
        self.reachable: Reachable

    def ask(self, document: Any, path: str = "/mutate", **headers: str) -> Reply:
        body = document if isinstance(document, bytes) else encoded(document)
        return self.reachable.ask("POST", path, body, **(JSON | headers))

    def count(self, limit: Limit) -> int:
        return self.reachable.listener.counts.exceeded[limit.value]

    @property
    def waiting(self) -> int:
        return self.reachable.listener.counts.waiting

    @property
    def outcomes(self) -> list[str]:
        return [record.outcome for record in self.records]


@contextmanager
def served(
    folder: Path,
    *,
    rules: str = LADDER,
    max_waiting: int = CONCURRENT_DECISIONS,
    request_seconds: float = REQUEST_SECONDS,
) -> Iterator[Served]:
    file = folder / "rules.yaml"
    file.write_text(rules)
    made = Served()
    app = application(state_of(read_rules([file]).rule_set, Cluster()), observers=[made.records.append])

    @app.before_request
    def count() -> None:
        made.calls += 1

    with reachable(folder, app, secure=False, max_waiting=max_waiting, request_seconds=request_seconds) as server:
        made.reachable = server
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


class Held:
    """Stops every decision at its first step until it is told to proceed; remembers the bodies and the threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holds: Callable[[bytes], bool] = lambda _: True) -> None:
        self.proceed = threading.Event()
        self.bodies: list[bytes] = []
        self.threads: set[str] = set()

        def held(body: bytes) -> Any:
            if holds(body):
                self.threads.add(threading.current_thread().name)
                self.bodies.append(body)
                assert self.proceed.wait(PATIENCE_SECONDS)
            return parse_review(body)

        monkeypatch.setattr("rules_engine.server.http.admission.parse_review", held)


@contextmanager
def asking() -> Iterator[ThreadPoolExecutor]:
    """Callers that wait for their responses."""
    with ThreadPoolExecutor(8) as callers:
        yield callers


def large(size: int = LARGE_BODY_BYTES + 1, document: Any = None) -> bytes:
    body = encoded(review(MIG_POD) if document is None else document)
    return body + b" " * (size - len(body))


def small(containers: int, amounts: int = 1) -> bytes:
    """A short review of a pod with so many containers and init containers, and amounts of resources."""
    pod = limited({"nvidia.com/mig-2g.20gb": "1", **{f"example.com/{index}": "1" for index in range(amounts - 1)}})
    pod["spec"]["initContainers"] = [{"name": f"c{index}"} for index in range(containers - 1)]
    return encoded(review(pod))


def in_thread(_body: bytes) -> bool:
    return threading.current_thread().name == "large-requests"


def slow() -> dict[str, Any]:
    pod = limited()
    pod["metadata"]["name"] = "slow"
    return review(pod)


def unavailable(reply: Reply) -> str:
    """The caller is asked to try again; return the message."""
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    body = json.loads(reply.body)
    assert (body["kind"], body["response"]["uid"], body["response"]["allowed"]) == ("AdmissionReview", UID, False)
    assert body["response"]["status"]["reason"] == "ServiceUnavailable"
    return str(body["response"]["status"]["message"])


def patched(reply: Reply) -> bool:
    assert reply.status == 200
    response = json.loads(reply.body)["response"]
    assert (response["uid"], response["allowed"]) == (UID, True)
    return "patch" in response


# What the application gets, and what the client.


def test_an_application_is_called_as_pep_3333_says(tmp_path: Path) -> None:
    recorder = Recorder()
    checked: Callable[..., Any] = validator(recorder)
    with reachable(tmp_path, checked) as server:
        headers = {"Content-Type": "application/json", "X-Two-Words": "a", "User-Agent": "test"}
        assert server.ask("POST", "/a/%62?timeout=5s&x=%20", b"body", **headers).body == b"4"
        assert server.ask("GET", "/").body == b"0"
        assert server.ask("POST", "/", [b"in ", b"chunks"]).body == b"9"
    first, second, third = (request.environ for request in recorder.requests)
    expected = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/a/b",
        "QUERY_STRING": "timeout=5s&x=%20",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "4",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": str(server.port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "SSL_CLIENT_VERIFY": "NONE",
        "HTTP_HOST": f"localhost:{server.port}",
        "HTTP_USER_AGENT": "test",
        "HTTP_X_TWO_WORDS": "a",
        "wsgi.url_scheme": "https",
        "wsgi.input_terminated": True,
    }
    assert {name: first.get(name) for name in expected} == expected
    assert "CONTENT_TYPE" not in second
    assert (third["CONTENT_LENGTH"], third.get("HTTP_TRANSFER_ENCODING")) == ("9", None)
    assert recorder.bodies == [b"body", b"", b"in chunks"]


def test_headers_are_joined_and_none_is_taken_for_another(tmp_path: Path) -> None:
    recorder = Recorder()
    sent = b"GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-A: 2\r\nX_A: 3\r\nContent_Length: 9\r\n\r\n"
    sent = sent.replace(b"\xc3\xa4", b"%C3%A4")
    with reachable(tmp_path, recorder, secure=False) as server, closing(server.open(sent)) as connection:
        assert reply(connection).status == 200
    environ = recorder.requests[0].environ
    assert (environ["HTTP_X_A"], environ["CONTENT_LENGTH"], environ["PATH_INFO"]) == ("1,2", "0", "/Ã¤")


def test_an_answer_may_come_in_parts_and_is_closed(tmp_path: Path) -> None:
    class Parts(list[bytes]):
        closed = False

        def close(self) -> None:
            self.closed = True

    parts = Parts([b"a", b"b"])

    def in_parts(_environ: Any, start_response: Any) -> Any:
        start_response("404 Not Found", [("A", "b"), ("Content-Length", "2")])
        return parts

    with reachable(tmp_path, in_parts, secure=False) as server:
        answer = server.ask("GET", "/")
    assert (answer.status, answer.headers["a"], answer.body, parts.closed) == (404, "b", b"ab", True)


def test_head_gets_the_headers_of_the_omitted_body(server: Served) -> None:
    answer = server.reachable.ask("HEAD", "/healthz")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == str(len(server.reachable.ask("GET", "/healthz").body))


def test_an_error_of_the_application_is_500_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = create_metrics_app(state_of(), lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    with reachable(tmp_path, app, secure=False) as server:
        answer = server.ask("GET", "/metrics")
        assert (answer.status, json.loads(answer.body)["message"]) == (500, "unexpected error; see the server's log")
        assert server.ask("GET", "/healthz").status == 200
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("body", [b"", b" " * (SMALL_BYTES + 1)])
def test_an_application_that_raises_is_500_and_ends_the_connection_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    def fails(_environ: Any, _start_response: Any) -> Any:
        raise RuntimeError("our bug")

    with reachable(tmp_path, fails, secure=False) as server:
        answer = server.ask("POST", "/", body)
        assert (answer.status, answer.ends) == (500, True)
        assert server.ask("POST", "/", body).status == 500
        until(lambda: server.listener.counts.open_connections == 0, "their end")
        assert (server.listener.counts.held_bytes, server.listener.counts.waiting) == (0, 0)
        server.listener._connections.state.total_requests = 0  # which uvicorn answered
    assert "our bug" in caplog.text


# No answer is another's than Flask's.


def test_flask_answers_every_request(server: Served) -> None:
    asked = [
        server.ask(review(MIG_POD)),
        server.ask(review(), "/validate"),
        server.ask(large()),
        server.ask(large(BODY_BYTES + 1)),
        server.ask(b"{", "/mutate"),
        server.ask(review(), "/mutate", **{"Content-Encoding": "gzip"}),
        server.ask(review(), "/mutate", **{"Content-Type": "text/plain"}),
        server.ask(review(), "/elsewhere"),
        *(server.reachable.ask("GET", path) for path in ("/mutate", "/healthz", "/readyz", "/", "/%6dutate")),
        server.reachable.ask("OPTIONS", "*"),
    ]
    assert [answer.status for answer in asked] == [200] * 3 + [413, 400, 415, 415, 404, 405, 200, 200, 404, 405, 404]
    assert server.calls == server.reachable.answers == len(asked)


def test_flask_answers_every_request_for_metrics(tmp_path: Path) -> None:
    app = create_metrics_app(state_of(RuleSet(), Cluster()), lambda: (b"a 1\n", "text/plain"))
    calls: list[str] = []
    app.before_request(lambda: calls.append(flask.request.path))
    with reachable(tmp_path, app, secure=False) as server:
        paths = ["/metrics", "/rules", "/healthz", "/readyz", "/mutate"]
        assert [server.ask("GET", path).status for path in paths] == [200, 200, 200, 200, 404]
        assert calls == paths
        assert server.answers == len(paths)


# The event loop and the thread.


def test_an_ordinary_admission_is_decided_in_the_event_loop(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.proceed.set()
    assert patched(server.ask(review(MIG_POD)))
    assert held.threads == {"test-listener"}


def test_a_slow_decision_restarts_in_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, in_thread)
    with served(tmp_path, rules=SLOW_RULES, request_seconds=PATIENCE_SECONDS) as server, asking() as callers:
        waiting = callers.submit(server.ask, slow(), "/validate")
        until(lambda: held.bodies, "the restart")
        assert server.records == []
        for _ in range(10):
            assert not patched(server.ask(review(limited()), "/validate"))
        assert not waiting.done()
        assert server.waiting == 1
        held.proceed.set()
        assert not patched(waiting.result(PATIENCE_SECONDS))
        assert server.outcomes == ["Allowed"] * 11
        assert server.waiting == 0


@pytest.mark.parametrize(
    "body", [small(SMALL_CONTAINERS + 1), small(1, SMALL_AMOUNTS + 1), large(SMALL_BYTES + 1), large()]
)
def test_larger_bodies_are_decided_in_the_thread_one_at_a_time(
    server: Served, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    held = Held(monkeypatch, in_thread)
    with asking() as callers:
        waiting = [callers.submit(server.ask, body) for _ in range(4)]
        until(lambda: server.waiting == 4, "all of them")
        for _ in range(5):
            assert patched(server.ask(review(MIG_POD)))
        assert len(held.bodies) == 1
        assert not any(future.done() for future in waiting)
        held.proceed.set()
        assert all(patched(future.result(PATIENCE_SECONDS)) for future in waiting)
    assert server.waiting == 0


def test_waiting_requests_are_decided_smallest_first_and_none_waits_forever(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    now = [0.0]
    monkeypatch.setattr("rules_engine.server.http.wsgi.perf_counter", lambda: now[0])
    monkeypatch.setattr(Deadline, "is_over", lambda _: False)
    sizes = []
    with asking() as callers:
        futures: list[Future[Reply]] = []
        for size, seconds in ((20, 0.0), (60, 0.0), (30, 0.1), (500, 0.1), (24, 0.2), (18, 2 * REQUEST_SECONDS)):
            now[0] = seconds
            futures.append(callers.submit(server.ask, large(size * 1024), "/mutate?timeout=30s"))
            sizes.append(size)
            until(lambda: server.waiting == len(sizes) and held.bodies, "it waits, or is decided")
        held.proceed.set()
        assert all(future.result(PATIENCE_SECONDS).status == 200 for future in futures)
    assert [len(body) // 1024 for body in held.bodies] == [20, 24, 30, 60, 500, 18]


def test_waiting_requests_do_not_take_the_place_of_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, in_thread)
    with served(tmp_path, max_waiting=4) as server, asking() as callers:
        waiting = [callers.submit(server.ask, large()) for _ in range(4)]
        until(lambda: server.waiting == 4, "all of them")
        for _ in range(3):
            assert "4 decisions are in progress" in unavailable(server.ask(large()))
        assert server.count(Limit.DECISIONS) == 3
        assert patched(server.ask(review(MIG_POD)))
        held.proceed.set()
        assert all(patched(future.result(PATIENCE_SECONDS)) for future in waiting)
    assert len(held.bodies) == 4


def test_a_large_body_whose_client_has_left_is_not_decided(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, in_thread)
    with asking() as callers:
        waiting = callers.submit(server.ask, large())
        until(lambda: len(held.bodies) == 1, "the first")
        head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        with server.reachable.open(head % (LARGE_BODY_BYTES + 1) + large()):
            until(lambda: server.waiting == 2, "the second")
        until(lambda: server.waiting == 1, "its end")
        held.proceed.set()
        assert patched(waiting.result(PATIENCE_SECONDS))
    assert patched(server.ask(large()))
    assert len(held.bodies) == 2


@pytest.mark.parametrize("body", [encoded(slow()), large()])
def test_a_decision_that_waited_too_long_is_503_and_no_denial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """The rule says Fail: to evaluate it without time would deny."""
    monkeypatch.setattr(Deadline, "is_over", lambda _: True)
    with served(tmp_path, rules=SLOW_RULES) as server:
        assert "waited longer than its timeout" in unavailable(server.ask(body, "/validate"))
        assert server.outcomes == ["ServiceUnavailable"]
        assert server.count(Limit.REQUEST_TIME) == 1


def test_a_decision_in_the_thread_has_only_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deadline, "is_over", lambda _: False)  # however late the thread begins
    with served(tmp_path, rules=SLOW_RULES, request_seconds=0.01) as server:
        response = json.loads(server.ask(slow(), "/validate").body)["response"]
        assert response["allowed"] is False
        assert "the time of 0.01 s for one request is used up" in response["status"]["message"]


# Bodies that are too large.


def test_a_body_that_is_too_large_is_read_to_its_end_and_refused_with_its_uid(server: Served) -> None:
    for body in (large(BODY_BYTES + 1), [large(BODY_BYTES), b" "]):
        answer = server.reachable.ask("POST", "/mutate", body, **JSON)
        assert (answer.status, answer.ends) == (413, True)
        response = json.loads(answer.body)["response"]
        assert (response["uid"], response["status"]["message"]) == (UID, "the body is larger than 8 MiB")
    assert server.count(Limit.BODY_BYTES) == 2
    assert server.outcomes == ["RequestEntityTooLarge"] * 2
    assert patched(server.ask(large(BODY_BYTES)))
    until(lambda: server.reachable.listener.counts.held_bytes == 0, "nothing is held")


def test_a_body_without_an_end_is_cut(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.http.limits.DISCARDED_BYTES", BODY_BYTES + MIB)
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    endless = b"%x\r\n%b\r\n" % (MIB, b"x" * MIB) * 100
    with closing(server.reachable.open(head)) as connection, pytest.raises((ConnectionResetError, BrokenPipeError)):
        connection.sendall(endless)
    until(lambda: server.outcomes == ["RequestEntityTooLarge"], "it is recorded")


TOKENS = (b"{", b"[", b",", b":")


def tokens(count: int) -> bytes:
    """A review with `count` brackets, commas and colons outside strings, and as many within one."""
    body = encoded(review({"n": [0], "text": '{[,:\\"'}))
    missing = count - sum(re.sub(rb'"([^"\\]|\\.)*"', b"", body).count(token) for token in TOKENS)
    body = body.replace(b"[0]", b"[" + b"0," * missing + b"0]")
    return body.replace(b"{[,:", b"{[,:" * (count // len(TOKENS)))


def test_a_body_of_too_much_memory_is_denied_and_not_parsed(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.proceed.set()
    most = PARSED_BYTES // PARSED_BYTES_PER_TOKEN
    for path in ("/mutate", "/%6dutate", "http://localhost/mutate"):
        reply = server.ask(tokens(most + 1), path)
        response = json.loads(reply.body)["response"]
        assert (reply.status, response["uid"], response["allowed"]) == (200, UID, False)
        assert (response["status"]["code"], response["status"]["reason"]) == (413, "RequestEntityTooLarge")
        assert response["status"]["message"] == f"the body would take more than {PARSED_BYTES // MIB} MiB of memory"
    assert server.outcomes == ["Invalid"] * 3
    assert server.ask(tokens(most + 1).replace(b'"uid"', b'"id"')).status == 413
    assert held.bodies == []
    assert server.ask(tokens(most)).status == 200
    assert len(held.bodies) == 1


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_text_in_a_pod_does_not_count_as_structure(server: Served, operation: str) -> None:
    made = deepcopy(MIG_POD)
    made["spec"]["containers"][0]["env"] = [{"name": "CONFIG", "value": json.dumps(list(range(150_000)))}]
    made["spec"]["containers"][0]["env"].append({"name": "COMMAS", "value": "," * 920_000})
    body = encoded(review(made, operation=operation, oldObject=made if operation == "UPDATE" else None))
    reply = server.ask(body)
    assert (reply.status, json.loads(reply.body)["response"]["allowed"]) == (200, True)
