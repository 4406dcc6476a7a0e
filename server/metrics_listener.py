"""The plain listener for probes, Prometheus and people: few connections, each for one request, each soon over."""

import logging
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread, Timer
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import orjson

from server import probes
from server.state import State

MAX_CONNECTIONS = 16
"""A kubelet, two Prometheus servers and some people; with one more the oldest is cut, which is no probe any more."""

SECONDS = 10.0
"""For a whole request, answer included: Prometheus' own bound on a scrape by default."""

Exposition: TypeAlias = Callable[[], tuple[bytes, str]]
"""All metrics as text, and its content type."""

_Answer: TypeAlias = tuple[HTTPStatus, bytes, str]

_log = logging.getLogger(__name__)


class MetricsListener:
    """Answers `GET` of /healthz, /readyz, /metrics and /rules on a bound socket."""

    def __init__(self, listener: socket.socket, state: State, exposition: Exposition) -> None:
        def report(make: Callable[[], probes.Report]) -> Callable[[], _Answer]:
            def answer() -> _Answer:
                status, content = make()
                return status, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n", "application/json"

            return answer

        def metrics() -> _Answer:
            content, content_type = exposition()
            return HTTPStatus.OK, content, content_type

        self._server = _Server(
            listener,
            {
                "/healthz": report(probes.health),
                "/readyz": report(lambda: probes.readiness(state)),
                "/rules": report(lambda: probes.rules(state)),
                "/metrics": metrics,
            },
        )

    def start(self) -> None:
        Thread(target=self._server.serve_forever, name="metrics-listener", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, listener: socket.socket, routes: Mapping[str, Callable[[], _Answer]]) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.routes = routes
        self._lock = Lock()
        self._open: dict[Any, None] = {}
        self.server_activate()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= MAX_CONNECTIONS else None
            if oldest is not None:
                del self._open[oldest]
            self._open[request] = None
        if oldest is not None:
            _cut(oldest)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # Whatever the client does or does not do: a bound on each read would let it begin again with each byte.
        end = Timer(SECONDS, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's names
        _log.debug("a connection to the metrics listener failed", exc_info=True)


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended by itself


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "gpu-rules"
    sys_version = ""

    def do_GET(self) -> None:
        make = self.server.routes.get(urlsplit(self.path).path)
        if make is None:
            status, content, content_type = HTTPStatus.NOT_FOUND, b"no such page\n", "text/plain"
        else:
            try:
                status, content, content_type = make()
            except Exception:
                _log.exception("unexpected error on the metrics listener")
                status, content, content_type = HTTPStatus.INTERNAL_SERVER_ERROR, b"an unexpected error\n", "text/plain"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Probes are not worth a line."""
