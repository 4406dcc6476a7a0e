"""HTTP: the two admission endpoints as a plain WSGI callable, everything else behind it in Flask.

An admission costs a fraction of what Flask's routing and request objects cost; what they would check is checked here.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from operator import attrgetter
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from rules_engine.cel import Budget
from rules_engine.model.admission import AdmissionRequest
from rules_engine.model.cluster import Cluster
from rules_engine.model.decision import Decision
from server import probes
from server.deadline import REQUEST_SECONDS, Deadline
from server.exchange import Exchange, Observer
from server.gateway import ARRIVED, BusyError
from server.review import RefusedObjectError, ReviewError, StatusReason, parse, respond, respond_error, uid_of
from server.state import Served, State

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

MAX_BODY_BYTES = 8 * 1024 * 1024
"""The API server takes requests of 3 MiB (apiserver, MaxRequestBodyBytes); a review holds an object twice, and more."""

MAX_READ_BYTES = 2 * MAX_BODY_BYTES
"""What is read of a body that is too large, in all: a client that is still sending would miss the answer."""


RETRY_AFTER_SECONDS = 1
"""What a caller is asked to wait before it tries again, as an API server does, ten times at most and within its
timeoutSeconds (client-go, rest/with_retry.go). A burst is over in less; without this, or at 0, so is its patience."""

_HEADERS: Mapping[StatusReason, Sequence[tuple[str, str]]] = {
    StatusReason.METHOD_NOT_ALLOWED: [("Allow", "POST")],
    StatusReason.UNAVAILABLE: [("Retry-After", str(RETRY_AFTER_SECONDS))],
}
"""Headers that go with an error."""


class Decide(Protocol):
    """One of the two endpoints."""

    def __call__(
        self, request: AdmissionRequest, cluster: Cluster, *, budget: Callable[[], Budget] = Budget
    ) -> Decision: ...


ENDPOINTS: dict[str, Callable[[Served], Decide]] = {
    "/mutate": attrgetter("mutate"),
    "/validate": attrgetter("validate"),
}

_log = logging.getLogger(__name__)


def create_app(
    state: State,
    *,
    max_concurrent: int,
    observers: Sequence[Observer] = (),
    request_seconds: float = REQUEST_SECONDS,
) -> Flask:
    """The whole server as a WSGI application, of which at most `max_concurrent` decisions are under way at once."""
    app = Flask(__name__, static_folder=None)
    slots = Slots(state, max_concurrent)
    app.wsgi_app = Admission(state, app.wsgi_app, slots, observers, request_seconds)  # type: ignore[method-assign]

    @app.get("/healthz")
    def healthz() -> Response:
        return _json(*probes.health())

    @app.get("/readyz")
    def readyz() -> Response:
        return _json(*probes.readiness(state))

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Response:
        code = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
        status = {"code": code, "reason": error.name.replace(" ", ""), "message": error.description}
        response = _json(code, {"apiVersion": "v1", "kind": "Status", "status": "Failure", **status})
        for name, value in error.get_headers():
            if name == "Allow":
                response.headers[name] = value
        return response

    return app


class Slots:
    """Decisions that may be under way at once. What is over the bound is refused, and does not wait."""

    __slots__ = ("_limit", "_lock", "_state")

    def __init__(self, state: State, limit: int) -> None:
        self._state = state
        self._limit = limit
        self._lock = Lock()

    def __enter__(self) -> None:
        """Take one. Raises BusyError."""
        with self._lock:
            if self._state.in_flight >= self._limit:
                raise BusyError
            self._state.in_flight += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._state.in_flight -= 1


class Admission:
    """`POST /mutate` and `POST /validate`; every other path goes on to the next application."""

    __slots__ = ("_next", "_observers", "_request_seconds", "_slots", "_state")

    def __init__(
        self,
        state: State,
        next: "WSGIApplication",
        slots: Slots,
        observers: Sequence[Observer] = (),
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._state = state
        self._next = next
        self._slots = slots
        self._observers = tuple(observers)
        self._request_seconds = request_seconds

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        endpoint = ENDPOINTS.get(path)
        if endpoint is None:
            return self._next(environ, start_response)
        headers = [("Content-Type", "application/json")]
        exchange = Exchange(path[1:])
        begin = perf_counter()
        try:
            body = _body(environ)
            deadline = Deadline(environ.get(ARRIVED, begin), environ, self._request_seconds)
            begin = perf_counter()
            answer = self._answer(body, endpoint, exchange, deadline)
            code = HTTPStatus.OK
        except ReviewError as error:
            exchange.uid, exchange.error = error.uid, error.reason
            answer = respond_error(error)
            code = HTTPStatus(error.reason.code)
            headers += _HEADERS.get(error.reason, ())
        except Exception:
            # Our bug, whatever it is: said aloud here, and to the caller as a failed call, never as a decision.
            _log.exception("unexpected error while request %s was answered", exchange.uid or "without a uid")
            exchange.error = StatusReason.INTERNAL_ERROR
            answer = respond_error(ReviewError(StatusReason.INTERNAL_ERROR, _OUR_BUG, exchange.uid))
            code = HTTPStatus.INTERNAL_SERVER_ERROR
        exchange.seconds = perf_counter() - begin
        for observe in self._observers:
            try:
                observe(exchange)
            except Exception:
                _log.exception("unexpected error while request %s was noted", exchange.uid or "without a uid")
        headers.append(("Content-Length", str(len(answer))))
        start_response(f"{code.value} {code.phrase}", headers)
        return [answer]

    def _answer(
        self, body: bytes, endpoint: Callable[[Served], Decide], exchange: Exchange, deadline: Deadline
    ) -> bytes:
        """Raises ReviewError."""
        try:
            request = parse(body)
        except RefusedObjectError as error:
            exchange.uid, exchange.decision = error.uid, error.decision
            return respond(error.uid, error.decision)
        exchange.uid, exchange.request = request.uid, request
        served, cluster = self._state.served, self._state.cluster
        if served is None or cluster is None:
            raise ReviewError(StatusReason.UNAVAILABLE, "the server is still starting", request.uid)
        try:
            with self._slots:
                decision = endpoint(served)(request, cluster, budget=deadline)
        except BusyError:
            raise _too_many(request.uid) from None
        exchange.served, exchange.cluster, exchange.decision = served, cluster, decision
        return respond(request.uid, decision)


def _body(environ: "WSGIEnvironment") -> bytes:
    """The body of a request as it should be. Raises ReviewError."""
    if environ["REQUEST_METHOD"] != "POST":
        raise ReviewError(StatusReason.METHOD_NOT_ALLOWED, f"{environ['PATH_INFO']} takes POST")
    try:
        body = _read(environ)
    except BusyError:
        raise _too_many() from None
    media_type = environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        message = f"the content type must be application/json, not {media_type or 'absent'}"
        raise ReviewError(StatusReason.UNSUPPORTED_MEDIA_TYPE, message, uid_of(body))
    return body


def _too_many(uid: str | None = None) -> ReviewError:
    return ReviewError(StatusReason.UNAVAILABLE, "too many requests at once: try again", uid)


_OUR_BUG = "an unexpected error; the server's log says more"

_CHUNK_BYTES = 64 * 1024


def _read(environ: "WSGIEnvironment") -> bytes:
    """The body, with or without a Content-Length. Raises ReviewError when it is too large or cut short."""
    stream = environ["wsgi.input"]
    length = environ.get("CONTENT_LENGTH") or ""
    if not length:
        # Without a length the body ends where the transport says so (chunked, HTTP/2); a server that can tell
        # sets this key, and any other would let us wait for ever.
        body = _up_to(stream, MAX_BODY_BYTES + 1) if environ.get("wsgi.input_terminated") else b""
        if len(body) > MAX_BODY_BYTES:
            raise _too_large(stream, MAX_READ_BYTES - len(body))
        return body
    if not (length.isascii() and length.isdigit()):
        raise ReviewError(StatusReason.BAD_REQUEST, "Content-Length is not a number")
    if len(length) > _MAX_LENGTH_DIGITS or int(length) > MAX_BODY_BYTES:
        raise _too_large(stream, MAX_READ_BYTES)
    body = _up_to(stream, int(length))
    if len(body) < int(length):
        raise ReviewError(StatusReason.BAD_REQUEST, "the body is shorter than its Content-Length")
    return body


_MAX_LENGTH_DIGITS = 20
"""Digits of a Content-Length that are read as a number: every 64-bit one."""


def _up_to(stream: Any, size: int) -> bytes:
    """What there is, `size` bytes at most; a stream may give less than it is asked for before it ends."""
    body: bytes = stream.read(size)
    if not body or len(body) == size:
        return body
    parts = [body]
    left = size - len(body)
    while left and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _too_large(stream: Any, left: int) -> ReviewError:
    while left > 0 and (part := stream.read(min(left, _CHUNK_BYTES))):
        left -= len(part)
    return ReviewError(StatusReason.TOO_LARGE, f"the body is larger than {MAX_BODY_BYTES} bytes")


def _json(code: int, content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), status=code, mimetype="application/json")
