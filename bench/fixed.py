"""gpu-rules serve without parts of its work, for comparison (python -m bench.fixed allow|nothing serve …).

allow: parse every review and allow it without a decision, the minimum of any admission server.
nothing: receive the body without parsing it, and send a constant response, the cost of TLS and HTTP.
"""

import sys
from typing import Any

import orjson

from bench.reviews import UID
from rules_engine.model.rules.decision import Decision
from rules_engine.rules.evaluation import RuleSet
from rules_engine.server.commands import main
from rules_engine.server.http.admission import AdmissionEndpoint, Response

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
            RuleSet.mutate = RuleSet.validate = allow  # type: ignore[method-assign]
        case "nothing":
            AdmissionEndpoint.answer = nothing  # type: ignore[method-assign]
        case other:
            raise SystemExit(f"bench.fixed: must be allow or nothing, not {other}")
    main(prog_name="gpu-rules")
