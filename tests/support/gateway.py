"""A gateway and a front in the test's own process, reached over HTTPS on loopback."""

import http.client
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from server.front import Front
from server.gateway import Gateway
from server.tls import for_localhost
from server.tls import read as read_identity
from tests.support.server import PATIENCE_SECONDS


def gateway(application: Any, **options: Any) -> Gateway:
    """One that has room for everything, where the options do not say otherwise."""
    given: dict[str, Any] = {
        "receive_seconds": PATIENCE_SECONDS,
        "most_bytes": 2**20,
        "slow_threads": 4,
        "address": ("localhost", 443),
    }
    return _Traced(application, **(given | options))


class _Traced(Gateway):
    """Whose code coverage sees: granian's threads are none of Python's, where it begins by itself."""

    def take(self, watcher: Any, closing: Callable[[], bool]) -> None:
        if sys.gettrace() is None:
            sys.settrace(threading.gettrace())
        super().take(watcher, closing)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ends(self) -> bool:
        """Whether the connection ends with it."""
        return self.headers.get("connection") == "close"


@dataclass(frozen=True, slots=True)
class Reachable:
    """A front, and what a client needs to reach it."""

    gateway: Gateway
    front: Front
    listener: socket.socket
    port: int
    context: ssl.SSLContext

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self.port, context=self.context, timeout=PATIENCE_SECONDS)

    def open(self, sent: bytes) -> ssl.SSLSocket:
        """A connection on which something was sent."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)
        secure = self.context.wrap_socket(plain, server_hostname="localhost")
        secure.sendall(sent)
        return secure

    def ask(self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, **headers: str) -> Reply:
        """One request on a connection of its own; a body of several parts is sent in chunks."""
        connection = self.connect()
        try:
            connection.request(method, path, body, headers)
            return reply(connection)
        finally:
            connection.close()


def reply(connection: http.client.HTTPSConnection | ssl.SSLSocket) -> Reply:
    """The answer to what was sent on a connection."""
    if isinstance(connection, http.client.HTTPSConnection):
        response = connection.getresponse()
    else:
        response = http.client.HTTPResponse(connection)
        response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())


@contextmanager
def reachable(folder: Path, application: Any, **options: Any) -> Iterator[Reachable]:
    """Serve an application until the end; what it has not answered by then is left."""
    now = datetime.now(UTC)
    files = for_localhost(folder, now=now)
    made = gateway(application, **options)
    made.start()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    front = Front(made, listener)
    front.serve(read_identity(files.certificate, files.key, now=now))
    try:
        yield Reachable(made, front, listener, port, ssl.create_default_context(cafile=str(files.ca)))
    finally:
        if listener.fileno() >= 0:  # else the test has stopped it
            front.stop(PATIENCE_SECONDS, 0)
        made.stop()
