"""Listener in the test's process, reached over HTTPS on loopback."""

import http.client
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from server.http.handlers import PageHandler
from server.http.listener import Listener
from server.http.messages import Refusal, Request, Response, refusal_response
from server.http.protocol import Handler
from server.tls import identity as tls
from tests.support.server import PATIENCE_SECONDS


class Recorder:
    """Handler that responds with the size of the body, or with `answer`, and records its calls."""

    def __init__(self, answer: Callable[[Request], Any] | None = None) -> None:
        self.requests: list[Request] = []
        self.refusals: list[Refusal] = []
        self._answer = answer or (lambda request: Response(200, str(len(request.body)).encode()))

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        return self._answer(request)

    def refuse(self, refusal: Refusal, path: str) -> Response:
        self.refusals.append(refusal)
        return refusal_response(refusal)

    def stop(self) -> None:
        """Do nothing: there are no threads."""

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]


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
    handler: Handler | Callable[[Listener], Handler],
    *,
    secure: bool = True,
    connections: int = 2048,
    receive_seconds: float = PATIENCE_SECONDS,
) -> Iterator[Reachable]:
    """Serve requests until the block ends; pending ones are not answered."""
    make = handler if not hasattr(handler, "refuse") else lambda _listener: handler
    bound = socket.create_server(("127.0.0.1", 0))
    made = Listener("test", bound, make, connections=connections, receive_seconds=receive_seconds)  # type: ignore[arg-type]
    context = None
    if secure:
        now = datetime.now(UTC)
        files = tls.localhost_files(folder, now=now)
        made.start(tls.server_context(tls.read_identity(files.certificate, files.key, now=now)))
        context = ssl.create_default_context(cafile=str(files.ca))
    else:
        made.start()
    try:
        yield Reachable(made, made.address[1], context)
    finally:
        made.stop(0)


def pages(application: Any, scheme: str = "https") -> Callable[[Listener], Handler]:
    """Return a factory of handlers for a WSGI application."""
    return lambda listener: PageHandler(listener.loop, application, listener.address, scheme)
