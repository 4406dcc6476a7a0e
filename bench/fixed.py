"""gpu-rules serve with an application that decides nothing: what TLS, HTTP and reading a body cost by themselves."""

from collections.abc import Iterable
from typing import Any

import orjson

import server.serve
from bench.reviews import UID
from server.cli import main

_ANSWER = orjson.dumps(
    {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": UID, "allowed": True}}
)
_HEADERS = [("Content-Type", "application/json"), ("Content-Length", str(len(_ANSWER)))]


def fixed(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Read the body and allow."""
    environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    start_response("200 OK", _HEADERS)
    return [_ANSWER]


def _create_app(*_arguments: Any, **_more: Any) -> Any:
    return fixed


if __name__ == "__main__":
    server.serve.create_app = _create_app
    main(prog_name="gpu-rules")
