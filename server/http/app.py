"""Flask applications: one for admissions, one for probes and metrics.

Any WSGI server, or Flask's test client, gets the same responses as from `gpu-rules serve`.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeAlias

import flask
import orjson
from flask import Flask
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge

from server.http import probes
from server.http.admission import ENDPOINTS, Admission
from server.http.limits import BODY_BYTES
from server.http.messages import BODY_TOO_LARGE, CONTENT_ENCODED, Refusal, Request, Response
from server.http.review import respond_status
from server.state import State

Exposition: TypeAlias = Callable[[], tuple[bytes, str]]
"""Function that returns all metrics as text, and the content type."""

PageOf: TypeAlias = Callable[[], probes.Page]
"""Function that returns a page: a status and its JSON."""


def create_app(state: State, admission: Admission) -> Flask:
    """Create the application with the endpoints of admissions, `GET /healthz` and `/readyz`."""
    app = _create_base_app(lambda: probes.health_page(state), lambda: probes.readiness_page(state))
    # One byte more: Werkzeug cuts a body without Content-Length here, and raises nothing.
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES + 1

    def admit() -> flask.Response:
        request = flask.request
        received = Request("POST", request.path, request.query_string.decode("latin-1"))
        received.content_type = request.content_type or ""
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            return _flask_response(admission.refuse(request.path, CONTENT_ENCODED))
        try:
            body = request.get_data(cache=False)
        except RequestEntityTooLarge:
            return _flask_response(admission.refuse(request.path, BODY_TOO_LARGE))
        except HTTPException:
            return _flask_response(admission.refuse(request.path, _CUT_SHORT))
        if len(body) > BODY_BYTES:
            return _flask_response(admission.refuse(request.path, BODY_TOO_LARGE))
        if len(body) < (request.content_length or 0):
            return _flask_response(admission.refuse(request.path, _CUT_SHORT))
        received.body = body
        return _flask_response(admission.admit(received))

    for path in ENDPOINTS:
        app.add_url_rule(path, path, admit, methods=["POST"], provide_automatic_options=False)
    return app


def create_metrics_app(state: State, exposition: Exposition) -> Flask:
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
    return flask.Response(response.body, response.status, dict(response.headers))


def _json_response(code: int, content: dict[str, Any]) -> flask.Response:
    return flask.Response(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n", code, mimetype=_JSON)


_JSON = "application/json"

_CUT_SHORT = Refusal(HTTPStatus.BAD_REQUEST, "the body is shorter than its Content-Length")
