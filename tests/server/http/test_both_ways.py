"""The same requests to the protocol, to Flask's test client and to another WSGI server: the same answers.

`create_app` is an application that any WSGI server can serve, so what the protocol answers by itself must be what the
application answers.
"""

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any
from urllib.parse import unquote

import pytest
from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from rules_engine.documents.registry import load_documents
from rules_engine.evaluation import RuleSet
from rules_engine.kinds import compile_rules
from rules_engine.model.kubernetes.cluster import Cluster
from server.cluster.source import FixedCluster
from server.http.admission import Admission
from server.http.admission_record import AdmissionRecord, Observer
from server.http.app import create_app, create_metrics_app
from server.http.handlers import AdmissionHandler, PageHandler
from server.http.limits import BODY_BYTES, LARGE_BODY_BYTES, RETRY_AFTER_SECONDS, SMALL_BYTES
from server.http.listener import Listener
from server.state import ServedRules, State
from tests.support.authoring import validation
from tests.support.evaluation import limited
from tests.support.listener import Reachable, reachable, reply
from tests.support.server import LADDER, MIG_POD, PATIENCE_SECONDS, UID, encoded, review
from tests.support.states import state_of

WARNING = "---\n" + validation(
    "named",
    "\"object.metadata.name != 'p'\"",
    message="a pod should have a longer name",
    validationActions="[Warn, Audit]",
)

COMPARED = ("content-type", "retry-after", "allow")
"""Headers that are the same whoever serves the application."""


@dataclass(frozen=True, slots=True)
class Same:
    """An answer without what differs from server to server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        """The code of the status, wherever it is."""
        document = self.document
        status = document["response"]["status"] if document["kind"] == "AdmissionReview" else document
        code: int = status["code"]
        return code


def same(status: int, headers: Any, body: bytes) -> Same:
    found = {name.lower(): value for name, value in headers}
    return Same(status, {name: found[name] for name in COMPARED if name in found}, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request. A body of several parts is sent in chunks."""

    method: str = "POST"
    target: str = "/mutate"
    body: bytes | Sequence[bytes] = b""
    content_type: str | None = "application/json"
    content_encoding: str = "identity"


Way = Callable[[Asked], Same]


def over(connection: http.client.HTTPConnection) -> Way:
    def ask(asked: Asked) -> Same:
        with closing(connection):
            body = asked.body if isinstance(asked.body, bytes) else iter(asked.body)
            in_chunks = not isinstance(asked.body, bytes)
            connection.putrequest(asked.method, asked.target, skip_accept_encoding=True)
            if asked.content_type is not None:
                connection.putheader("Content-Type", asked.content_type)
            connection.putheader("Content-Encoding", asked.content_encoding)
            if in_chunks:
                connection.putheader("Transfer-Encoding", "chunked")
            else:
                connection.putheader("Content-Length", str(len(asked.body)))
            with suppress(BrokenPipeError, ConnectionResetError):  # it may be answered before all of it was sent
                connection.endheaders(body, encode_chunked=in_chunks)
            response = connection.getresponse()
            return same(response.status, response.getheaders(), response.read())

    return ask


def by_test_client(app: Flask) -> Way:
    def ask(asked: Asked) -> Same:
        path, _, query = asked.target.partition("?")
        overrides: dict[str, Any] = {"PATH_INFO": unquote(path, "latin-1"), "QUERY_STRING": query}
        overrides["HTTP_CONTENT_ENCODING"] = asked.content_encoding
        if isinstance(asked.body, bytes):
            body = asked.body
        else:
            body = b"".join(asked.body)
            overrides |= {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
        with (
            app.test_client() as client,
            client.open(
                "/", method=asked.method, data=body, content_type=asked.content_type, environ_overrides=overrides
            ) as response,
        ):
            return same(response.status_code, response.headers.items(), response.data)

    return ask


class Quiet(WSGIRequestHandler):
    """Logs no requests."""

    def log(self, type: str, message: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def another_server(app: Flask) -> Iterator[int]:
    """Werkzeug's own server; its port."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True, slots=True)
class Ways:
    """One application, and all ways to reach it."""

    admission: Admission
    app: Flask
    protocol: Reachable
    other_port: int
    records: list[AdmissionRecord]

    def ask(self, asked: Asked) -> Same:
        """The answer, which is the same by all ways, and recorded alike."""
        other = http.client.HTTPConnection("127.0.0.1", self.other_port, timeout=PATIENCE_SECONDS)
        found, recorded = {}, {}
        taken = self.admission.slots.taken
        for name, way in {
            "protocol": over(self.protocol.connect()),
            "test client": by_test_client(self.app),
            "another server": over(other),
        }.items():
            self.records.clear()
            found[name] = way(asked)
            recorded[name] = [(one.endpoint, one.uid, one.outcome, one.decision) for one in self.records]
        answer = found["test client"]
        assert found == dict.fromkeys(found, answer)
        assert recorded == dict.fromkeys(recorded, recorded["test client"])
        assert self.admission.slots.taken == taken
        return answer


@contextmanager
def ways(
    folder: Path, state: State, *observers: Observer, max_concurrent: int = 4, receive_seconds: float = 30.0
) -> Iterator[Ways]:
    records: list[AdmissionRecord] = []
    admission = Admission(state, max_concurrent=max_concurrent, observers=[*observers, records.append])
    app = create_app(state, admission)

    def handler(it: Listener) -> AdmissionHandler:
        pages = PageHandler(it.loop, app, it.address, "https")
        return AdmissionHandler(it.loop, admission, pages, it.connections.exceeded)

    with (
        reachable(folder, handler, receive_seconds=receive_seconds) as protocol,
        another_server(app) as other_port,
    ):
        yield Ways(admission, app, protocol, other_port, records)


@pytest.fixture(scope="module")
def rule_set(tmp_path_factory: pytest.TempPathFactory) -> RuleSet:
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(LADDER + WARNING)
    loaded = load_documents([path])
    assert loaded.problems == ()
    compiled, problems = compile_rules(loaded.rules)
    assert problems == ()
    return compiled


@pytest.fixture(scope="module")
def all_ways(rule_set: RuleSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with ways(tmp_path_factory.mktemp("ways"), state_of(rule_set, Cluster())) as found:
        yield found


def padded(size: int) -> bytes:
    """A review of exactly this size."""
    document = review(deepcopy(MIG_POD))
    document["request"]["object"]["metadata"]["annotations"] = {"a": ""}
    return encoded(document).replace(b'{"a": ""}', b'{"a": "%b"}' % (b"x" * (size - len(encoded(document)))))


def in_parts(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


PATCHED = encoded(review(MIG_POD))
DENIED = encoded(review(limited(image="app:latest")))
NAMED = limited()
NAMED["metadata"]["name"] = "pod"

DECISIONS = {
    "patch": Asked(body=PATCHED),
    "no patch": Asked(body=encoded(review())),
    "deny": Asked(target="/validate", body=DENIED),
    "warn": Asked(target="/validate", body=encoded(review())),
    "allow": Asked(target="/validate", body=encoded(review(NAMED))),
    "malformed pod": Asked(body=encoded(review({"spec": {"containers": [None, 3]}}))),
    "malformed quantity": Asked(target="/validate", body=encoded(review(limited({"nvidia.com/gpu": "two"})))),
    "quantity that lost digits": Asked(body=encoded(review(limited({"nvidia.com/gpu": 2**64})))),
    "no object": Asked(body=encoded(review() | {"request": review()["request"] | {"object": None}})),
    "update": Asked(body=encoded(review(operation="UPDATE"))),
    "another resource": Asked(body=encoded(review(resource={"group": "", "version": "v1", "resource": "services"}))),
    "parameters of the content type": Asked(body=PATCHED, content_type="Application/JSON; charset=utf-8"),
    "time-out": Asked(target="/mutate?timeout=5s", body=PATCHED),
    "other query": Asked(target="/validate?timeout=10s&x=%20?", body=DENIED),
    "percent-encoded path": Asked(target="/mut%61te", body=PATCHED),
    "two slashes": Asked(target="//mutate", body=PATCHED),
    "chunks": Asked(body=in_parts(PATCHED, 50)),
    "one chunk": Asked(body=[PATCHED]),
    "large body": Asked(body=padded(LARGE_BODY_BYTES)),
    "larger body": Asked(body=padded(LARGE_BODY_BYTES + 1)),
    "largest body": Asked(body=padded(BODY_BYTES)),
    "largest body in chunks": Asked(body=in_parts(padded(BODY_BYTES), 100_000)),
    "largest body to a percent-encoded path": Asked(target="/mut%61te", body=padded(BODY_BYTES)),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_the_same_whoever_receives_the_request(all_ways: Ways, name: str) -> None:
    answer = all_ways.ask(DECISIONS[name])
    assert answer.status == 200
    assert answer.headers == {"content-type": "application/json"}
    assert answer.document["response"]["uid"] == UID


def test_decisions_are_what_their_names_say(all_ways: Ways) -> None:
    small = {name: asked for name, asked in DECISIONS.items() if "large" not in name}
    responses = {name: all_ways.ask(asked).document["response"] for name, asked in small.items()}
    assert "patch" in responses["patch"]
    assert all(
        responses[name] == responses["patch"] for name in ("time-out", "percent-encoded path", "two slashes", "chunks")
    )
    assert responses["deny"]["status"]["message"].endswith("an image must have a tag")
    assert responses["warn"]["allowed"]
    assert responses["warn"]["warnings"]
    assert responses["malformed pod"]["status"]["code"] == 422
    assert {response["allowed"] for response in responses.values()} == {True, False}


FAILED = {
    "malformed JSON": (Asked(body=b'{"request": '), 400),
    "no body": (Asked(), 400),
    "no review": (Asked(body=b"[]"), 400),
    "no uid": (Asked(body=encoded(review(uid=...))), 400),
    "malformed review with a uid": (Asked(body=encoded(review(kind=...))), 400),
    "another version": (Asked(body=PATCHED.replace(b"k8s.io/v1", b"k8s.io/v2")), 400),
    "no UTF-8": (Asked(body=b"\xff" + PATCHED), 400),
    "nested deeply": (Asked(body=b"[" * 10_000), 400),
    "wrong content type": (Asked(body=PATCHED, content_type="text/plain"), 415),
    "wrong content type and no uid": (Asked(body=b"{}", content_type="text/plain"), 415),
    "malformed content type": (Asked(body=PATCHED, content_type=";"), 415),
    "content type that is no ASCII": (Asked(body=PATCHED, content_type="ü/ü"), 415),
    "no content type": (Asked(body=PATCHED, content_type=None), 415),
    "content coding": (Asked(body=PATCHED, content_encoding="gzip"), 415),
    "body too large": (Asked(body=b"x" * (BODY_BYTES + 1)), 413),
    "body too large to validate": (Asked(target="/validate?timeout=5s", body=padded(BODY_BYTES + 1)), 413),
    "body too large in chunks": (Asked(body=in_parts(b"x" * (BODY_BYTES + 1), 100_000)), 413),
    "body too large for a percent-encoded path": (Asked(target="/mut%61te", body=b"x" * (BODY_BYTES + 1)), 413),
    "unknown path": (Asked(target="/", body=PATCHED), 404),
    "slash at the end": (Asked(target="/mutate/", body=PATCHED), 404),
    "two slashes in the path": (Asked(target="/x//mutate", body=PATCHED), 404),
    "dots": (Asked(target="/x/../mutate", body=PATCHED), 404),
    "upper case": (Asked(target="/Mutate", body=PATCHED), 404),
    "NUL": (Asked(target="/mutate%00", body=PATCHED), 404),
    "no ASCII": (Asked(target="/m%C3%BCtate", body=PATCHED), 404),
    "percent-encoded question mark": (Asked(target="/mutate%3Ftimeout=5s", body=PATCHED), 404),
    "GET": (Asked(method="GET"), 405),
    "PUT": (Asked(method="PUT", body=PATCHED), 405),
    "PATCH": (Asked(method="PATCH", body=PATCHED), 405),
    "DELETE": (Asked(method="DELETE"), 405),
    "OPTIONS": (Asked(method="OPTIONS"), 405),
    "GET with a query": (Asked(method="GET", target="/validate?timeout=5s"), 405),
    "POST to a page": (Asked(target="/healthz", body=PATCHED), 405),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_is_the_same_whoever_receives_the_request(all_ways: Ways, name: str) -> None:
    asked, status = FAILED[name]
    answer = all_ways.ask(asked)
    assert (answer.status, answer.code) == (status, status)
    assert answer.headers["content-type"] == "application/json"
    assert ("allow" in answer.headers) == (status == 405)
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize(("path", "status"), [("/mutate", 405), ("/healthz", 200), ("/", 404)])
def test_head_is_the_same_whoever_receives_it(all_ways: Ways, path: str, status: int) -> None:
    answer = all_ways.ask(Asked(method="HEAD", target=path))
    assert (answer.status, answer.body) == (status, b"")
    got = all_ways.ask(Asked(method="GET", target=path))
    assert (got.status, got.headers) == (answer.status, answer.headers)
    with closing(all_ways.protocol.connect()) as connection:
        connection.request("HEAD", path)
        assert reply(connection).headers["content-length"] == str(len(got.body))


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_a_page_is_the_same_whoever_receives_the_request(all_ways: Ways, path: str, method: str) -> None:
    assert all_ways.ask(Asked(method=method, target=path, content_type=None)).status == 200


def test_an_absolute_target_gets_the_same_answer(all_ways: Ways) -> None:
    expected = all_ways.ask(Asked(body=PATCHED))
    asked = Asked(target="https://localhost/mutate?timeout=5s", body=PATCHED)
    assert over(all_ways.protocol.connect())(asked) == expected
    other = http.client.HTTPConnection("127.0.0.1", all_ways.other_port, timeout=PATIENCE_SECONDS)
    assert over(other)(asked) == expected


class Broken(FixedCluster):
    """A cluster that cannot be read."""

    def current(self) -> Cluster:
        raise RuntimeError("our bug")


@pytest.mark.parametrize("body", [PATCHED, padded(LARGE_BODY_BYTES + 1)])
def test_our_own_error_is_the_same_failure_and_logged(
    rule_set: RuleSet, tmp_path: Path, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    with ways(tmp_path, State(ServedRules(rule_set=rule_set), Broken(Cluster()))) as found:
        answer = found.ask(Asked(body=body))
    assert (answer.status, answer.code, answer.document["response"]["allowed"]) == (500, 500, False)
    assert "our bug" not in answer.body.decode()
    assert caplog.text.count("RuntimeError: our bug") == 3


def test_an_error_of_an_observer_changes_no_answer(
    rule_set: RuleSet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def observe(_: AdmissionRecord) -> None:
        raise RuntimeError("our bug")

    with ways(tmp_path, state_of(rule_set, Cluster()), observe) as found:
        assert "patch" in found.ask(Asked(body=PATCHED)).document["response"]
        assert found.ask(Asked(body=b"x" * (BODY_BYTES + 1))).status == 413
    assert caplog.text.count("RuntimeError: our bug") == 6


@pytest.mark.parametrize(
    "body",
    [padded(size) for size in (SMALL_BYTES + 1, LARGE_BODY_BYTES, LARGE_BODY_BYTES + 1)] + [b"x" * LARGE_BODY_BYTES],
)
def test_over_the_limit_on_decisions_a_caller_is_told_to_retry(rule_set: RuleSet, tmp_path: Path, body: bytes) -> None:
    with ways(tmp_path, state_of(rule_set, Cluster()), max_concurrent=1) as found:
        assert found.admission.slots.take()
        answer = found.ask(Asked(body=body))
        assert (answer.status, answer.code) == (503, 503)
        assert answer.headers["retry-after"] == str(RETRY_AFTER_SECONDS)
        assert (UID in answer.body.decode()) == (body[0] == ord("{"))
        found.admission.slots.release()
        assert found.ask(Asked(body=PATCHED)).status == 200


def without_message(answer: Same) -> Same:
    """Remove the message: the time for a body is a matter of the server."""
    document = answer.document
    assert document.pop("message")
    return replace(answer, body=encoded(document))


@pytest.mark.parametrize("path", ["/mutate", "/validate?timeout=5s"])
def test_a_body_shorter_than_its_length_is_the_same_failure(rule_set: RuleSet, tmp_path: Path, path: str) -> None:
    length = len(PATCHED) + 1
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    sent = head.encode() + PATCHED
    with ways(tmp_path, state_of(rule_set, Cluster()), receive_seconds=0.2) as found:
        with closing(found.protocol.open(sent)) as connection:
            raw = reply(connection)
        answers = [same(raw.status, raw.headers.items(), raw.body)]
        with closing(socket.create_connection(("127.0.0.1", found.other_port), PATIENCE_SECONDS)) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            raw = reply(connection)
        answers.append(same(raw.status, raw.headers.items(), raw.body))
        with (
            found.app.test_client() as client,
            client.open(
                path,
                method="POST",
                content_type="application/json",
                environ_overrides={"wsgi.input": BytesIO(PATCHED), "CONTENT_LENGTH": str(length)},
            ) as response,
        ):
            answers.append(same(response.status_code, response.headers.items(), response.data))
        assert [(one.endpoint, one.uid, one.outcome) for one in found.records] == [
            (path[1:].partition("?")[0], None, "BadRequest")
        ] * 3
    assert len({answer.status for answer in answers}) == 1
    assert without_message(answers[0]) == without_message(answers[1]) == without_message(answers[2])
    assert answers[0].code == 400


@pytest.mark.parametrize("target", ["/mutate", "/mut%61te", "https://localhost/mutate"])
def test_a_body_of_too_much_memory_is_refused_on_any_path(all_ways: Ways, target: str) -> None:
    body = b'{"a":[' + b"[],[]," * (1024 * 1024) + b"[]]}"
    begin = perf_counter()
    answer = over(all_ways.protocol.connect())(Asked(target=target, body=body))
    assert (answer.status, answer.code) == (413, 413)
    assert perf_counter() - begin < PATIENCE_SECONDS


def test_pages_of_the_plain_listener_are_the_same_in_any_server(rule_set: RuleSet, tmp_path: Path) -> None:
    app = create_metrics_app(state_of(rule_set, Cluster()), lambda: (b"# EOF\n", "application/openmetrics-text"))

    def handler(it: Listener) -> PageHandler:
        return PageHandler(it.loop, app, it.address, "http")

    with reachable(tmp_path, handler, secure=False) as protocol, another_server(app) as port:
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            for path in ("/metrics", "/rules", "/healthz", "/readyz", "/mutate", "/"):
                asked = Asked(method=method, target=path, content_type=None)
                other = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
                expected = by_test_client(app)(asked)
                assert over(protocol.connect())(asked) == over(other)(asked) == expected, (method, path)
