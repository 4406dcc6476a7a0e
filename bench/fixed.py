"""gpu-rules serve with less to do, to compare it with itself (python -m bench.fixed allow|nothing serve …).

allow: every review is read, allowed without being decided, and answered: what any admission server has to do.
nothing: the body is read and not looked at, and the answer is always the same bytes: what TLS and HTTP cost.
"""

import sys
from collections.abc import Iterable
from typing import Any

import orjson

import server.app
import server.serve
from bench.reviews import UID
from rules_engine.model.decision import Decision
from server.cli import main

_ANSWER = orjson.dumps(
    {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": UID, "allowed": True}}
)
_HEADERS = [("Content-Type", "application/json"), ("Content-Length", str(len(_ANSWER)))]


def nothing(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    start_response("200 OK", _HEADERS)
    return [_ANSWER]


def allow(*_arguments: Any, **_more: Any) -> Decision:
    return Decision()


if __name__ == "__main__":
    match sys.argv.pop(1):
        case "allow":
            server.app.ENDPOINTS.update(dict.fromkeys(server.app.ENDPOINTS, lambda _served: allow))
        case "nothing":
            vars(server.serve)["create_app"] = lambda *_arguments, **_more: nothing
        case other:
            raise SystemExit(f"bench.fixed: {other}?")
    main(prog_name="gpu-rules")
