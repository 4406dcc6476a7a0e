"""Decision logs with recorded requests, as a server writes them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.rule import Rule
from rules_engine.server.state import ServedRules, ServerState
from rules_engine.server.telemetry.decision_log import DecisionLog
from tests.support.evaluation import compiled
from tests.support.states import state_of
from tests.support.telemetry import admission_record

DIGEST = "d" * 64
"""The digest of the rules of a log."""

Call = tuple[str, Any]
"""The path of an endpoint, and the pod of a request to it."""


def recording(*rules: Rule, on: Cluster, digest: str = DIGEST) -> ServerState:
    """Return the state of a server that records requests."""
    return state_of(ServedRules(rule_set=compiled(*rules), digest=digest), cluster=on)


def recorded_log(
    path: Path, state: ServerState, calls: Iterable[Call], *, requests: bool = True, **fields: Any
) -> Path:
    """Write the decision log of requests with these fields."""
    log = DecisionLog(path, requests=requests)
    log.start()
    for endpoint, made in calls:
        log(admission_record(endpoint, made, state=state, **fields))
    log.stop()
    return path
