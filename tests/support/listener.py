"""Listener in the test's process, reached over HTTPS on loopback."""

import http.client
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from werkzeug.wrappers import Request, Response

from rules_engine.server.http import limits
from rules_engine.server.http.environ import REFUSAL
from rules_engine.server.http.listener import Listener
from rules_engine.server.http.sockets import bind_socket
from rules_engine.server.tls import identity as tls
from tests.support.server import PATIENCE_SECONDS

Application: TypeAlias = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Recorder:
    """WSGI application that responds with the size of the body, or with `answer`, and records its calls."""

    def __init__(self, answer: Callable[[Request], Response] | None = None) -> None:
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self._answer = answer or (lambda request: Response(str(len(request.get_data()))))

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(-1)
        request = Request({**environ, "wsgi.input": BytesIO(body)})
        self.requests.append(request)
        self.bodies.append(body)
        refusal = environ.get(REFUSAL)
        response = self._answer(request) if refusal is None else Response(status=refusal.reason.code)
        return response(environ, start_response)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ends(self) -> bool:
        """True if the server closes the connection."""
        return self.headers.get("connection") == "close"


@dataclass(frozen=True, slots=True)
class Reachable:
    """Listener with its client context; None: without TLS."""

    listener: Listener
    port: int
    context: ssl.SSLContext | None

    @property
    def answers(self) -> int:
        """Number of responses, as uvicorn counts them."""
        return self.listener._connections.state.total_requests

    def connect(self) -> http.client.HTTPConnection:
        if self.context is None:
            return http.client.HTTPConnection("localhost", self.port, timeout=PATIENCE_SECONDS)
        return http.client.HTTPSConnection("localhost", self.port, context=self.context, timeout=PATIENCE_SECONDS)

    def open(self, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
        """Open a connection from an address of 127.0.0.0/8, and send some bytes."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS, source_address=(source, 0))
        connection = plain if self.context is None else self.context.wrap_socket(plain, server_hostname="localhost")
        connection.sendall(sent)
        return connection

    def ask(self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, **headers: str) -> Reply:
        """Send one request on a new connection; a body of several parts is sent in chunks."""
        connection = self.connect()
        try:
            connection.request(method, path, body, headers)
            return reply(connection)
        finally:
            connection.close()


def reply(connection: http.client.HTTPConnection | socket.socket, method: str | None = None) -> Reply:
    """Read the response on a connection. `method` is needed for HEAD."""
    if isinstance(connection, http.client.HTTPConnection):
        response = connection.getresponse()
    else:
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())


@contextmanager
def reachable(
    folder: Path,
    application: Application,
    *,
    secure: bool = True,
    connections: int = 2048,
    receive_seconds: float = PATIENCE_SECONDS,
    request_seconds: float = limits.REQUEST_SECONDS,
    max_waiting: int = limits.CONCURRENT_DECISIONS,
) -> Iterator[Reachable]:
    """Serve requests until the block ends; pending ones are not answered. Each answer must be the application's."""
    answered = count()

    def counting(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        content = application(environ, start_response)
        next(answered)
        return content

    made = Listener(
        "test",
        bind_socket("127.0.0.1", 0),
        counting,
        connections=connections,
        receive_seconds=receive_seconds,
        request_seconds=request_seconds,
        max_waiting=max_waiting,
    )
    context = None
    if secure:
        now = datetime.now(UTC)
        files = tls.localhost_files(folder, now=now)
        made.serve(tls.server_context(tls.read_identity(files.certificate, files.key, now=now)))
        context = ssl.create_default_context(cafile=str(files.ca))
    else:
        made.serve()
    try:
        server = Reachable(made, made.address[1], context)
        yield server
    finally:
        made.stop(0)
    assert server.answers <= next(answered)
