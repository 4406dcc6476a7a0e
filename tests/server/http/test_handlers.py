"""Which admissions are decided in the event loop and which in threads, and what is refused before it is decided."""

import asyncio
import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.sources.rule_files import read_rules
from server.http.admission import Admission
from server.http.admission_record import AdmissionRecord
from server.http.app import create_app
from server.http.deadline import Deadline
from server.http.handlers import AdmissionHandler, PageHandler
from server.http.limits import (
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
from server.http.listener import Listener
from server.http.messages import Refusal, Request, Response
from server.http.review import parse_review
from server.state import State
from tests.support import authoring
from tests.support.evaluation import limited
from tests.support.listener import Reachable, Reply, pages, reachable
from tests.support.operating import until
from tests.support.server import LADDER, MIG_POD, PATIENCE_SECONDS, UID, encoded, review
from tests.support.states import state_of

JSON = {"Content-Type": "application/json"}
SLOW = "lists.range(300).all(x, lists.range(300).all(y, x + y >= 0))"
"""Some 50 ms."""

SLOW_RULES = authoring.validation(
    "slow",
    f'"{SLOW}"',
    message="never",
    matchConditions="[{name: slow, expression: \"object.metadata.name == 'slow'\"}]",
)


@dataclass(slots=True)
class Served:
    """A listener for admissions, and what is behind it."""

    reachable: Reachable
    admission: Admission
    handler: AdmissionHandler
    records: list[AdmissionRecord] = field(default_factory=list)

    def ask(self, document: Any, path: str = "/mutate", **headers: str) -> Reply:
        body = document if isinstance(document, bytes) else encoded(document)
        return self.reachable.ask("POST", path, body, **(JSON | headers))

    def count(self, limit: Limit) -> int:
        return self.reachable.listener.connections.exceeded.counts[limit]

    @property
    def outcomes(self) -> list[str]:
        return [record.outcome for record in self.records]


@contextmanager
def served(
    folder: Path,
    *,
    rules: str = LADDER,
    state: State | None = None,
    max_concurrent: int = CONCURRENT_DECISIONS,
    request_seconds: float = REQUEST_SECONDS,
) -> Iterator[Served]:
    if state is None:
        file = folder / "rules.yaml"
        file.write_text(rules)
        state = state_of(read_rules([file]).rule_set, Cluster())
    records: list[AdmissionRecord] = []
    admission = Admission(
        state, max_concurrent=max_concurrent, observers=[records.append], request_seconds=request_seconds
    )
    app = create_app(state, admission)
    made: list[AdmissionHandler] = []

    def make(listener: Listener) -> AdmissionHandler:
        page_handler = PageHandler(listener.loop, app, listener.address, "http")
        made.append(AdmissionHandler(listener.loop, admission, page_handler, listener.connections.exceeded))
        return made[0]

    with reachable(folder, make, secure=False) as server:
        yield Served(server, admission, made[0], records)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


class Held:
    """Stops every decision at its first step until it is told to proceed; remembers the threads that decide."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holds: Callable[[bytes], bool] = lambda _: True) -> None:
        self.proceed = threading.Event()
        self.threads: list[str] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()

        def held(body: bytes) -> Any:
            if not holds(body):
                return parse_review(body)
            with self._lock:
                self.threads.append(threading.current_thread().name)
                self._now += 1
                self.most_at_once = max(self.most_at_once, self._now)
            try:
                assert self.proceed.wait(PATIENCE_SECONDS)
                return parse_review(body)
            finally:
                with self._lock:
                    self._now -= 1

        monkeypatch.setattr("server.http.admission.parse_review", held)


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


def is_large(body: bytes) -> bool:
    return len(body) > LARGE_BODY_BYTES


def unavailable(reply: Reply, uid: str | None = None) -> None:
    """The caller is asked to try again."""
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    body = json.loads(reply.body)
    if uid is None:
        assert (body["kind"], body["reason"]) == ("Status", "ServiceUnavailable")
    else:
        assert (body["kind"], body["response"]["uid"], body["response"]["allowed"]) == ("AdmissionReview", uid, False)
        assert body["response"]["status"]["reason"] == "ServiceUnavailable"


def patched(reply: Reply) -> bool:
    assert reply.status == 200
    response = json.loads(reply.body)["response"]
    assert (response["uid"], response["allowed"]) == (UID, True)
    return "patch" in response


# Ordinary admissions.


def test_an_ordinary_admission_is_decided_in_the_event_loop(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.proceed.set()
    for body in (review(MIG_POD), large(SMALL_BYTES), small(SMALL_CONTAINERS), small(1, SMALL_AMOUNTS)):
        assert patched(server.ask(body))
    assert held.threads == ["test-listener"] * 4
    assert server.admission.slots.taken == 0


def test_a_query_is_part_of_no_path_in_any_spelling(server: Served) -> None:
    for path in ("/mutate?timeout=10s", "/mutate?", "/%6dutate", "http://localhost/mutate?timeout=10s"):
        assert patched(server.ask(review(MIG_POD), path))
    denied = server.ask(review(limited(image="app:latest")), "/validate?timeout=10s")
    assert json.loads(denied.body)["response"]["allowed"] is False


@pytest.mark.parametrize(
    ("method", "path", "code"), [("GET", "/mutate", 405), ("GET", "/healthz", 200), ("POST", "/nowhere", 404)]
)
def test_other_requests_are_answered_by_the_application(server: Served, method: str, path: str, code: int) -> None:
    reply = server.reachable.ask(method, path)
    assert (reply.status, reply.headers["content-type"]) == (code, "application/json")
    assert server.records == []


def test_without_a_content_type_an_admission_is_415(server: Served) -> None:
    reply = server.reachable.ask("POST", "/mutate", encoded(review()))
    assert (reply.status, json.loads(reply.body)["response"]["uid"]) == (415, UID)


def test_over_the_limit_on_decisions_an_admission_is_503(tmp_path: Path) -> None:
    with served(tmp_path, max_concurrent=1) as server:
        assert server.admission.slots.take()
        unavailable(server.ask(large(LARGE_BODY_BYTES)), UID)
        unavailable(server.ask(large()), UID)
        assert server.count(Limit.DECISIONS) == 2
        assert server.outcomes == ["ServiceUnavailable"] * 2
        server.admission.slots.release()
        assert patched(server.ask(large()))


def test_an_incomplete_admission_is_refused_and_recorded(server: Served) -> None:
    head = b"POST /validate?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
    with server.reachable.open(head) as client:
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert [(record.endpoint, record.outcome) for record in server.records] == [("validate", "RequestEntityTooLarge")]


@pytest.mark.parametrize(
    ("status", "path"), [(HTTPStatus.NOT_IMPLEMENTED, "/mutate"), (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "/other")]
)
def test_other_refusals_are_a_status_and_not_recorded(server: Served, status: HTTPStatus, path: str) -> None:
    response = server.handler.refuse(Refusal(status, "why"), path)
    body = json.loads(response.body)
    assert (response.status, body["kind"], body["message"]) == (status, "Status", "why")
    assert server.records == []


def test_a_refusal_that_may_be_tried_again_says_when(server: Served) -> None:
    for path in ("/mutate", "/readyz"):
        response = server.handler.refuse(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "why"), path)
        assert ("Retry-After", "1") in response.headers


# Decisions that hold others up.


def test_a_slow_decision_restarts_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, proceed = threading.Event(), threading.Event()
    answer = Admission.answer

    def held(self: Admission, call: Any, deadline: Deadline) -> Response:
        if b'"slow"' in call.body and threading.current_thread().name.startswith("slow-admission"):
            begun.set()
            assert proceed.wait(PATIENCE_SECONDS)
        return answer(self, call, deadline)

    monkeypatch.setattr(Admission, "answer", held)
    slow = limited()
    slow["metadata"]["name"] = "slow"
    with served(tmp_path, rules=SLOW_RULES) as server, asking() as callers:
        waiting = callers.submit(server.ask, review(slow), "/validate")
        assert begun.wait(PATIENCE_SECONDS)
        assert server.records == []
        for _ in range(10):
            assert not patched(server.ask(review(limited()), "/validate"))
        assert not waiting.done()
        assert server.admission.slots.taken == 1
        proceed.set()
        assert not patched(waiting.result(PATIENCE_SECONDS))
        assert server.outcomes == ["Allowed"] * 11
        assert server.admission.slots.taken == 0


def test_a_slow_decision_keeps_its_slot_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.handlers.PATIENCE_SECONDS", -1.0)
    begun, proceed = threading.Event(), threading.Event()
    answer = AdmissionHandler._answer

    def held(self: AdmissionHandler, call: Any) -> Response:
        begun.set()
        assert proceed.wait(PATIENCE_SECONDS)
        return answer(self, call)

    monkeypatch.setattr(AdmissionHandler, "_answer", held)
    with served(tmp_path, rules=SLOW_RULES, max_concurrent=1) as server, asking() as callers:
        waiting = callers.submit(server.ask, review(), "/validate")
        assert begun.wait(PATIENCE_SECONDS)
        unavailable(server.ask(review(), "/validate"), UID)
        proceed.set()
        assert not patched(waiting.result(PATIENCE_SECONDS))
        assert server.admission.slots.taken == 0


@pytest.mark.parametrize("body", [encoded(review()), large()])
def test_a_queued_decision_over_its_time_is_503_and_no_denial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """The rule says Fail: to evaluate it without time would deny."""
    monkeypatch.setattr("server.http.handlers.PATIENCE_SECONDS", -1.0)
    answer = AdmissionHandler._answer

    def late(self: AdmissionHandler, call: Any) -> Response:
        call.arrived -= 2 * REQUEST_SECONDS
        return answer(self, call)

    monkeypatch.setattr(AdmissionHandler, "_answer", late)
    with served(tmp_path, rules=SLOW_RULES) as server:
        unavailable(server.ask(body, "/validate"), UID)
        assert server.outcomes == ["ServiceUnavailable"]
        assert server.count(Limit.REQUEST_TIME) == 1
        assert server.admission.slots.taken == 0


def test_a_decision_in_a_thread_has_only_the_time_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.handlers.PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(Deadline, "is_over", lambda _: False)  # however late the thread begins
    slow = limited()
    slow["metadata"]["name"] = "slow"
    rules = SLOW_RULES.replace(SLOW, " && ".join([SLOW] * 8)).replace("300", "200")
    with served(tmp_path, rules=rules, request_seconds=0.05) as server:
        response = json.loads(server.ask(review(slow), "/validate").body)["response"]
        assert response["allowed"] is False
        assert "the time of 0.05 s for one request is used up" in response["status"]["message"]


# Large bodies.


@pytest.mark.parametrize(
    "body", [small(SMALL_CONTAINERS + 1), small(1, SMALL_AMOUNTS + 1), large(SMALL_BYTES + 1), large()]
)
def test_larger_bodies_are_decided_in_a_thread_one_at_a_time(
    server: Served, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    held = Held(monkeypatch, lambda sent: sent == body and threading.current_thread().name != "test-listener")
    with asking() as callers:
        waiting = [callers.submit(server.ask, body) for _ in range(4)]
        until(lambda: server.admission.slots.taken == 4, "all of them")
        for _ in range(5):
            assert patched(server.ask(review(MIG_POD)))
        assert len(held.threads) == 1
        assert not any(future.done() for future in waiting)
        held.proceed.set()
        assert all(patched(future.result(PATIENCE_SECONDS)) for future in waiting)
    assert held.most_at_once == 1
    assert all(name.startswith("slow-admission") for name in held.threads)
    assert server.admission.slots.taken == 0


def test_waiting_requests_are_decided_smallest_first_and_none_waits_forever(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    futures = []
    for size, seconds in ((5, 0.0), (60, 0.0), (30, 0.1), (500, 0.1), (20, 0.2), (10, 2 * REQUEST_SECONDS)):
        asked = request("/mutate", large(size * 1024))
        asked.arrived = perf_counter() + seconds
        asked.query = "timeout=30s"
        futures.append(server.handler._enqueue(asked))
        until(lambda: held.threads, "the first is being decided")
    order: list[int] = []
    for index, future in enumerate(futures):
        assert isinstance(future, asyncio.Future)
        future.add_done_callback(partial(lambda index, _: order.append(index), index))
    held.proceed.set()
    until(lambda: len(order) == len(futures), "all are decided")
    assert order == [0, 4, 2, 1, 3, 5]


def test_waiting_requests_do_not_take_the_place_of_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, max_concurrent=4) as server:
        held = Held(monkeypatch, is_large)
        with asking() as callers:
            waiting = [callers.submit(server.ask, large()) for _ in range(4)]
            until(lambda: server.admission.slots.taken == 4, "all of them")
            for _ in range(3):
                unavailable(server.ask(large()), UID)
            assert server.count(Limit.DECISIONS) == 3
            assert patched(server.ask(review(MIG_POD)))
            held.proceed.set()
            assert all(patched(future.result(PATIENCE_SECONDS)) for future in waiting)
        assert len(held.threads) == 4


def test_a_large_body_whose_client_left_releases_its_slot(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, is_large)
    with asking() as callers:
        waiting = callers.submit(server.ask, large())
        until(lambda: len(held.threads) == 1, "the first")
        head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        with server.reachable.open(head % (LARGE_BODY_BYTES + 1) + large()):
            until(lambda: server.admission.slots.taken == 2, "the second")
        until(lambda: server.admission.slots.taken == 1, "its end")
        held.proceed.set()
        assert patched(waiting.result(PATIENCE_SECONDS))
    assert len(held.threads) == 1


def test_an_unexpected_error_in_the_thread_ends_the_connection(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Response:
        raise RuntimeError("our bug")

    monkeypatch.setattr(AdmissionHandler, "_answer", fails)
    with pytest.raises(http.client.RemoteDisconnected):
        server.ask(large())
    assert "our bug" in caplog.text
    assert server.admission.slots.taken == 0


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
    reply = server.ask(tokens(most + 1))
    response = json.loads(reply.body)["response"]
    assert (reply.status, response["uid"], response["allowed"]) == (200, UID, False)
    assert (response["status"]["code"], response["status"]["reason"]) == (413, "RequestEntityTooLarge")
    assert response["status"]["message"] == f"the body would take more than {PARSED_BYTES // MIB} MiB of memory"
    assert held.threads == []
    assert server.count(Limit.PARSED_BYTES) == 1
    assert server.outcomes == ["Invalid"]
    assert server.ask(tokens(most + 1).replace(b'"uid"', b'"id"')).status == 413
    assert server.ask(tokens(most)).status == 200
    assert len(held.threads) == 1


@pytest.mark.parametrize("path", ["/%6dutate", "http://localhost/mutate"])
def test_no_path_spelling_lets_a_body_of_too_much_memory_pass(server: Served, path: str) -> None:
    reply = server.ask(tokens(PARSED_BYTES // PARSED_BYTES_PER_TOKEN + 1), path)
    assert json.loads(reply.body)["response"]["status"]["code"] == 413


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_text_in_a_pod_does_not_count_as_structure(server: Served, operation: str) -> None:
    made = deepcopy(MIG_POD)
    made["spec"]["containers"][0]["env"] = [{"name": "CONFIG", "value": json.dumps(list(range(150_000)))}]
    text = {"name": "COMMAS", "value": "," * 920_000}
    made["spec"]["containers"][0]["env"].append(text)
    body = encoded(review(made, operation=operation, oldObject=made if operation == "UPDATE" else None))
    reply = server.ask(body)
    assert (reply.status, json.loads(reply.body)["response"]["allowed"]) == (200, True)


# Pages.


def test_an_error_of_the_application_is_500_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fails(environ: Any, start_response: Any) -> Any:
        raise RuntimeError("ours")

    with reachable(tmp_path, pages(fails, "http"), secure=False) as server:
        reply = server.ask("GET", "/")
        assert (reply.status, json.loads(reply.body)["kind"]) == (500, "Status")
        assert b"ours" not in reply.body
    assert "unexpected error in the application" in caplog.text
    assert "RuntimeError" in caplog.text


@pytest.mark.parametrize("target", ["http:///", "http://h:99999/healthz", "x://"])
def test_a_target_that_is_not_a_url_gets_400(server: Served, caplog: pytest.LogCaptureFixture, target: str) -> None:
    assert server.reachable.ask("GET", target).status == 400
    assert caplog.text == ""


# The end.


def request(path: str, body: bytes = b"") -> Request:
    asked = Request("POST", path, body=body)
    asked.content_type = "application/json"
    asked.arrived = float("inf")
    return asked


@pytest.mark.parametrize(("path", "body"), [("/healthz", b""), ("/mutate", large()), ("/validate", encoded(review()))])
def test_requests_for_a_stopped_thread_get_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: bytes
) -> None:
    monkeypatch.setattr("server.http.handlers.PATIENCE_SECONDS", float("-inf"))
    with served(tmp_path, rules=SLOW_RULES) as server:
        server.handler.stop()
        response = server.handler(request(path, body))
        assert isinstance(response, Response)
        assert response.status == 503
        assert ("Retry-After", "1") in response.headers
        assert server.admission.slots.taken == 0
