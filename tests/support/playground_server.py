"""A client of the playground as a real server on loopback."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.server import PATIENCE_SECONDS
from tools import playground_server


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Playground:
    """A client of a playground; its requests have the headers of the page unless others are given."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = urlsplit(url).netloc

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        own = {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request(
            "POST", path, data, own | {name.replace("_", "-"): value for name, value in headers.items()}
        )

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        host, _, port = self.host.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_SECONDS)
        try:
            sent = {name: value for name, value in headers.items() if value}
            with suppress(BrokenPipeError, ConnectionResetError):  # the server refuses a body that it does not read
                connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Reply(response.status, dict(response.headers), response.read())
        finally:
            connection.close()


@contextmanager
def running_playground(start: Mapping[str, str] | None = None) -> Iterator[Playground]:
    """Run a playground in a thread."""
    with playground_server.running_playground(start) as url:
        yield Playground(url)
