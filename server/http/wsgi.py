"""WSGI calls (PEP 3333)."""

import sys
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from server.http.messages import Request, Response

if TYPE_CHECKING:
    from _typeshed import OptExcInfo
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment


def call_application(
    application: "WSGIApplication", request: Request, server: tuple[str, int], scheme: str
) -> Response:
    """Call the application and return its response. `server`: host and port of the listener."""
    start = _StartResponse()
    content = application(request_environ(request, server, scheme), start)
    try:
        body = b"".join(content)
    finally:
        close = getattr(content, "close", None)
        if close is not None:
            close()
    headers = tuple((name, value) for name, value in start.headers if name.lower() != "content-length")
    length = next((int(value) for name, value in start.headers if name.lower() == "content-length"), None)
    return Response(start.status, body, headers, length if request.method == "HEAD" else None)


def request_environ(request: Request, server: tuple[str, int], scheme: str) -> "WSGIEnvironment":
    """Return the WSGI environ of a request."""
    values: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path,
        "QUERY_STRING": request.query,
        "REMOTE_ADDR": request.peer,
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "SERVER_PROTOCOL": f"HTTP/{request.version}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.input": BytesIO(request.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers:
        if b"_" in name:
            continue  # "Content_Length" would be taken for Content-Length
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        text = value.decode("latin-1").strip()
        values[key] = f"{values[key]},{text}" if key in values else text
    return values


class _StartResponse:
    """`start_response` of one request."""

    __slots__ = ("headers", "status")

    def __init__(self) -> None:
        self.status = 500
        self.headers: Sequence[tuple[str, str]] = ()

    def __call__(
        self, status: str, headers: list[tuple[str, str]], _exc_info: "OptExcInfo | None" = None
    ) -> Callable[[bytes], object]:
        self.status = int(status[:3])
        self.headers = headers
        return _refuse_write


def _refuse_write(_content: bytes) -> None:
    raise NotImplementedError("responses are returned, not written")
