"""Flask applications: one for admissions, one for probes and metrics.

They answer every request, in `gpu-rules serve` as in any other WSGI server.
"""

from collections.abc import Callable
from http import HTTPStatus
from time import perf_counter
from typing import Any, TypeAlias

import flask
import orjson
from flask import Flask
from werkzeug.exceptions import HTTPException, InternalServerError, MethodNotAllowed, NotFound, RequestEntityTooLarge

from rules_engine.server.http import probes
from rules_engine.server.http.admission import ENDPOINTS, INTERNAL_ERROR, AdmissionEndpoint, HttpRequest, Response
from rules_engine.server.http.deadline import Deadline
from rules_engine.server.http.environ import CLIENT_VERIFIED, DEADLINE, REFUSAL
from rules_engine.server.http.limits import BODY_BYTES, REQUEST_SECONDS, RETRY_AFTER_SECONDS
from rules_engine.server.http.review import ReviewError, StatusReason, body_too_large, respond_status
from rules_engine.server.state import ServerState

Exposition: TypeAlias = Callable[[], tuple[bytes, str]]
"""Function that returns all metrics as text, and the content type."""

PageOf: TypeAlias = Callable[[], probes.Page]
"""Function that returns a page: a status and its JSON."""


def create_app(state: ServerState, endpoint: AdmissionEndpoint, *, request_seconds: float = REQUEST_SECONDS) -> Flask:
    """Create the application with the endpoints of admissions, `GET /healthz` and `/readyz`.

    `request_seconds`: time for a request to which the WSGI server gives no deadline.
    """
    app = _create_base_app(lambda: probes.health_page(state), lambda: probes.readiness_page(state))
    # One byte more: Werkzeug cuts a body without Content-Length here, and raises nothing.
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES + 1

    def admit() -> flask.Response:
        request = flask.request
        refusal: ReviewError | None = request.environ.get(REFUSAL)
        body = b""
        try:
            body = request.get_data(cache=False)
        except RequestEntityTooLarge:
            refusal = refusal or body_too_large()
        except HTTPException:
            refusal = refusal or _CUT_SHORT
        http_request = HttpRequest(
            request.path, request.content_type or "", body, request.environ.get(CLIENT_VERIFIED) == "SUCCESS"
        )
        refusal = refusal or _refusal(body)
        if refusal is not None:
            return _flask_response(endpoint.refuse(http_request, refusal))
        deadline = request.environ.get(DEADLINE)
        if deadline is None:
            deadline = Deadline(perf_counter(), request.query_string.decode("latin-1"), request_seconds)
        return _flask_response(endpoint.answer(http_request, deadline))

    for path in ENDPOINTS:
        app.add_url_rule(path, path, admit, methods=["POST"], provide_automatic_options=False)
    return app


def _refusal(body: bytes) -> ReviewError | None:
    """Return why the request is not to be decided; None if it is."""
    request = flask.request
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        return ReviewError(StatusReason.UNSUPPORTED_MEDIA_TYPE, "the only content coding is identity")
    if len(body) > BODY_BYTES:
        return body_too_large()
    if len(body) < (request.content_length or 0):
        return _CUT_SHORT
    return None


def create_metrics_app(state: ServerState, exposition: Exposition) -> Flask:
    """Create the application with `GET /healthz`, `/readyz`, `/metrics` and `/rules`."""
    app = create_probes_app(lambda: probes.health_page(state), lambda: probes.readiness_page(state), exposition)

    @app.get("/rules")
    def rules() -> flask.Response:
        return _json_response(*probes.rules_page(state))

    return app


def create_probes_app(health: PageOf, readiness: PageOf, exposition: Exposition) -> Flask:
    """Create an application with `GET /healthz`, `/readyz` and `/metrics`."""
    app = _create_base_app(health, readiness)

    @app.get("/metrics")
    def metrics() -> flask.Response:
        content, content_type = exposition()
        return flask.Response(content, content_type=content_type)

    return app


def status_response(error: HTTPException) -> flask.Response:
    """Return an HTTP error as metav1.Status."""
    code = HTTPStatus(error.code or HTTPStatus.INTERNAL_SERVER_ERROR)
    request = flask.request
    match error:
        case NotFound():
            message = f"{request.path} is not served on this listener"
        case MethodNotAllowed():
            message = f"{request.path} takes {', '.join(sorted(error.valid_methods or ()))}"
        case InternalServerError():
            message = INTERNAL_ERROR
        case _:
            message = error.description or code.phrase
    response = flask.Response(respond_status(code, message), code, mimetype=_JSON)
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _create_base_app(health: PageOf, readiness: PageOf) -> Flask:
    """Create an application with the health endpoints and JSON errors."""
    app = Flask(__name__, static_folder=None)
    app.url_map.merge_slashes = False
    app.register_error_handler(HTTPException, status_response)

    @app.get("/healthz")
    def healthz() -> flask.Response:
        return _json_response(*health())

    @app.get("/readyz")
    def readyz() -> flask.Response:
        return _json_response(*readiness())

    return app


def _flask_response(response: Response) -> flask.Response:
    made = flask.Response(response.body, response.status, mimetype=_JSON)
    if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
        made.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return made


def _json_response(code: int, content: dict[str, Any]) -> flask.Response:
    return flask.Response(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n", code, mimetype=_JSON)


_JSON = "application/json"

_CUT_SHORT = ReviewError(StatusReason.BAD_REQUEST, "the body is shorter than its Content-Length")
