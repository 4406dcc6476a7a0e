"""HTTP requests and responses."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Final

from server.http.limits import BODY_BYTES, MIB, RETRY_AFTER_SECONDS
from server.http.review import respond_status

Headers = tuple[tuple[str, str], ...]

JSON: Final[Headers] = (("Content-Type", "application/json"),)

RETRY: Final[Headers] = (*JSON, ("Retry-After", str(RETRY_AFTER_SECONDS)))
"""Headers of a 503 response."""

INTERNAL_ERROR = "unexpected error; see the server's log"

STOPPING = "the server is stopping: try again, another replica will answer"


class Request:
    """A request. Header names are as received.

    `path` is percent-decoded, each byte as a character (as in PEP 3333), `query` is not. `content_type`: of several, a
    list. `peer`: the client's address. `authenticated`: the client presented a verified certificate. `arrived`: time
    of the end of the headers (time.perf_counter).
    """

    __slots__ = (
        "arrived",
        "authenticated",
        "body",
        "content_type",
        "headers",
        "method",
        "path",
        "peer",
        "query",
        "version",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        *,
        version: str = "1.1",
        peer: str = "",
        authenticated: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.content_type = ""
        self.version = version
        self.peer = peer
        self.authenticated = authenticated
        self.arrived = perf_counter()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Status and message of a refused request."""

    status: HTTPStatus
    message: str


BODY_TOO_LARGE = Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {BODY_BYTES // MIB} MiB")

CONTENT_ENCODED = Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the only content coding is identity")


class Response:
    """A response. `headers` are without Content-Length; `length`: of the body, also if HEAD omits it."""

    __slots__ = ("body", "headers", "length", "status")

    def __init__(self, status: int, body: bytes, headers: Headers = JSON, length: int | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.length = len(body) if length is None else length


def refusal_response(refusal: Refusal) -> Response:
    """Return the response to a refused request."""
    headers = RETRY if refusal.status is HTTPStatus.SERVICE_UNAVAILABLE else JSON
    return Response(refusal.status, respond_status(refusal.status, refusal.message), headers)
