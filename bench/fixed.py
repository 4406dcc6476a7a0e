"""gpu-rules serve with less to do, to compare it with itself (python -m bench.fixed allow|nothing serve …).

allow: every review is parsed and allowed without a decision: what any admission server has to do.
nothing: the body is received but not parsed, and every response has the same bytes: the cost of TLS and HTTP.
"""

import sys
from typing import Any

import orjson

from bench.reviews import UID
from rules_engine.model.decision import Decision
from server.cli import main
from server.http.admission import ENDPOINTS, Admission
from server.http.messages import Response

_RESPONSE = Response(
    200,
    orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": UID, "allowed": True}}
    ),
)


def nothing(*_arguments: Any, **_more: Any) -> Response:
    return _RESPONSE


def allow(*_arguments: Any, **_more: Any) -> Decision:
    return Decision()


if __name__ == "__main__":
    match sys.argv.pop(1):
        case "allow":
            ENDPOINTS.update(dict.fromkeys(ENDPOINTS, lambda _served: allow))
        case "nothing":
            Admission.answer = nothing  # type: ignore[method-assign]
        case other:
            raise SystemExit(f"bench.fixed: {other}?")
    main(prog_name="gpu-rules")
