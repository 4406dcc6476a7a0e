"""Requests as calls of a WSGI application, over the wire."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from wsgiref.validate import validator

import pytest

from tests.support.listener import pages, reachable, reply


class Recorder:
    """An application that answers with the size of the body, and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.calls.append(environ)
        self.bodies.append(environ["wsgi.input"].read(-1))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(len(self.bodies[-1])).encode()]


def test_an_application_is_called_as_pep_3333_says(tmp_path: Path) -> None:
    recorder = Recorder()
    checked: Callable[..., Any] = validator(recorder)
    with reachable(tmp_path, pages(checked)) as server:
        headers = {"Content-Type": "application/json", "X-Two-Words": "a", "User-Agent": "test"}
        assert server.ask("POST", "/a/b?timeout=5s&x=%20", b"body", **headers).body == b"4"
        assert server.ask("GET", "/").body == b"0"
    first, second = recorder.calls
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
        "HTTP_HOST": f"localhost:{server.port}",
        "HTTP_USER_AGENT": "test",
        "HTTP_X_TWO_WORDS": "a",
        "wsgi.url_scheme": "https",
        "wsgi.input_terminated": True,
    }
    assert {name: first.get(name) for name in expected} == expected
    assert "CONTENT_LENGTH" not in second
    assert "CONTENT_TYPE" not in second
    assert recorder.bodies == [b"body", b""]


def test_duplicate_headers_are_joined(tmp_path: Path) -> None:
    recorder = Recorder()
    sent = b"GET / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-A: 2\r\n\r\n"
    with reachable(tmp_path, pages(recorder), secure=False) as server, closing(server.open(sent)) as connection:
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

    with reachable(tmp_path, pages(application), secure=False) as server:
        answer = server.ask("GET", "/")
    assert (answer.status, answer.headers["a"], answer.body, parts.closed) == (404, "b", b"ab", True)
