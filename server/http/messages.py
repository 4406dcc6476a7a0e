"""Requests and responses, as the protocol reads and writes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from server.http.limits import BODY_BYTES, RETRY_AFTER_SECONDS

Headers = tuple[tuple[str, str], ...]

JSON: Final[Headers] = (("Content-Type", "application/json"),)

RETRY: Final[Headers] = (*JSON, ("Retry-After", str(RETRY_AFTER_SECONDS)))
"""Headers of a 503 response."""

INTERNAL_ERROR = "an unexpected error; the server's log says more"

TRY_AGAIN = "too many requests at once: try again"


class Request:
    """A complete request. The names of headers are as they were sent.

    `path` is percent-decoded, each byte as a character (as in PEP 3333), `query` is not. `arrived`: when the headers
    were complete (time.perf_counter). `peer`: the client's address. `authenticated`: the client showed a
    verified certificate.
    """

    __slots__ = ("arrived", "authenticated", "body", "headers", "method", "path", "peer", "query", "version")

    def __init__(
        self,
        method: str,
        path: str,
        query: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        version: str,
        arrived: float,
        peer: str,
        authenticated: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.version = version
        self.arrived = arrived
        self.peer = peer
        self.authenticated = authenticated

    def header(self, name: bytes) -> str:
        """Return the value of a header by its lower-case name, or ""."""
        values = [value for found, value in self.headers if found.lower() == name]
        return b",".join(values).decode("latin-1")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Status and message of a refused request."""

    status: HTTPStatus
    message: str


BODY_TOO_LARGE = Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {BODY_BYTES} bytes")


class Response:
    """A response. `headers` are without Content-Length; `length` is that of a body that HEAD leaves out."""

    __slots__ = ("body", "headers", "length", "status")

    def __init__(self, status: int, body: bytes, headers: Headers = JSON, length: int | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.length = len(body) if length is None else length
