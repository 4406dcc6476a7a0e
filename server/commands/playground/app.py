"""The playground as a Flask application."""

from collections.abc import Collection, Mapping
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from secrets import token_urlsafe
from typing import NoReturn
from zipfile import ZIP_DEFLATED, ZipFile

import flask
import orjson
from flask import Flask
from werkzeug.exceptions import HTTPException

from rules_engine import report
from rules_engine.server.commands.playground.answer import EXAMPLES, FILES, TEST_FILE
from rules_engine.server.commands.playground.process import AnswerProcess

MAX_TEXT_BYTES = 256 * 1024
"""Size of the three texts together."""

MAX_BODY_BYTES = 1024 * 1024
"""Size of a request: JSON escapes few characters of YAML, and control characters are none of it."""

_JSON = "application/json"

_REPORT_STYLE = Path(report.__file__).parent / "style.css"

_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def create_playground(*, hosts: Collection[str], start: Mapping[str, str]) -> Flask:
    """Create the application. Requests with another Host are refused: a name that resolves to this host is no proof.

    `hosts`: values of the header Host, such as `localhost:8080`. `start`: texts by file name in place of an example's.
    """
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    process = AnswerProcess()
    texts = {**EXAMPLES[0]["texts"], **start}
    material = orjson.dumps({"start": texts, "examples": EXAMPLES, "maxBytes": MAX_TEXT_BYTES})

    @app.before_request
    def check_host() -> None:
        if flask.request.headers.get("Host", "") not in hosts:
            _refuse(HTTPStatus.MISDIRECTED_REQUEST, "this host is not served here")

    @app.after_request
    def add_headers(response: flask.Response) -> flask.Response:
        response.headers.update(_HEADERS)
        response.headers["Content-Security-Policy"] = _policy(flask.g.get("nonce", ""))
        return response

    @app.get("/")
    def page() -> str:
        flask.g.nonce = token_urlsafe(16)
        return flask.render_template("page.html", nonce=flask.g.nonce)

    @app.get("/report.css")
    def report_style() -> flask.Response:
        return flask.send_file(_REPORT_STYLE)

    @app.get("/examples.json")
    def examples() -> flask.Response:
        return flask.Response(material, mimetype=_JSON)

    @app.post("/answer")
    def answer() -> flask.Response:
        return flask.Response(orjson.dumps(process.answer(_read_texts())), mimetype=_JSON)

    @app.post("/save")
    def save() -> flask.Response:
        texts = _read_texts()
        test = process.answer(texts).get("test")
        if test is None:
            _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "there is no decision to test")
        return flask.Response(_zip({**texts, TEST_FILE: test}), mimetype="application/zip")

    app.register_error_handler(HTTPException, _error_response)
    return app


def _read_texts() -> dict[str, str]:
    """Return the texts of a request by file name."""
    request = flask.request
    origins = [f"{scheme}://{request.headers['Host']}" for scheme in ("http", "https")]
    if request.headers.get("Origin") not in origins:
        _refuse(HTTPStatus.FORBIDDEN, "requests of other origins are refused")
    if request.mimetype != _JSON:
        _refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the content type must be {_JSON}")
    try:
        texts = orjson.loads(request.get_data(cache=False))
    except orjson.JSONDecodeError as error:
        _refuse(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}")
    if not isinstance(texts, dict) or {*texts} != {*FILES} or not all(isinstance(text, str) for text in texts.values()):
        _refuse(HTTPStatus.BAD_REQUEST, f"the body must be an object with the texts {', '.join(FILES)}")
    if sum(len(text.encode()) for text in texts.values()) > MAX_TEXT_BYTES:
        _refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the texts have more than {MAX_TEXT_BYTES // 1024} KiB")
    return texts


def _refuse(status: HTTPStatus, message: str) -> NoReturn:
    flask.abort(flask.Response(orjson.dumps({"error": message}), status, mimetype=_JSON))


def _error_response(error: HTTPException) -> flask.Response:
    return flask.Response(orjson.dumps({"error": error.description}), error.code, mimetype=_JSON)


def _policy(nonce: str) -> str:
    """Return the Content-Security-Policy: nothing of other origins, no inline script, and styles by their nonce."""
    styles = f"style-src 'self' 'nonce-{nonce}'" if nonce else "style-src 'self'"
    own = "script-src 'self'; connect-src 'self'; img-src 'self'"
    return f"default-src 'none'; {own}; {styles}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def _zip(files: Mapping[str, str]) -> bytes:
    content = BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()
